"""From what a report found, and the table of runs, to the page's data and to index.html."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from shalott.core.errors import UsageError
from shalott.harness.fleet.changes import changes_of
from shalott.harness.fleet.index_page import (
    Leads,
    Source,
    cell_rows,
    days_of,
    losses_of,
    render_page,
)
from shalott.harness.fleet.mastership import duals_of, outages_of, recoveries_of
from shalott.harness.fleet.page_data import (
    LINKS,
    CampaignRow,
    Listed,
    PageData,
    count_verdicts,
    listed,
    share,
)
from shalott.harness.fleet.run_facts import Fact, Facts, gather
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.store.columns import RUNS_SCHEMA, Row
from shalott.harness.store.run_files import PLAN
from shalott.harness.store.runs_table import rows_below
from shalott.spark_analysis.engine_choice import is_elsewhere, local_path
from shalott.spark_analysis.findings import FleetFindings
from shalott.spark_analysis.report_rows import FleetReport

ROWS = 25
_TOLD = {
    "unavailability": (
        *("run", "kind", "fault", "queue", "effective_ns", "healed_ns", "begin_ns", "end_ns"),
        *("gap_ns", "recovery_ns", "operations"),
    ),
    "dual_masters": ("run", "kind", "begin_ns", "end_ns"),
}
PAGE = "index.html"
WritePage = Callable[[FleetFindings, FleetReport, Path], None]


def build_page(
    report: FleetReport,
    tables: Mapping[str, pa.Table],
    runs: pa.Table,
    *,
    store: Path | None,
    notes: Sequence[str] = (),
    at_most: int = ROWS,
) -> PageData:
    """``tables``: what was found, by spark_analysis/kernels/tables.py. ``runs``: the table of runs
    of the same directory. ``store``: where its nights are; None: out of reach. ``notes``: sentences
    on what could not be read. ``at_most``: rows of each list."""
    facts = gather(runs, report.runs)
    sample = facts.sample
    overlaps = _by_run(tables, "dual_masters")
    # SQL does not know when no client was served, nor which faults there were.
    away = None if report.engine == "sql" else _by_run(tables, "unavailability")
    dates = [fact.started_ns for fact in sample if fact.started_ns is not None]
    return PageData(
        store=report.store,
        verdicts=count_verdicts(fact.verdict for fact in sample),
        again=len(facts.again),
        findings=len(facts.findings),
        untabled=sum(not fact.is_tabled for fact in sample),
        first_ns=min(dates, default=None),
        last_ns=max(dates, default=None),
        commits=len({fact.row["commit"] for fact in sample if fact.row["commit"]}),
        cells=cell_rows(sample, at_most),
        losses=losses_of(sample, _unseen(tables), at_most),
        days=days_of(sample, at_most),
        changes=changes_of((*sample, *facts.again), store, at_most),
        outages=None if away is None else outages_of(sample, away, at_most),
        recoveries=None if away is None else recoveries_of(sample, away, at_most),
        duals=duals_of(sample, overlaps, away, at_most),
        campaigns=campaign_rows(facts.campaigns, facts.findings, at_most),
        differs=listed(_differing(report), at_most),
        notes=listed(
            [*_untold(report.engine), *report.unreadable, *notes, *_unfinished(facts)], at_most
        ),
    )


def _by_run(tables: Mapping[str, pa.Table], name: str) -> dict[str, list[Row]]:
    by_run: dict[str, list[Row]] = {}
    for row in tables[name].select(_TOLD[name]).to_pylist():
        by_run.setdefault(row["run"], []).append(row)
    return by_run


def _unseen(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    """Of runs of logs: acknowledged messages that no node is known to have or to lack."""
    lost = tables["lost_messages"]
    lost = lost.filter(pc.greater(pc.fill_null(lost["unseen"], 0), 0))
    found: dict[str, int] = {}
    for run, count in zip(lost["run"].to_pylist(), lost["unseen"].to_pylist(), strict=True):
        found[run] = found.get(run, 0) + count
    return found


def _differing(report: FleetReport) -> list[tuple[str, str]]:
    return [
        (
            line.run,
            "; ".join(
                f"{name} is {here:,} here and {there:,} there"
                for name, (here, there) in line.differs.items()
            ),
        )
        for line in report.runs
        if line.differs
    ]


def _untold(engine: str) -> list[str]:
    if engine != "sql":
        return []
    return [
        "Plain SQL counted: it does not know when no client was served, which faults there were,"
        " nor of which messages of logs the end is unknown; in queues with a time to live, a length"
        " or an expiry it calls nothing lost."
    ]


def _unfinished(facts: Facts) -> list[str]:
    """Runs without a verdict, as a sentence of each cause."""
    failed = sum(bool(fact.row["harness_failures"]) for fact in facts.sample)
    none = sum(fact.verdict == "none" for fact in facts.sample) - failed
    notes = []
    if failed:
        notes.append(f"In {failed:,} of {len(facts.sample):,} runs the harness failed: no verdict.")
    if none:
        notes.append(f"{none:,} of {len(facts.sample):,} runs have no verdict: broken off, or"
                    " under way.")  # fmt: skip
    return notes


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
    directory = Path(local_path(store)).resolve()
    found = rows_below(directory)
    base = directory.parent if (directory / PLAN).is_file() else directory
    return found.table, found.notes, base


def campaign_rows(
    campaigns: Sequence[Fact], findings: Sequence[Fact], at_most: int
) -> Listed[CampaignRow]:
    """Those that found most first."""
    kept: dict[str, list[str]] = {}
    for fact in findings:
        kept.setdefault(fact.run.rpartition("/findings/")[0], []).append(fact.run)
    rows = [_row(fact, sorted(kept.get(fact.run, ()))) for fact in campaigns]
    return listed(sorted(rows, key=lambda row: (-(row.invalid or 0), row.run)), at_most)


def _row(fact: Fact, kept: Sequence[str]) -> CampaignRow:
    row = fact.row
    valid, invalid = row["seeds_valid"], row["seeds_invalid"]
    known = valid is not None and invalid is not None
    return CampaignRow(
        run=fact.run,
        name=row["campaign"] or fact.run,
        system=row["system"],
        profile=row["profile"],
        workload=row["workload"],
        wanted=row["seeds_wanted"],
        judged=row["seeds_judged"],
        valid=valid,
        invalid=invalid,
        unknown=row["seeds_unknown"],
        not_booted=row["seeds_not_booted"],
        failing=share(invalid, invalid + valid) if known else None,
        classes=tuple(
            (each["kind"] or "?", each["count"] or 0) for each in row["anomalies"] or () if each
        ),
        kept=listed(kept, LINKS),
    )
