"""The door of a campaign: a plan goes in, and what became of its run comes out.

A campaign draws plans, hands them to workers and keeps what it finds. ``Runs`` runs them, of which
there are two: ``SimulatedRuns``, in memory and in virtual time, where a plan that runs again, in
another process, must come to the same digest; and real_runs.py, on clusters of real nodes that are
kept warm, where a run is one of many that the same plan may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from shalott.core.plan import Plan
from shalott.harness.run.store import RunDirectory
from shalott.harness.scenarios.swarm import Subject, draw_plan
from shalott.harness.search.changed_code import entered
from shalott.harness.search.findings import SeedReport, evidence_of, report_of
from shalott.harness.search.probes import feature, packed, probes

if TYPE_CHECKING:
    from shalott.harness.run.simulate import SimOutcome


SEED_LIMIT_S = 600.0
CHANGE_ENTERED = "change_entered"  # a run came to code that was changed (changed_code.py)


class Evidence(Protocol):
    """What proves a finding, until the campaign decides whether it is kept."""

    def keep(self, place: RunDirectory, command: str) -> None:
        """Store it there; ``command`` repeats it. Raises StoreError."""
        ...

    def drop(self) -> None:
        """It is not kept."""
        ...


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a run. ``evidence``: of one that is worth a look."""

    report: SeedReport
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """One worker's place among the others. ``parent``: a descriptor that becomes readable while a
    plan runs if the campaign wants no more of it, or has died."""

    number: int
    code: str  # of the sources that run
    parent: int


class Runner(Protocol):
    """Runs plans in one process, one after the other."""

    def run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        """``again``: it was run before, and no evidence is wanted. What goes wrong in the
        harness is part of the report, or raised."""
        ...

    def close(self) -> None:
        """Put everything in order that outlives the process."""
        ...


class Runs(Protocol):
    """Opens runners. It is sent to other processes, so all that it holds can be pickled."""

    @property
    def limit_s(self) -> float:
        """Of real time: a run that takes longer will not end."""
        ...

    @property
    def closes_within_s(self) -> float:
        """How long a runner that was told to end may take; 0: it may be killed at once."""
        ...

    def open(self, lane: Lane) -> Runner: ...


class Plans(Protocol):
    """Where a campaign's plans come from. It is sent to other processes too."""

    def plan(self, number: int) -> Plan:
        """The plan of that number; the same each time."""
        ...


# -- in the simulation ----------------------------------------------------------------------------


class Simulate(Protocol):
    """harness.run.simulate.simulate, or a test's own; a function at the top of a module, so that it
    can be named to another process."""

    def __call__(
        self,
        plan: Plan,
        *,
        stop_early: bool = True,
        label_chunk: int | None = None,
        order: bool = False,
    ) -> SimOutcome: ...


@dataclass(frozen=True, slots=True)
class DrawnPlans:
    """A plan for each seed."""

    subject: Subject

    def plan(self, number: int) -> Plan:
        return draw_plan(self.subject, number)


@dataclass(frozen=True, slots=True)
class DealtPlans:
    """A plan for each seed, of the subjects in turn."""

    subjects: tuple[Subject, ...]

    def plan(self, number: int) -> Plan:
        return draw_plan(self.subjects[number % len(self.subjects)], number)


@dataclass(frozen=True, slots=True)
class SimulatedRuns:
    """See ``Runs``. Nothing outlives a runner, so it may be killed at any moment."""

    simulate: Simulate
    limit_s: float = SEED_LIMIT_S
    closes_within_s: float = 0.0

    def open(self, lane: Lane) -> SimulatedRunner:
        return SimulatedRunner(self.simulate, lane.code)


@dataclass(frozen=True, slots=True)
class SimulatedRunner:
    """See ``Runner``."""

    simulate: Simulate
    code: str

    def run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        before = entered.total
        probes.clear()
        outcome = self.simulate(plan, order=probes.are_in_force)
        report = report_of(number, outcome)
        if probes.are_in_force:
            pairs = (feature(">".join(pair)) for pair in outcome.order)
            report = msgspec.structs.replace(report, features=packed({*probes.features(), *pairs}))
        if entered.total > before:
            seen = {**report.sometimes, CHANGE_ENTERED: entered.total - before}
            report = msgspec.structs.replace(report, sometimes=seen)
        if again or not report.violations:
            return Ran(report)
        return Ran(report, evidence_of(plan, outcome, code=self.code))

    def close(self) -> None:
        return
