"""Simulated runs: the door's first implementation (door.py), in memory and in virtual time.

Nothing outlives a runner, so it may be killed at any moment; and a plan that is run again, in
another process, must come to the same digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shalott.core.plan import Plan
from shalott.harness.search.door import Lane, Ran
from shalott.harness.search.drawing.swarm import Subject, draw_plan
from shalott.harness.search.findings import evidence_of, report_of

if TYPE_CHECKING:
    from shalott.harness.run.simulate import SimOutcome

SEED_LIMIT_S = 600.0


class Simulate(Protocol):
    """harness.run.simulate.simulate, or a test's own; a function at the top of a module, so that it
    can be named to another process."""

    def __call__(
        self, plan: Plan, *, stop_early: bool = True, label_chunk: int | None = None
    ) -> SimOutcome: ...


@dataclass(frozen=True, slots=True)
class DrawnPlans:
    """A plan for each seed."""

    subject: Subject

    def plan(self, number: int) -> Plan:
        return draw_plan(self.subject, number)


@dataclass(frozen=True, slots=True)
class SimulatedRuns:
    """See ``door.Runs``."""

    simulate: Simulate
    limit_s: float = SEED_LIMIT_S
    closes_within_s: float = 0.0

    def open(self, lane: Lane) -> SimulatedRunner:
        return SimulatedRunner(self.simulate, lane.code)


@dataclass(frozen=True, slots=True)
class SimulatedRunner:
    """See ``door.Runner``."""

    simulate: Simulate
    code: str

    def run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        outcome = self.simulate(plan)
        report = report_of(number, outcome)
        if again or not report.violations:
            return Ran(report)
        return Ran(report, evidence_of(plan, outcome, code=self.code))

    def close(self) -> None:
        return
