"""index.html beside a report's other files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from shalott.core.errors import UsageError
from shalott.harness.fleet.page.build import ROWS, build_page
from shalott.harness.fleet.page.data import PageData
from shalott.harness.fleet.page.page import Leads, Source, render_page
from shalott.harness.fleet.runs.columns import RUNS_SCHEMA
from shalott.harness.fleet.runs.stored import PLAN
from shalott.harness.fleet.runs.table import rows_below
from shalott.harness.run.atomic_file import write_atomically
from shalott.spark_analysis.findings import FleetFindings
from shalott.spark_analysis.lines import FleetReport
from shalott.spark_analysis.session.choice import here, is_elsewhere

PAGE = "index.html"
WritePage = Callable[[FleetFindings, FleetReport, Path], None]


def page_writer(at_most: int = ROWS) -> WritePage:
    """What writes the page of a report. Raises UsageError: lists of no rows show nothing."""
    if at_most < 1:
        raise UsageError("--rows needs 1 or more")

    def write(found: FleetFindings, report: FleetReport, out: Path) -> None:
        data, base = page_of(found, report, at_most)
        page = render_page(data, Leads(base, out), Source(report.engine, report.judged))
        write_atomically(out / PAGE, page)

    return write


def page_of(
    found: FleetFindings, report: FleetReport, at_most: int = ROWS
) -> tuple[PageData, Path | None]:
    """The page's data, and what runs' names are relative to. Raises UsageError, StoreError."""
    runs, notes, base = _table(found.store)
    data = build_page(report, found.tables, runs, store=base, notes=notes, at_most=at_most)
    return data, base


def _table(store: str) -> tuple[pa.Table, tuple[str, ...], Path | None]:
    """The table of runs, sentences on what could not be read of it, and the directory."""
    if is_elsewhere(store):
        note = f"The table of runs of {store} is out of reach: only what the report tells is known."
        return RUNS_SCHEMA.empty_table(), (note,), None
    directory = Path(here(store)).resolve()
    found = rows_below(directory)
    base = directory.parent if (directory / PLAN).is_file() else directory
    return found.table, found.notes, base
