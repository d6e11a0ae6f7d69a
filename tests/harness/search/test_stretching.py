"""Simulated plans at the pace of real nodes: what came in order still does, and is long enough."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import FaultAction, Plan, Trigger
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.scenarios.swarm import draw_plan, plain_subject
from shalott.harness.search import replay as replay_module
from shalott.harness.search.replay import run_trials
from shalott.harness.search.stretching import AFTER_MS, BEFORE_MS, SEEN_MS, stretched
from shalott.nemesis.record import FAULTS
from shalott.nemesis.targets import THERE

pytestmark = pytest.mark.unit

replace = msgspec.structs.replace
SHORT = (
    FaultAction(id=1, at_ms=300, duration_ms=200, kind="partition-one", target="n1", nodes=("n1",)),
    FaultAction(id=2, at_ms=400, duration_ms=300, kind="kill", target="n2", nodes=("n2",)),
    FaultAction(id=3, at_ms=750, duration_ms=50, kind="delay", nodes=("n3",), amount=50),
)


def minimal(system: str, *faults: FaultAction) -> Plan:
    """As a shrinker leaves it: a second long, an operation a second."""
    drawn = draw_plan(plain_subject(system, "safe"), 1)
    return replace(
        drawn,
        time_limit_ms=1000,
        faults=faults or SHORT,
        workload=replace(drawn.workload, rate_hz=1.0),
    )


def times(plan: Plan) -> list[tuple[int, str, int]]:
    begins = [(a.at_ms, "begins", a.id) for a in plan.faults]
    return sorted(begins + [(a.at_ms + a.duration_ms, "ends", a.id) for a in plan.faults])


@pytest.mark.parametrize("system", ["mirrored", "dledger", "controller", "master-slave"])
@pytest.mark.parametrize("trial", range(4))
def test_order_stays_and_everything_is_long_enough(system: str, trial: int) -> None:
    before = minimal(system)
    after = stretched(before, trial)
    check_plan(after)
    assert [what for _, *what in times(after)] == [what for _, *what in times(before)]
    needed_ms = SYSTEMS.find(system).notices_after_ms(before)
    for action in after.faults:
        silent = not FAULTS.find(action.kind).is_calm
        assert action.duration_ms >= (needed_ms if silent else 0.7 * SEEN_MS), action
    gaps = [b - a for (a, *_), (b, *_) in zip(times(after), times(after)[1:], strict=False)]
    assert min(gaps) >= 0.7 * SEEN_MS - 1
    assert times(after)[0][0] >= 0.7 * BEFORE_MS
    assert after.time_limit_ms >= times(after)[-1][0] + AFTER_MS
    assert after.workload.rate_hz >= 20 and after.sim is None


def test_what_is_long_already_is_not_made_shorter() -> None:
    slow = replace(SHORT[1], at_ms=20_000, duration_ms=15_000)
    (after,) = stretched(replace(minimal("dledger", slow), time_limit_ms=60_000)).faults
    assert (after.at_ms, after.duration_ms) == (20_000, 15_000)


def test_a_real_plan_stays_as_it_is() -> None:
    plan = replace(minimal("dledger"), sim=None)
    assert stretched(plan, 3) is plan


def test_trials_differ_and_the_first_is_plain() -> None:
    plan = minimal("mirrored")
    made = [stretched(plan, trial) for trial in range(5)]
    assert len({tuple(times(each)) for each in made}) == 5
    assert stretched(plan, 3) == made[3]


def test_moments_of_the_simulation_become_the_times_at_which_they_came() -> None:
    when = Trigger(kind="disk", what="sync", node="n2", moment="before", count=7)
    until = Trigger(kind="message", what="APPEND")
    event = Trigger(kind="event", what="role", role="master")
    fired = replace(SHORT[1], target=THERE, when=replace(when, fired_ms=520), until=until)
    waits = replace(SHORT[0], when=event)
    first, second = stretched(minimal("dledger", waits, fired)).faults
    assert first.when == event
    assert second.triggers == () and second.target == "n2"
    assert second.at_ms >= first.at_ms + first.duration_ms
    (anybody,) = stretched(minimal("dledger", replace(fired, nodes=None, when=when))).faults
    assert anybody.target == "one" and anybody.triggers == ()


def test_replay_runs_each_trial_at_a_pace_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[Plan] = []

    def run_once(plan: Plan, *_: object) -> int:
        ran.append(plan)
        return 1 if len(ran) == 2 else 0

    monkeypatch.setattr(replay_module, "run_once", run_once)
    assert run_trials(minimal("dledger"), 3, tmp_path, "replay") == 1
    assert len({tuple(times(plan)) for plan in ran}) == 3 and times(ran[0])[0][0] == BEFORE_MS
