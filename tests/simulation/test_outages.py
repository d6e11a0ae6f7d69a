"""A node that stays away: the others serve without it, and a broker that waits for it is found."""

from __future__ import annotations

import pytest

from shalott.broker.raft.state import State
from shalott.core.plan import Plan
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import draw_plan, plain_subject

pytestmark = pytest.mark.sim
SEEDS = range(1, 61)


def outages(system: str) -> list[Plan]:
    plans = [draw_plan(plain_subject(system, "safe"), seed) for seed in SEEDS]
    return [plan for plan in plans if plan.gates.max_rto_ms is not None]


@pytest.mark.parametrize("system", ["mirrored", "dledger", "controller"])
def test_in_some_runs_one_node_stays_away(system: str) -> None:
    plans = outages(system)
    assert 1 <= len(plans) <= 10
    for plan in plans:
        assert plan.gates.max_rto_ms is not None
        (outage,) = plan.faults
        assert outage.settle and outage.duration_ms > plan.gates.max_rto_ms
        assert outage.at_ms + outage.duration_ms < plan.time_limit_ms


def test_a_master_that_nobody_can_replace_is_never_missed_for_long() -> None:
    assert outages("master-slave") == []


def test_a_group_that_needs_all_its_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the node is back nothing is wrong with it."""
    plan = outages("dledger")[0]
    assert simulate(plan, stop_early=False).valid is True
    monkeypatch.setattr(State, "quorum", property(lambda self: len(self.members)))
    outcome = simulate(plan, stop_early=False)
    assert outcome.valid is False and "unavailable" in outcome.anomalies
