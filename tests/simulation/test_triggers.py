"""Triggers in the simulation: a fault in its moment finds at once what random times hardly do.

KB-RMQ-22 promotes a mirror that is not synchronised when its master crashes. What it loses is lost
only in the few milliseconds that a synchronisation takes.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest

from shalott.checkers.history.faults import decode_object
from shalott.core.plan import FaultAction, Plan, Trigger
from shalott.core.rng import Stream
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate

pytestmark = pytest.mark.sim

SYNCHRONISING = Trigger(kind="observed", what="synchronising")
RANDOM_SEEDS = range(1, 6)


def base(seed: int, bug: str) -> Plan:
    request = Request(
        profile="safe",
        nodes="2",
        concurrency="4",
        rate=40,
        time_limit="9",
        nemesis="none",
        bug=(bug,) if bug else (),
        given={"partition-mode": "ignore"},
    )
    return make_plan(request, backend="sim", seed=seed)


def fault(number: int, kind: str, at_ms: int, duration_ms: int, **more: Any) -> FaultAction:
    return FaultAction(id=number, kind=kind, at_ms=at_ms, duration_ms=duration_ms, **more)


def two_kills(seed: int, at_ms: int, when: Trigger | None, bug: str = "KB-RMQ-22") -> Plan:
    """The mirror is killed and comes back; the master is killed at some time after that."""
    mirror = fault(1, "kill", 2000, 1500, target="n2", nodes=("n2",))
    master = fault(2, "kill", at_ms, 2000, target="master", seed=seed, when=when or msgspec.UNSET)
    return msgspec.structs.replace(base(seed, bug), faults=(mirror, master))


@functools.cache
def run(seed: int, at_ms: int, when: Trigger | None, bug: str = "KB-RMQ-22") -> SimOutcome:
    outcome = simulate(two_kills(seed, at_ms, when, bug))
    assert outcome.error is None
    return outcome


def rows(outcome: SimOutcome, f: str) -> list[dict[str, Any]]:
    found = outcome.history.ops.to_pylist()
    return [row | {"extra": decode_object(row["extra"])} for row in found if row["f"] == f]


def test_a_kill_while_a_synchronisation_runs_finds_the_bug_in_one_run() -> None:
    outcome = run(1, 3000, SYNCHRONISING)
    assert outcome.valid is False and "lost" in outcome.anomalies
    (waited,) = rows(outcome, "trigger")
    assert waited["extra"]["fired"] and waited["extra"]["late_ms_at_most"] == 0
    assert waited["extra"]["noticed_by"] == "an event, at once"
    assert waited["invoke_ns"] < waited["complete_ns"]
    kill = rows(outcome, "kill")[1]
    assert kill["invoke_ns"] - waited["complete_ns"] < 50_000_000, "the master is asked for first"
    assert kill["extra"]["trigger"] == "synchronising"


def test_the_sound_broker_is_valid_under_the_same_plan() -> None:
    assert run(1, 3000, SYNCHRONISING, "").valid is True


def test_random_times_hardly_find_it() -> None:
    """One of 50 seeds did when this was written; a few are run here."""
    times = {seed: 3000 + Stream(seed, "time of the kill").below(3500) for seed in RANDOM_SEEDS}
    found = [seed for seed, at_ms in times.items() if "lost" in run(seed, at_ms, None).anomalies]
    assert len(found) <= 1


def test_it_repeats_and_a_plan_as_it_was_run_says_when_it_fired() -> None:
    first = run(1, 3000, SYNCHRONISING)
    again = simulate(two_kills(1, 3000, SYNCHRONISING))
    assert again.digest == first.digest
    when = first.plan.faults[1].when
    assert when is not msgspec.UNSET and isinstance(when.fired_ms, int)
    assert 3000 <= when.fired_ms < 9000
    as_it_was_run = simulate(first.plan)
    assert as_it_was_run.valid is False
    assert as_it_was_run.plan == first.plan


def test_power_goes_right_after_a_sync() -> None:
    when = Trigger(kind="syncs", node="n1", count=3)
    power = fault(1, "power", 2000, 1500, target="n1", nodes=("n1",), when=when)
    outcome = simulate(msgspec.structs.replace(base(1, ""), faults=(power,)))
    (waited,) = rows(outcome, "trigger")
    (lost,) = rows(outcome, "power")
    assert waited["extra"]["seen"] == "3 syncs of n1"
    assert lost["extra"]["effective_ns"] - waited["complete_ns"] < 1000, "in the same instant"


def test_what_does_not_come_is_a_skipped_fault() -> None:
    when = Trigger(kind="event", what="promoted", node="n2", within_ms=1000)
    waiting = fault(1, "kill", 2000, 1500, target="n1", nodes=("n1",), when=when)
    outcome = simulate(msgspec.structs.replace(base(1, ""), faults=(waiting,)))
    (skipped,) = rows(outcome, "kill")
    assert skipped["extra"]["skipped"].endswith("did not fire within 1000 ms")
    assert outcome.valid == "unknown", "nothing was broken"
