"""elections: one planted failure a rule, and what is no failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.mastership.elections import KINDS, Elections
from tests.checkers.histories import Story
from tests.checkers.mastership.elections_story import elected, good

pytestmark = pytest.mark.unit


def heard_set(told: Story, members: Sequence[int]) -> Story:
    """The controllers decide on {2} in the set's epoch 7, n2 hears ``members``."""
    elected(told, 40, "n2", 3, 7).role("n2", 40.1, "master", 3)
    told.event("n2", 40.2, "set_changed", "master", 3, set=list(members))
    told.events[-1]["detail"]["epoch"] = 7  # the set's
    return told


def routed(told: Story, *masters: tuple[str, int]) -> Story:
    """What the name server of n3 believes, one after the other."""
    for number, (address, epoch) in enumerate(masters):
        told.event("n3", 30 + number, "route", "", epoch, master=address)
    return told


def check(told: Story) -> Result:
    return Elections().check(told.history())


def kinds(result: Result) -> list[str]:
    return [anomaly.kind for anomaly in result.anomalies]


def test_a_failover_from_the_set_is_valid() -> None:
    result = check(good())
    assert result.valid is True and not result.anomalies
    assert (result.counts["election-count"], result.counts["epoch-max"]) == (2, 2)
    assert all(result.counts[f"{kind}-count"] == 0 for kind in KINDS)


def test_without_any_word_of_a_master_nothing_is_judged() -> None:
    assert check(Story().phases()).valid == "unknown"


PLANTED: dict[str, Callable[[], Story]] = {
    "epoch-regression": lambda: good().role("n3", 30, "slave", 1),
    "acked-while-deposed": lambda: good().acked("n1", 22, 24, 1),
    "wrong-set": lambda: heard_set(good(), [1, 2]),
    "confirm-regression": lambda: good().event("n2", 30, "confirm_lowered", "master", 2, to=0),
    "route-regression": lambda: routed(good(), ("n2:1", 2), ("n1:1", 1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_planted_failure_is_found_alone(kind: str) -> None:
    result = check(PLANTED[kind]())
    assert kinds(result) == [kind]
    assert result.valid is False and result.counts[f"{kind}-count"] == 1
    assert " s, " in result.anomalies[0].summary and result.anomalies[0].detail["events"]


def test_what_was_heard_right_is_valid() -> None:
    assert check(heard_set(good(), [2])).valid is True
    assert check(routed(good(), ("n1:1", 1), ("n2:1", 2))).valid is True


def test_a_route_may_go_back_when_the_later_master_left() -> None:
    assert check(routed(good(), ("n2:1", 2), ("", 0), ("n1:1", 1))).valid is True


def test_sentences_are_in_the_domains_words() -> None:
    (anomaly,) = check(PLANTED["acked-while-deposed"]()).anomalies
    assert anomaly.summary.startswith(
        "n1 acknowledged writes of q in epoch 1 for 2.00 s after n2 had begun to in epoch 2"
    )


def test_an_election_for_a_lower_epoch_is_a_regression() -> None:
    assert "epoch-regression" in kinds(check(elected(good(), 40, "n2", 1, 5)))


def test_acknowledgements_within_the_tolerance_are_no_news() -> None:
    assert check(good().acked("n1", 22, 22.05, 1)).valid is True


def late_line(stood_s: float) -> Result:
    """n1 answers what waits, at 19.95 s of its own time, and tells of it at 24 s of the run."""
    told, boot = good(), 1000 - stood_s
    told.event("n1", 23.9, "set_changed", "master", 1, boot=boot, set=[1, 2])
    own_ns = round((22.95 + boot) * 1e9)
    told.event("n1", 24, "acked", "master", 1, boot=boot, first_ns=own_ns, last_ns=own_ns, count=1)
    return check(told)


def test_a_node_whose_time_stood_still_may_have_answered_before() -> None:
    assert kinds(late_line(0)) == ["acked-while-deposed"]
    assert late_line(3).valid is True
