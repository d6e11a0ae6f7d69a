"""elections: one planted failure an invariant, and what is no failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from checkers.base import Result
from checkers.elections import KINDS, Elections
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def elected(
    told: Story, at: float, master: str, epoch: int, *, node: str = "n1", **more: Any
) -> Story:
    """By the controller on ``node``: the set is the master alone, unless it is told again."""
    members = {"set": [master] if master else ["n2", "n1"], **more}
    return told.event(node, at, "elected", "", epoch, master=master, **members)


def changed(
    told: Story, at: float, members: Sequence[str], master: str, epoch: int = 9, node: str = "n1"
) -> Story:
    return told.event(node, at, "set_changed", "", epoch, master=master, set=list(members))


def heard_set(told: Story, members: Sequence[int]) -> Story:
    """The controllers decide on {2} in the set's epoch 7, n2 hears ``members``."""
    elected(told, 40, "n2", 3, set_ids=[2], set_epoch=7).role("n2", 40.1, "master", 3)
    told.event("n2", 40.2, "set_changed", "master", 3, set=list(members))
    told.events[-1]["detail"]["epoch"] = 7  # the set's
    return told


def routed(told: Story, *masters: tuple[str, int]) -> Story:
    """What the name server of n3 believes, one after the other."""
    for number, (address, epoch) in enumerate(masters):
        told.event("n3", 30 + number, "route", "", epoch, master=address)
    return told


def good() -> Story:
    """n1 is elected and gathers a set, is killed at 10 s, and n2 follows from that set."""
    told = Story().phases().fault(1, "kill", 10, 20, ["n1"])
    elected(told, 1, "n1", 1).role("n1", 1.1, "master", 1).role("n2", 1.2, "slave", 1)
    changed(told, 2, ["n1", "n2"], "n1").acked("n1", 1.5, 9.9, 1)
    elected(told, 12, "n2", 2, node="n3").role("n2", 12.1, "master", 2)
    told.role("n3", 12.2, "slave", 2).acked("n2", 12.5, 59, 2)
    told.role("n1", 20, "slave", 2, incarnation=2)
    told.event("n2", 20.9, "set_changed", "master", 2, set=[2])
    return changed(told, 21, ["n2", "n1"], "n2", node="n3")


def check(told: Story, *, unclean: bool = False) -> Result:
    return Elections(unclean=unclean).check(told.history())


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
    "two-masters-in-epoch": lambda: good().role("n3", 30, "master", 2),
    "epoch-regression": lambda: good().role("n3", 30, "slave", 1),
    "elected-outside-set": lambda: elected(good(), 40, "n3", 3),
    "fenced-alteration": lambda: changed(good(), 30, ["n1", "n3"], "n1"),
    "set-without-master": lambda: changed(good(), 30, ["n1", "n3"], "n2"),
    "acked-while-deposed": lambda: good().acked("n1", 12, 14, 1),
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
    (anomaly,) = check(PLANTED["elected-outside-set"]()).anomalies
    assert anomaly.summary == (
        "n3 was elected master of q for epoch 3 from outside of the SyncStateSet {n2, n1};"
        " at 40.0 s, after 1 kill n1"
    )
    (anomaly,) = check(PLANTED["acked-while-deposed"]()).anomalies
    assert anomaly.summary.startswith(
        "n1 acknowledged writes of q in epoch 1 for 1.50 s after n2 had begun to in epoch 2"
    )


def test_two_elections_of_one_epoch_are_found() -> None:
    assert kinds(check(elected(good(), 12.5, "n3", 2))) == [
        "two-masters-in-epoch",
        "elected-outside-set",
        "fenced-alteration",
    ]


def test_an_election_for_a_lower_epoch_is_a_regression() -> None:
    assert "epoch-regression" in kinds(check(elected(good(), 40, "n2", 1)))


def test_an_unclean_election_is_no_failure_where_it_is_allowed() -> None:
    assert check(PLANTED["elected-outside-set"](), unclean=True).valid is True
    assert check(elected(good(), 40, "n3", 3, unclean=True)).valid is True


def test_a_new_leader_tells_the_last_election_again_and_the_set_as_it_is() -> None:
    told = elected(good(), 40, "n2", 2, set=["n2", "n1", "n3"], node="n2")
    assert check(elected(told, 42, "n3", 3)).valid is True


def test_the_set_outlives_a_master_that_is_given_up() -> None:
    told = elected(good(), 40, "", 3)
    assert check(elected(told, 42, "n1", 4)).valid is True
    assert kinds(check(elected(told, 43, "n3", 5))) == ["elected-outside-set"]


def test_acknowledgements_within_the_tolerance_are_no_news() -> None:
    assert check(good().acked("n1", 12, 12.55, 1)).valid is True


def test_a_group_without_a_master_for_a_while_is_none() -> None:
    assert check(elected(good(), 40, "", 3)).valid is True


def test_without_epochs_none_is_shared() -> None:
    told = Story().phases().role("n1", 1, "master", 0).role("n2", 30, "master", 0)
    assert check(told).valid is True


def test_groups_are_judged_apart() -> None:
    told = good().role("n3", 30, "master", 2, group="other")
    assert check(told).valid is True
