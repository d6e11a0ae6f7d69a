"""The verdict on a run: its checkers' results, written as results.json, report.html and junit.xml.

Used at the end of a run and, on a stored history, by ``shalott analyze``: the same files either
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow.compute as pc

from shalott.checkers.checker import Result, merge_valid
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.runs.clocks import Clocks
from shalott.checkers.runs.compose import Verdict, check_all, check_safely, extra_checkers
from shalott.checkers.runs.harness_failures import Helpers, without_verdicts
from shalott.core.history import History
from shalott.core.plan import Plan
from shalott.harness.report.junit import render_junit
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.report_page import render_report
from shalott.harness.report.results import render_results
from shalott.harness.run.store import JUNIT, REPORT, RESULTS, RunDirectory
from shalott.workloads.record import WORKLOADS


def judge(plan: Plan, history: History, failures: Sequence[str] = ()) -> Verdict:
    """Run the workload's checkers and all others that fit, and ask whether the run came to its end.

    A run whose harness failed (``failures``), or one of its helpers, is unknown at best.
    Raises UsageError: there is no such workload.
    """
    own = WORKLOADS.find(plan.workload.name).checkers(plan)
    helpers = check_safely(Helpers(failures, history.damage), history)
    clocks = check_safely(Clocks(), history)
    verdict = check_all((*own, *extra_checkers(plan, own), WholeRun()), history)
    told = [clocks] if clocks.valid is not True or clocks.detail["summary"] else []
    if helpers.valid is True and not told:
        return verdict
    results = (*verdict.results, *told)
    if clocks.valid is not True or helpers.valid is not True:
        results = without_verdicts(results)
    if helpers.valid is not True:
        results = (helpers, *results)
    return Verdict(valid=merge_valid(each.valid for each in results), results=results)


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A run that was interrupted or broke is never valid: what was left out may have shown more."""

    name: str = "run"

    def check(self, history: History) -> Result:
        ops = history.ops
        phases = ops.filter(pc.equal(ops["f"], "phase"))
        names = [msgspec.json.decode(extra)["phase"] for extra in phases["extra"].to_pylist()]
        reread = read_surroundings(history).phase("reread")
        if reread is not None and reread.settled is False:
            reason = f"The nodes did not come back from their disks: {reread.reason}."
            return Result(checker=self.name, valid="unknown", notes=(reason,))
        if history.complete and "end" in names:
            return Result(checker=self.name, valid=True)
        where = f" in the phase {names[-1]}" if names and names[-1] != "end" else ""
        reason = f"The run did not come to its end: it was cut short{where}."
        return Result(checker=self.name, valid="unknown", notes=(reason,))


def save_verdict(
    plan: Plan, history: History, verdict: Verdict, meta: ReportMeta, directory: RunDirectory
) -> None:
    """Write every file that tells of the verdict. Raises StoreError."""
    save_data(plan, history, verdict, meta, directory)
    meta = msgspec.structs.replace(meta, files=directory.files())
    directory.save_text(REPORT, render_report(plan, history, verdict.results, meta))


def save_data(
    plan: Plan, history: History, verdict: Verdict, meta: ReportMeta, directory: RunDirectory
) -> None:
    """As ``save_verdict``, without the page. Raises StoreError."""
    results = verdict.results
    data = render_results(plan, results, meta, complete=history.complete, run=directory.run)
    directory.save_bytes(RESULTS, data)
    directory.save_bytes(JUNIT, render_junit(plan, results, meta))
    directory.sum_up(RESULTS)
