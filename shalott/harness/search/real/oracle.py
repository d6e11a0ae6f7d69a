"""The oracle of a shrinking on real nodes: a plan fails if it fails often enough.

One run proves little there, in either direction. So a candidate is run until the rule (rule.py)
says that it fails in enough of its runs, or that it does not; one that stays unclear is not kept.
The runs of a candidate go side by side where there are several clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shalott.core.plan import Plan
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.real.ledger import Ledger
from shalott.harness.search.repeats import fails_by
from shalott.harness.search.rule import Rule, Trials
from shalott.harness.search.shrinking.shrink import BudgetSpent
from shalott.harness.search.workers import Answer, Task

LOOK_S = 0.25


class Pool(Protocol):
    """Of ``workers.WorkerPool`` what is needed here."""

    @property
    def busy(self) -> int: ...

    def hand_out(self, choose: Callable[[int], Task | None]) -> None: ...

    def answers(self, timeout_s: float) -> list[Answer]: ...


@dataclass
class Oracle:
    """The class by which a plan must fail is the ledger's. ``budget``: of runs, those of earlier
    commands among them; ``until_s``: of the monotonic clock. ``tell`` hears of each run."""

    pool: Pool
    ledger: Ledger
    rule: Rule
    budget: int
    until_s: float | None = None
    tell: Callable[[Plan, str, SeedReport, Trials], None] = lambda plan, of, report, trials: None
    _serial: int = field(default=0)

    def fails(self, plan: Plan) -> bool:
        """Whether it fails often enough. Raises BudgetSpent."""
        return self.rule.verdict(self.settle(plan, "candidate")) is True

    def settle(self, plan: Plan, of: str) -> Trials:
        """Run it until the rule is over. Raises BudgetSpent."""
        while not self.rule.is_over(trials := self.ledger.trials(plan, of)):
            self._check_budget()
            wanted = min(self._wanted(trials), self.budget - self.ledger.runs)
            self._run(plan, of, wanted)
        return trials

    def once(self, plan: Plan, of: str) -> SeedReport:
        """One run. Raises BudgetSpent."""
        self._check_budget()
        return self._run(plan, of, 1)[0]

    def _check_budget(self) -> None:
        is_late = self.until_s is not None and time.monotonic() >= self.until_s
        if is_late or self.ledger.runs >= self.budget:
            raise BudgetSpent

    def _wanted(self, trials: Trials) -> int:
        """How many more runs the rule needs at least, if all of them ended alike."""
        counts = []
        for failed in (True, False):
            at_best, count = trials, 0
            while not self.rule.is_over(at_best):
                at_best, count = at_best.and_one(failed), count + 1
            counts.append(count)
        return min(counts)

    def _run(self, plan: Plan, of: str, count: int) -> list[SeedReport]:
        """So many at once, or as many as there are workers."""
        left = [count]

        def choose(worker: int) -> Task | None:
            if not left[0]:
                return None
            left[0] -= 1
            self._serial += 1
            return Task(self._serial, again=True, plan=plan)

        self.pool.hand_out(choose)
        found: list[SeedReport] = []
        while self.pool.busy:
            for answer in self.pool.answers(LOOK_S):
                found.append(answer.report)
                self._record(plan, of, answer.report)
        return found

    def _record(self, plan: Plan, of: str, report: SeedReport) -> None:
        anomaly = self.ledger.anomaly
        failed = fails_by(report, anomaly) if anomaly else None
        why = "" if failed is not None else _why_void(report)
        self.ledger.add(plan, of, failed, why=why, seconds=report.wall_s)
        self.tell(plan, of, report, self.ledger.trials(plan, of))


def _why_void(report: SeedReport) -> str:
    if report.error is not None:
        return report.error
    if report.real is not None and report.real.starved:
        return report.real.starved
    return report.reasons[0] if report.reasons else "it is unknown"
