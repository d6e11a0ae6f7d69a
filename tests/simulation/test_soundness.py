"""Plans that once showed a fault of this broker under ``safe``, shrunk: they show none any more."""

from __future__ import annotations

import msgspec
import pytest

from shalott.core.plan import Plan, load_plan
from shalott.harness.run.simulate import simulate
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.sim

PLANS = ROOT / "tests" / "simulation" / "plans"


def plan_of(name: str, *bugs: str) -> Plan:
    plan = load_plan(PLANS / f"{name}.json")
    return msgspec.structs.replace(plan, system=msgspec.structs.replace(plan.system, bugs=bugs))


@pytest.mark.parametrize(
    "name",
    [
        "split-views",  # members dropped each other at different times, and never met again
        "one-way-cut",  # two masters confirmed for half a minute
        "replaced-master",  # the log said of a master that was replaced that it acknowledged
        "ring-after-flaps",  # a ring's words by a new link were taken for those lost with the old
    ],
)
def test_what_was_mended_stays_so(name: str) -> None:
    outcome = simulate(plan_of(name))
    assert outcome.error is None
    assert outcome.anomalies == ()
    assert outcome.valid is True


WORLDS = range(1, 7)  # seeds of latencies: which link comes back first is a race


def anomalies(name: str, world: int, *bugs: str) -> tuple[str, ...]:
    plan = plan_of(name, *bugs)
    assert plan.sim is not None
    sim = msgspec.structs.replace(plan.sim, seed=world)
    outcome = simulate(msgspec.structs.replace(plan, sim=sim))
    assert outcome.error is None
    return outcome.anomalies


def test_without_a_quorum_the_views_split_for_good() -> None:
    assert any("stuck" in anomalies("split-views", world, "OUR-08") for world in WORLDS)


def test_with_it_they_meet_again_in_every_world() -> None:
    assert [anomalies("split-views", world) for world in WORLDS] == [()] * len(WORLDS)


def test_after_a_start_of_all_nodes_every_mirror_is_added_whichever_link_comes_last() -> None:
    """Two of these worlds left a queue with one mirror of two for ever."""
    assert [anomalies("late-link", world) for world in WORLDS] == [()] * len(WORLDS)


def test_a_mirror_lost_while_views_differed_comes_back_when_any_node_does() -> None:
    """Under ``ignore`` the operator restarts a side; a node of the other had lost its mirror."""
    outcome = simulate(plan_of("bridged-views"))
    assert outcome.error is None
    assert "lost" in outcome.anomalies  # ``ignore`` loses messages, but no mirrors
    assert "stuck" not in outcome.anomalies
