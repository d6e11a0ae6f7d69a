"""`shalott runs`: the table of a store's runs, the newest first, brought up to date on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shalott.core.command_options import Argument, Option
from shalott.core.parameters import parse_duration_ms
from shalott.harness.cli.options import with_options
from shalott.harness.store.runs_list import Filters, json_lines, selected
from shalott.harness.store.runs_list import run_lines as told
from shalott.harness.store.runs_table import refresh

SHOWN = 50


def add_commands(app: typer.Typer) -> None:
    """Register it."""
    app.command()(with_options(runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions:
    """Which runs, how many, and how they are told."""

    store: Annotated[Path, Argument("The store.")] = Path("store")
    valid: Annotated[str, Option("true, false, unknown or none.")] = ""
    system: Annotated[str, Option("Of this system.")] = ""
    nemesis: Annotated[str, Option("With a fault of this kind.")] = ""
    anomaly: Annotated[str, Option("With an anomaly of this kind.")] = ""
    cell: Annotated[str, Option("Of this cell of a matrix.")] = ""
    night: Annotated[str, Option("Of this night.")] = ""
    kind: Annotated[str, Option("run, finding or campaign.")] = ""
    text: Annotated[str, Option("In the directory, headline or tags.")] = ""
    since: Annotated[str, Option("Not older: 90m, 36h.")] = ""
    last: Annotated[int, Option("How many; 0: all.")] = SHOWN
    json: Annotated[bool, Option("A JSON object a line.")] = False


def runs(asked: RunsOptions) -> None:
    """List a store's runs out of runs.parquet, which takes in what it lacks."""
    filters = Filters(
        valid=asked.valid, system=asked.system, nemesis=asked.nemesis, anomaly=asked.anomaly,
        cell=asked.cell, night=asked.night, kind=asked.kind, text=asked.text,
        since_ms=parse_duration_ms("--since", asked.since) if asked.since else None,
    )  # fmt: skip
    found = refresh(asked.store)
    for note in found.notes:
        typer.echo(note, err=True)
    if found.taken_in or found.removed:
        typer.echo(f"{found.taken_in:,} runs taken in, {found.removed:,} gone.", err=True)
    rows = selected(found.table, filters)
    shown = rows if asked.last == 0 else rows.slice(0, asked.last)
    for line in json_lines(shown) if asked.json else told(shown):
        typer.echo(line)
    if len(shown) < len(rows):
        typer.echo(f"{len(rows) - len(shown):,} more: --last 0 shows all.", err=True)
