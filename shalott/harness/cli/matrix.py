"""`shalott matrix`: a night of runs out of a file, and shards of a night put together."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shalott.core.command_options import Argument, Option
from shalott.core.errors import UsageError
from shalott.harness.cli.options import LoadField, StoreField, with_options
from shalott.harness.matrix.night import MatrixRequest, merge_shards, run_matrix


def add_commands(app: typer.Typer) -> None:
    app.command()(with_options(matrix))


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """Which night, how much of it, and what is kept; or which shards are put together."""

    file: Annotated[
        tuple[Path, ...], Argument("The night's TOML file; with --merge, the shards' stores.")
    ] = ()
    night: Annotated[str, Option("Its name; shards of one share it.")] = ""
    shard: Annotated[str, Option("Run this part: 2/5.")] = ""
    only: Annotated[tuple[str, ...], Option("Cells of this name; * and ? fit anything.")] = ()
    repeat: Annotated[int | None, Option("Each run so often.")] = None
    deflake: Annotated[int | None, Option("What failed is run so often again.")] = None
    budget: Annotated[str, Option("No new run after so long: 90m, 6h.")] = ""
    jobs: Annotated[int | None, Option("Runs at once; 0: what fits.", ("--jobs", "-j"))] = None
    keep_failures: Annotated[
        bool | None,
        Option("Of runs as expected keep plan and verdict only.", ("--keep-failures/--keep-all",)),
    ] = None
    fresh: Annotated[bool, Option("A new night, though the last is not over.")] = False
    notify: Annotated[str, Option("A command that gets summary.json.")] = ""
    merge: Annotated[bool, Option("Put shards together.")] = False
    out: Annotated[Path, Option("Of --merge: where to.")] = Path("night")
    load: LoadField = ()
    store: StoreField = Path("store")


def matrix(asked: MatrixOptions) -> None:
    """Run a night of cells, and say what is new, known, fixed or flaky beside earlier nights.

    The same command goes on with a night that was stopped or killed.
    """
    if asked.merge:
        if not asked.file:
            raise UsageError("--merge: name the shards' stores")
        raise typer.Exit(merge_shards(list(asked.file), asked.out, asked.notify, _tell))
    if len(asked.file) != 1:
        raise UsageError("shalott matrix FILE: name one file")
    asked.store.mkdir(parents=True, exist_ok=True)
    request = MatrixRequest(
        file=asked.file[0], store=asked.store, night=asked.night, shard=asked.shard,
        only=asked.only, repeat=asked.repeat, deflake=asked.deflake, budget=asked.budget,
        jobs=asked.jobs, keep_failures=asked.keep_failures, fresh=asked.fresh,
        notify=asked.notify, command=shlex.join(["shalott", *sys.argv[1:]]),
    )  # fmt: skip
    raise typer.Exit(run_matrix(request, _tell))


def _tell(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()
