"""``shalott try-plugin`` and ``shalott new``: for authors of systems, workloads and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shalott.core.command_options import Argument, Option
from shalott.core.errors import UsageError
from shalott.core.parameters import parse_duration_ms
from shalott.harness.cli.options import LoadField, with_options
from shalott.harness.conformance import suite
from shalott.harness.conformance.points import Point
from shalott.harness.conformance.suite import TryRequest
from shalott.harness.conformance.writing import write_system
from shalott.harness.run.request import STORE

WORDS = {"passed": "ok", "failed": "FAILED", "not tried": "--"}


def add_commands(app: typer.Typer) -> None:
    app.command("try-plugin")(with_options(try_plugin))
    app.command("new")(new)


def new(
    what: Annotated[str, typer.Argument(help="system: the one thing that there is.")],
    name: Annotated[str, typer.Argument(help="How it is called: my-queue.")],
    into: Annotated[
        Path | None, typer.Argument(help="A directory, empty or not there; else ./NAME.")
    ] = None,
) -> None:
    """Write a package that puts a system of your own under test, and that runs as it is."""
    if what != "system":
        raise UsageError(f"shalott new {what}: write system, and then its name")
    place = Path(name) if into is None else into
    for path in write_system(name, place):
        typer.echo(path)
    typer.echo(f"Now: cd {place} && pip install -e . && shalott try-plugin"
               f" {name.replace('-', '_')}")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOptions:
    """What is tried, and where."""

    module: Annotated[str, Argument("A module with a system or a workload.")]
    system: Annotated[str, Option("Else the module's first.")] = ""
    workload: Annotated[str, Option("Else the module's first that fits.")] = ""
    profile: Annotated[str, Option("Of the system; else its first.")] = ""
    cluster: Annotated[str, Option("local or docker.")] = "auto"
    nodes: Annotated[str, Option("Names n1,n2,n3, or how many.")] = "3"
    boot_within: Annotated[str, Option("When it must be ready.")] = "60"
    time_limit: Annotated[str, Option("Of each run.")] = "5"
    quick: Annotated[bool, Option("What one boot shows, and no runs.")] = False
    load: LoadField = ()
    store: Annotated[Path, Option("Where runs are kept.")] = STORE


def try_plugin(options: TryOptions) -> None:
    """Try a plug-in point by point: 0 if all are kept, 1 if one failed, which says what to do."""
    asked = TryRequest(
        module=options.module,
        system=options.system,
        workload=options.workload,
        profile=options.profile,
        cluster=options.cluster,
        nodes=options.nodes,
        boot_within_ms=parse_duration_ms("--boot-within", options.boot_within),
        time_limit_s=max(1, parse_duration_ms("--time-limit", options.time_limit) // 1000),
        is_quick=options.quick,
        store=options.store,
    )
    points = suite.try_plugin(asked, _tell)
    failed = [point for point in points if point.state == "failed"]
    passed = sum(point.state == "passed" for point in points)
    typer.echo(f"{passed} points kept, {len(failed)} failed, {len(points) - passed - len(failed)}"
               " not tried.")  # fmt: skip
    raise typer.Exit(1 if failed else 0)


def _tell(point: Point) -> None:
    typer.echo(f"{WORDS[point.state]:<7}{point.name}{': ' if point.told else ''}{point.told}")
    if point.advice:
        typer.echo(f"       {point.advice}")
