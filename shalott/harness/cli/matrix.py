"""`shalott matrix`: a night of runs out of a file, and shards of a night put together."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from shalott.core.errors import UsageError

LoadOption = Annotated[
    list[str] | None,
    typer.Option("--load", help="A module whose systems, workloads, faults are offered too."),
]


def add_matrix_command(app: typer.Typer) -> None:
    """Register it."""
    app.command()(matrix)


def matrix(
    file: Annotated[
        list[Path] | None,
        typer.Argument(help="The night's TOML file; with --merge, the shards' stores."),
    ] = None,
    night: Annotated[str, typer.Option(help="Its name; shards of one share it.")] = "",
    shard: Annotated[str, typer.Option(help="Run this part: 2/5.")] = "",
    only: Annotated[
        list[str] | None, typer.Option(help="Cells of this name; * and ? fit anything.")
    ] = None,
    repeat: Annotated[int | None, typer.Option(help="Each run so often.")] = None,
    deflake: Annotated[int | None, typer.Option(help="What failed is run so often again.")] = None,
    budget: Annotated[str, typer.Option(help="No new run after so long: 90m, 6h.")] = "",
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Runs at once; 0: what fits.")
    ] = None,
    keep_failures: Annotated[
        bool | None,
        typer.Option(
            "--keep-failures/--keep-all", help="Of runs as expected keep plan and verdict only."
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="A new night, though the last is not over.")
    ] = False,
    notify: Annotated[str, typer.Option(help="A command that gets summary.json.")] = "",
    merge: Annotated[bool, typer.Option("--merge", help="Put shards together.")] = False,
    out: Annotated[Path, typer.Option(help="Of --merge: where to.")] = Path("night"),
    load: LoadOption = None,
    store: Annotated[Path, typer.Option("--store", help="Where runs are kept.")] = Path("store"),
) -> None:
    """Run a night of cells, and say what is new, known, fixed or flaky beside earlier nights.

    The same command goes on with a night that was stopped or killed.
    """
    from shalott.harness.matrix.night import MatrixRequest, merge_shards, run_matrix

    files = file or []
    if merge:
        if not files:
            raise UsageError("--merge: name the shards' stores")
        raise typer.Exit(merge_shards(files, out, notify, _tell))
    if len(files) != 1:
        raise UsageError("shalott matrix FILE: name one file")
    store.mkdir(parents=True, exist_ok=True)
    request = MatrixRequest(
        file=files[0], store=store, night=night, shard=shard, only=tuple(only or ()),
        repeat=repeat, deflake=deflake, budget=budget, jobs=jobs, keep_failures=keep_failures,
        fresh=fresh, notify=notify, command=shlex.join(["shalott", *sys.argv[1:]]),
    )  # fmt: skip
    raise typer.Exit(run_matrix(request, _tell))


def _tell(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()
