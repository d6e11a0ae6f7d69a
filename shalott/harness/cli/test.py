"""``shalott test`` and ``shalott analyze``: runs, and the verdict on stored ones.

Flags that the command line takes from the records behind the doors.

Each parameter of every workload and system that is here is a flag of ``shalott test``; two records
whose parameters have one name share the flag.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.command_options import Option
from shalott.core.errors import UsageError
from shalott.core.parameters import flags_of
from shalott.harness.cli.commands import run_typer
from shalott.harness.cli.options import (
    LoadField,
    LoadOption,
    SharedFlag,
    StoreField,
    StoreOption,
    with_options,
)
from shalott.harness.run.request import RUN, STORE, Request, read_tags
from shalott.harness.run.session import analyze as analyze_run
from shalott.harness.run.session import run_request, run_stored_plan
from shalott.workloads.record import WORKLOADS

# What `--help` shows: the rest is in `--help-all`.
COMMON = (
    *("system", "compose", "profile", "policy", "bug", "load", "store"),
    *(
        "workload",
        "client",
        "cluster",
        "nodes",
        "concurrency",
        "rate",
        "time_limit",
        "seed",
        "test_count",
    ),
    *("plan", "junit", "leave_db_running"),
    *("nemesis", "nemesis_interval", "nemesis_duration", "targets"),
)
MORE = (
    "`shalott test --help-all` shows every option; `shalott systems NAME` and `shalott workloads"
    " NAME` the settings that each has of its own, `shalott faults` the faults."
)


def add_commands(app: typer.Typer) -> None:
    app.command("test", epilog=MORE)(with_options(test, shared_flags(), COMMON))
    app.command()(analyze)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """How many runs there are, of which plan, and what is kept of them where."""

    node_count: Annotated[
        int, Option("How many nodes; as --nodes COUNT.", panel=RUN, after="nodes")
    ] = 0
    test_count: Annotated[int, Option("Runs; stops at one not valid.", panel=RUN, after="seed")] = 1
    plan: Annotated[Path | None, Option("Run this stored plan.json.", panel=RUN)] = None
    junit: Annotated[
        Path | None, Option("One JUnit file of all runs, refusals too.", panel=RUN)
    ] = None
    tag: Annotated[
        tuple[str, ...], Option("KEY=VALUE, for the table of runs; may be repeated.", panel=RUN)
    ] = ()
    load: LoadField = ()
    store: StoreField = STORE


def test(request: Request, series: Series) -> None:
    """Boot a cluster, load it, break it, heal it, drain it, and judge what was lost."""
    tags = read_tags(series.tag)
    count, store, junit = series.test_count, series.store, series.junit
    if series.plan is not None:
        code = run_stored_plan(
            series.plan,
            test_count=count,
            store_root=store,
            junit=junit,
            tags=tags,
            may_break=request.i_may_break_this,
        )
        raise typer.Exit(code)
    if series.node_count:
        request = dataclasses.replace(request, nodes=str(series.node_count))
    raise typer.Exit(
        run_request(request, test_count=count, store_root=store, junit=junit, tags=tags)
    )


def read_words(words: Sequence[str]) -> tuple[Request, Series]:
    """What ``shalott test WORDS`` would be asked for, and nothing is run. Raises UsageError."""
    kept: list[tuple[Request, Series]] = []

    def keep(request: Request, series: Series) -> None:
        kept.append((request, series))

    app = typer.Typer(add_completion=False)
    app.command()(with_options(keep, shared_flags(), COMMON))
    run_typer(typer.main.get_command(app), words)
    if not kept:
        raise UsageError(f"{shlex.join(words)}: these words ask for no run")
    return kept[0]


def analyze(
    run: Annotated[str | None, typer.Argument(help="A run's directory or name.")] = None,
    load: LoadOption = None,
    store: StoreOption = STORE,
) -> None:
    """Judge a stored run again: the latest, or the one that is named."""
    raise typer.Exit(analyze_run(run, store))


def shared_flags(*, workloads: bool = True) -> tuple[SharedFlag, ...]:
    """Every parameter's, in the order of the records; or of systems alone."""
    found: dict[str, SharedFlag] = {}
    structs: list[tuple[str, type[msgspec.Struct]]] = []
    if workloads:
        structs = [(record.name, record.parameters) for record in WORKLOADS.records()]
    structs += [(record.name, record.parameters) for record in SYSTEMS.records()]
    for owner, struct in structs:
        for flag in flags_of(struct):
            known = found.get(flag.name)
            owners = (*known.owners, owner) if known is not None else (owner,)
            found[flag.name] = SharedFlag(known.flag if known is not None else flag, owners)
    return tuple(found.values())
