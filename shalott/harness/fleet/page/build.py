"""From what a report found, and the table of runs, to the page's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.fleet.page.availability import outages_of, recoveries_of
from shalott.harness.fleet.page.campaigns import campaign_rows
from shalott.harness.fleet.page.changes import changes_of
from shalott.harness.fleet.page.data import PageData, count_verdicts, listed
from shalott.harness.fleet.page.facts import Facts, gather
from shalott.harness.fleet.page.losses import losses_of
from shalott.harness.fleet.page.mastership import duals_of
from shalott.harness.fleet.page.verdicts import cell_rows, days_of
from shalott.spark_analysis.lines import FleetReport

ROWS = 25
_TOLD = {
    "unavailability": (
        *("run", "kind", "fault", "queue", "effective_ns", "healed_ns", "begin_ns", "end_ns"),
        *("gap_ns", "recovery_ns", "operations"),
    ),
    "dual_masters": ("run", "kind", "begin_ns", "end_ns"),
}


def build_page(
    report: FleetReport,
    tables: Mapping[str, pa.Table],
    runs: pa.Table,
    *,
    store: Path | None,
    notes: Sequence[str] = (),
    at_most: int = ROWS,
) -> PageData:
    """``tables``: what was found, by spark_analysis/columns/tables.py. ``runs``: the table of runs
    of the same directory. ``store``: where its nights are; None: out of reach. ``notes``: sentences
    on what could not be read. ``at_most``: rows of each list."""
    facts = gather(runs, report.runs)
    sample = facts.sample
    overlaps = _by_run(tables, "dual_masters")
    # SQL does not know when nobody was served, nor which faults there were.
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


def _by_run(tables: Mapping[str, pa.Table], name: str) -> dict[str, list[dict[str, Any]]]:
    by_run: dict[str, list[dict[str, Any]]] = {}
    for row in tables[name].select(_TOLD[name]).to_pylist():
        by_run.setdefault(row["run"], []).append(row)
    return by_run


def _unseen(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    """Of runs of logs: acknowledged messages of which nobody knows whether any node has them."""
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
        "Plain SQL counted: it does not know when nobody was served, which faults there were, nor"
        " of which messages of logs nobody can tell; in queues with a time to live, a length or an"
        " expiry it calls nothing lost."
    ]


def _unfinished(facts: Facts) -> list[str]:
    """Runs without a verdict, as a sentence of each cause."""
    failed = sum(bool(fact.row["harness_failures"]) for fact in facts.sample)
    none = sum(fact.verdict == "none" for fact in facts.sample) - failed
    told = []
    if failed:
        told.append(f"In {failed:,} of {len(facts.sample):,} runs the harness failed: no verdict.")
    if none:
        told.append(f"{none:,} of {len(facts.sample):,} runs have no verdict: broken off, or"
                    " under way.")  # fmt: skip
    return told
