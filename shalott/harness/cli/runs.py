"""`shalott runs`: the table of a store's runs, the newest first, brought up to date on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import typer

from shalott.core.command_options import Argument, Option
from shalott.core.errors import UsageError
from shalott.core.parameters import parse_duration_ms
from shalott.core.run_id import run_id
from shalott.harness.cli.options import with_options
from shalott.harness.store.columns import CAMPAIGN, FINDING, RUN
from shalott.harness.store.runs_table import refresh

SHOWN = 50


def add_commands(app: typer.Typer) -> None:
    app.command()(with_options(runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions:
    """Which runs, how many, and how they are run_lines."""

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
    for line in json_lines(shown) if asked.json else run_lines(shown):
        typer.echo(line)
    if len(shown) < len(rows):
        typer.echo(f"{len(rows) - len(shown):,} more: --last 0 shows all.", err=True)


_VALID = ("true", "false", "unknown", "none")
_WORDS = {"true": "valid", "false": "INVALID", "unknown": "unknown", None: "no verdict"}


@dataclass(frozen=True, slots=True)
class Filters:
    """What is wanted; "" is anything. ``since_ms``: not older than that. ``valid``: "none" is what
    has no verdict."""

    valid: str = ""
    system: str = ""
    nemesis: str = ""
    anomaly: str = ""
    cell: str = ""
    night: str = ""
    kind: str = ""
    text: str = ""
    since_ms: int | None = None

    def __post_init__(self) -> None:
        for flag, value, known in (
            ("--valid", self.valid, _VALID),
            ("--kind", self.kind, (RUN, FINDING, CAMPAIGN)),
        ):
            if value and value not in known:
                raise UsageError(f"{flag} {value}: choose one of {', '.join(known)}")


def selected(table: pa.Table, filters: Filters) -> pa.Table:
    """The rows that fit, the newest first."""
    for column, wanted in (
        ("system", filters.system),
        ("cell", filters.cell),
        ("night", filters.night),
        ("kind", filters.kind),
    ):
        if wanted:
            table = table.filter(pc.equal(table[column], wanted))
    if filters.valid == "none":
        table = table.filter(pc.is_null(table["valid"]))
    elif filters.valid:
        table = table.filter(pc.equal(table["valid"], filters.valid))
    if filters.since_ms is not None:
        since_ns = time.time_ns() - filters.since_ms * 1_000_000
        table = table.filter(pc.greater_equal(table["started_wall_ns"], since_ns))
    table = _with_listed(table, filters)
    if filters.text:
        columns = ("run", "headline", "tags")
        parts = [pc.fill_null(table[each].cast(pa.string()), "") for each in columns]
        joined = pc.binary_join_element_wise(*parts, "\n")
        table = table.filter(pc.match_substring(joined, filters.text, ignore_case=True))
    return table.sort_by([("started_wall_ns", "descending"), ("run", "ascending")])


def _with_listed(table: pa.Table, filters: Filters) -> pa.Table:
    """Those whose lists hold what is wanted."""
    if filters.nemesis:
        kinds = table["nemesis"].to_pylist()
        table = table.filter(
            pa.array([filters.nemesis in (each or ()) for each in kinds], pa.bool_())
        )
    if filters.anomaly:
        found = table["anomalies"].to_pylist()
        rows = [any(a["kind"] == filters.anomaly for a in each or ()) for each in found]
        table = table.filter(pa.array(rows, pa.bool_()))
    return table


def run_lines(table: pa.Table) -> Iterator[str]:
    """A line a run: its short id, when, verdict, where it is, why."""
    names = ("started_wall_ns", "valid", "run", "headline", "kind", "harness_failures")
    for row in table.select(names).to_pylist():
        ns = row["started_wall_ns"]
        when = f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}" if ns else "?"
        word = "harness failed" if row["harness_failures"] else _WORDS.get(row["valid"], "?")
        kind = "" if row["kind"] == RUN else f" ({row['kind']})"
        headline = row["headline"] or ""
        yield f"{run_id(row['run'])}  {when}  {word:<10}  {row['run']}{kind}  {headline}".rstrip()


def json_lines(table: pa.Table) -> Iterator[str]:
    for row in table.to_pylist():
        yield msgspec.json.encode(row).decode()
