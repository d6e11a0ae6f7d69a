"""The door of a campaign: a plan goes in, and what became of its run comes out.

A campaign draws plans, hands them to workers and keeps what it finds, whatever runs them. What does
is ``Runs``, of which there are two: simulated.py, in memory and in virtual time, the same run as
often as one likes; and real/runs.py, on clusters of real nodes that are kept warm, where a run is
one of many that the same plan may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shalott.core.plan import Plan
from shalott.harness.run.store import RunDirectory
from shalott.harness.search.findings import SeedReport


class Evidence(Protocol):
    """What proves a finding, until somebody decides whether it is kept."""

    def keep(self, place: RunDirectory, command: str) -> None:
        """Store it there; ``command`` repeats it. Raises StoreError."""
        ...

    def drop(self) -> None:
        """Nobody wants it."""
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
        """``again``: it was run before, and no evidence is wanted. Whatever goes wrong in the
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
