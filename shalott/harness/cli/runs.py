"""`shalott runs`: the table of a store's runs, the newest first, brought up to date on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shalott.core.parameters import parse_duration_ms

SHOWN = 50


def add_runs_command(app: typer.Typer) -> None:
    """Register it."""
    app.command()(runs)


def runs(
    store: Annotated[Path, typer.Argument(help="The store.")] = Path("store"),
    valid: Annotated[str, typer.Option(help="true, false, unknown or none.")] = "",
    system: Annotated[str, typer.Option(help="Of this system.")] = "",
    nemesis: Annotated[str, typer.Option(help="With a fault of this kind.")] = "",
    anomaly: Annotated[str, typer.Option(help="With an anomaly of this kind.")] = "",
    cell: Annotated[str, typer.Option(help="Of this cell of a matrix.")] = "",
    night: Annotated[str, typer.Option(help="Of this night.")] = "",
    kind: Annotated[str, typer.Option(help="run, finding or campaign.")] = "",
    text: Annotated[str, typer.Option(help="In the directory, headline or tags.")] = "",
    since: Annotated[str, typer.Option(help="Not older: 90m, 36h.")] = "",
    last: Annotated[int, typer.Option(help="How many; 0: all.")] = SHOWN,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """List a store's runs out of runs.parquet, which takes in what it lacks."""
    from shalott.harness.store.runs_list import Filters, json_lines, run_lines, selected
    from shalott.harness.store.runs_table import refresh

    filters = Filters(
        valid=valid, system=system, nemesis=nemesis, anomaly=anomaly, cell=cell, night=night,
        kind=kind, text=text, since_ms=parse_duration_ms("--since", since) if since else None,
    )  # fmt: skip
    found = refresh(store)
    for note in found.notes:
        typer.echo(note, err=True)
    if found.taken_in or found.removed:
        typer.echo(f"{found.taken_in:,} runs taken in, {found.removed:,} gone.", err=True)
    rows = selected(found.table, filters)
    shown = rows if last == 0 else rows.slice(0, last)
    for line in json_lines(shown) if json else run_lines(shown):
        typer.echo(line)
    if len(shown) < len(rows):
        typer.echo(f"{len(rows) - len(shown):,} more: --last 0 shows all.", err=True)
