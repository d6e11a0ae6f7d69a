"""The minimal plan of a finding: what is left of a plan that showed it without what it can do
without.

Who makes a system asks first for the smallest case. The plan of a run that is in the store is
shrunk (harness/shrinking), the minimal one is run until it shows the finding once more, and the
report to send upstream is written of that run, with the whole plan in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import Plan, load_plan
from shalott.core.published import PublishedFinding
from shalott.harness.originals.evidence import Look
from shalott.harness.published.evidence import is_shown
from shalott.harness.published.upstream import REPORT, Minimal, report_of
from shalott.harness.report.results import RunResults
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.run.store import PLAN

NAME: Final = "minimal.json"
TRIES: Final = 5


class Shrink(Protocol):
    def __call__(self, plan: Path, cluster: str, anomaly: str, out: Path) -> None:
        """Write the smallest plan that still fails by that class of anomaly."""


class RunPlan(Protocol):
    def __call__(self, plan: Plan) -> tuple[RunResults, Path]:
        """The verdict, and where the run's files are."""


def report_minimal(
    finding: PublishedFinding,
    looks: Sequence[Look],
    store: Path,
    shrink: Shrink,
    run_plan: RunPlan,
) -> Path:
    """The report's file. Raises UsageError: there is nothing to shrink; HarnessError: the minimal
    plan does not show it."""
    look, where = _run_there(finding, looks, store)
    stored, out = load_plan(where / PLAN), where / NAME
    shrink(where / PLAN, stored.cluster.backend, anomaly_of(finding, look), out)
    plan = load_plan(out)
    plan = msgspec.structs.replace(plan, name=f"{finding.name}-{look.release}-minimal")
    for tried in range(1, TRIES + 1):
        results, directory = run_plan(plan)
        if is_shown(finding, results, directory):
            minimal = Minimal(len(stored.faults), tried)
            report = report_of(finding, plan, results, directory, minimal)
            write_atomically(directory / REPORT, report.encode())
            return directory / REPORT
    raise HarnessError(f"{finding.name}: {out} did not show it in {TRIES} runs")


def _run_there(finding: PublishedFinding, looks: Sequence[Look], store: Path) -> tuple[Look, Path]:
    """A run that showed it, the newest that the store has."""
    for look in reversed(looks):
        where = store / look.run
        if look.found and not look.void and (where / PLAN).is_file():
            return look, where
    raise UsageError(f"{finding.name}: no run that showed it is in {store}: give more --repeat")


def anomaly_of(finding: PublishedFinding, look: Look) -> str:
    """The class that a smaller plan must keep. Raises UsageError: it is known by other signs."""
    wanted = [kind for seen in finding.seen for kind in seen.kinds]
    wanted += [seen.count.removesuffix("-count") for seen in finding.seen if seen.count]
    kept = [kind for kind in look.classes if kind in wanted]
    if not kept:
        raise UsageError(
            f"{finding.name}: it is known by no anomaly of a checker, so its plan can't be shrunk"
        )
    return kept[0]
