"""A toy in the place of real nodes: runs that fail now and then, and a harness that does.

Whether a run of a plan fails is the next of the outcomes that a script gives for it, so that a test
knows what comes. Nothing is booted. ``ScriptedRuns`` is the door's third implementation, for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shalott.core.plan import Plan, dump_plan
from shalott.harness.run.store import PLAN, RunDirectory
from shalott.harness.search.door import Lane, Ran
from shalott.harness.search.findings import RealFacts, SeedReport

# What becomes of a run: it fails, passes, proves nothing, is starved, or the harness fails.
FAILS, PASSES, UNKNOWN, STARVED, BROKEN = "fails", "passes", "unknown", "starved", "broken"
STOOD_STILL = (
    "The harness stood still for 9.0 s of the load's 10.0 s: what was seen proves nothing."
)


@dataclass(frozen=True, slots=True)
class ToyEvidence:
    """Of a plan. See ``door.Evidence``."""

    plan: Plan

    def keep(self, place: RunDirectory, command: str) -> None:
        place.path.mkdir(parents=True)
        (place.path / PLAN).write_bytes(dump_plan(self.plan))

    def drop(self) -> None:
        return


@dataclass
class ScriptedRuns:
    """See ``door.Runs``. ``outcome``: (plan, how often it ran before) -> one of the words above.
    ``ran``: every run, by its plan's seed and whether it was a repetition."""

    outcome: Callable[[Plan, int], str]
    ran: list[tuple[int, bool]] = field(default_factory=list)
    closed: int = 0
    limit_s: float = 60.0
    closes_within_s: float = 5.0
    _times: dict[bytes, int] = field(default_factory=dict)

    def open(self, lane: Lane) -> ScriptedRuns:
        return self

    def close(self) -> None:
        self.closed += 1

    def run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        key = dump_plan(plan)
        before = self._times.get(key, 0)
        self._times[key] = before + 1
        self.ran.append((plan.seed, again))
        word = self.outcome(plan, before)
        report = report_for(number, word, warm=len(self.ran) > 1)
        return Ran(report, ToyEvidence(plan) if word in (FAILS, STARVED) and not again else None)


def report_for(number: int, word: str, *, warm: bool = True) -> SeedReport:
    """A starved run has all that a failure has, but for its worth."""
    looks_bad = word in (FAILS, STARVED)
    return SeedReport(
        seed=number,
        valid="unknown" if word in (UNKNOWN, BROKEN) else not looks_bad,
        violations=("lost", "reordered") if looks_bad else (),
        wall_s=30.0,
        reasons=("Too few operations.",) if word == UNKNOWN else (),
        error="tearing down: no engine answers" if word == BROKEN else None,
        real=RealFacts(
            warm=warm,
            phases_ms={"boot": 9000 if warm else 12_000, "load": 20_000},
            start_ms=1000,
            starved=STOOD_STILL if word == STARVED else "",
        ),
    )


@dataclass(frozen=True, slots=True)
class OrderlyRuns:
    """Runs in real processes that write down that they were closed. See ``door.Runs``."""

    place: Path
    limit_s: float = 60.0
    closes_within_s: float = 30.0

    def open(self, lane: Lane) -> OrderlyRunner:
        return OrderlyRunner(self.place / f"closed-{lane.number}")


@dataclass(frozen=True, slots=True)
class OrderlyRunner:
    """See ``door.Runner``."""

    mark: Path

    def run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        return Ran(report_for(number, PASSES))

    def close(self) -> None:
        self.mark.write_text("closed")


def script(*words: str) -> Callable[[Plan, int], str]:
    """These one after the other, for every plan; the last one for ever."""
    coming: Iterator[str] = iter(words)
    last = [words[-1]]

    def outcome(plan: Plan, before: int) -> str:
        return next(coming, last[0])

    return outcome
