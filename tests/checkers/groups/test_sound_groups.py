"""Consumer groups as RocketMQ lets them be: whatever happens here breaks no promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.checkers.groups.group_checkers import PROMISES
from tests.checkers.groups.telling import (
    BROADCAST,
    CONCURRENT,
    ORDERLY,
    QUEUE,
    TAGGED,
    Told,
    broken,
    dead,
    judged,
    retry,
)

pytestmark = pytest.mark.unit


def plain() -> Told:
    """Six messages, one member, committed."""
    told = Told(CONCURRENT).sends(6).member("c.1").assigned("c.1")
    return told.consumes("c.1", 0, 6, 2.0).commits("c.1", 6, 5.0)


def rebalanced() -> Told:
    """The second member takes the queue at the commit, and again has what was done since."""
    told = Told(CONCURRENT).sends(6).member("c.1").member("c.2", 3.0)
    told.assigned("c.1", end=4.0, ended="rebalanced").consumes("c.1", 0, 4, 2.0)
    told.commits("c.1", 2, 2.5).assigned("c.2", 4.5, offset=2)
    return told.consumes("c.2", 2, 6, 5.0).commits("c.2", 6, 7.0)


def owned_by_two() -> Told:
    """Members do not hear of each other at the same time."""
    told = Told(CONCURRENT).sends(6).member("c.1").member("c.2", 3.0)
    told.assigned("c.1", end=8.0, ended="rebalanced").consumes("c.1", 0, 2, 2.0)
    told.given("c.1", 102, 2, 6.0, "success", took=1.0).assigned("c.2", 4.5)
    told.consumes("c.2", 0, 6, 6.2).commits("c.2", 6, 9.5)
    return told


def died() -> Told:
    """Nobody saw how its last message ended."""
    told = Told(CONCURRENT).sends(6).member("c.1", end=3.0, ended="died")
    told.assigned("c.1", end=3.0, ended="died").consumes("c.1", 0, 2, 2.0)
    told.given("c.1", 102, 2, 2.9, "", took=None)
    told.member("c.2", 10.0).assigned("c.2", 10.5)
    return told.consumes("c.2", 0, 6, 11.0).commits("c.2", 6, 12.0)


def failed_over() -> Told:
    """A new master's copy of the offsets is as old as they may be."""
    told = Told(CONCURRENT).sends(20).member("c.1")
    told.assigned("c.1", end=40.0, ended="rebalanced").consumes("c.1", 0, 20, 4.0)
    told.commits("c.1", 5, 5.0).commits("c.1", 20, 28.0).failover(30.0)
    told.member("c.2", 35.0).assigned("c.2", 41.0, offset=5)
    return told.consumes("c.2", 5, 20, 42.0).commits("c.2", 20, 45.0)


def reset_back() -> Told:
    told = Told(CONCURRENT).sends(6).member("c.1").assigned("c.1", end=10.0, ended="rebalanced")
    told.consumes("c.1", 0, 6, 2.0).commits("c.1", 6, 5.0).reset("c", 9.0, 0)
    told.commits("c.1", 0, 9.9).assigned("c.1", 10.1)
    return told.consumes("c.1", 0, 6, 11.0).commits("c.1", 6, 15.0)


def reset_forward() -> Told:
    """What the operator passes over is nobody's fault."""
    told = Told(CONCURRENT).sends(6).member("c.1").assigned("c.1", end=4.0, ended="rebalanced")
    told.consumes("c.1", 0, 2, 2.0).commits("c.1", 2, 3.0).reset("c", 3.5, 6)
    return told.assigned("c.1", 9.0, offset=6)


def reset_of_nobodys_queue() -> Told:
    """The operator's word goes to members: a queue that none of them has stays as it was."""
    told = Told(CONCURRENT).sends(6).member("c.1").assigned("c.1", end=4.0, ended="rebalanced")
    told.consumes("c.1", 0, 2, 2.0).commits("c.1", 2, 3.0).reset("c", 6.0, 6)
    told.assigned("c.1", 9.0, offset=2)
    return told.consumes("c.1", 2, 6, 9.5).commits("c.1", 6, 15.0)


def committed_in_trouble() -> Told:
    """By its route a client may tell a broker that is master no more, and nobody copies that."""
    told = Told(CONCURRENT).sends(6).member("c.1").assigned("c.1", end=6.0, ended="rebalanced")
    told.consumes("c.1", 0, 6, 2.0).commits("c.1", 2, 3.0)
    told.story.fault(1, "partition", 4.5, 8.0, nodes=("n1", "n2"))
    told.commits("c.1", 6, 5.5).assigned("c.1", 20.0, offset=2)
    return told.consumes("c.1", 2, 6, 20.5).commits("c.1", 6, 25.0)


def begun_at_the_end() -> Told:
    told = Told(CONCURRENT).sends(6).member("c.1", 9.0).assigned("c.1", 10.0, offset=4, why="last")
    return told.consumes("c.1", 4, 6, 11.0).commits("c.1", 6, 15.0)


def retried_to_death() -> Told:
    """Two retries, each after its delay, and one dead letter."""
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later")
    told.sent_back("c.1", 200, 6, 6.2).assigned("c.1", key=retry("c"))
    told.log(retry("c"), 200, 200).log(dead("c"), 200).commits("c.1", 7, 8.0)
    for number, at in ((0, 7.3), (1, 8.6)):
        key, times = retry("c"), number + 1
        told.given("c.1", 200, number, at, "later", reconsumed=times, key=key)
        told.sent_back("c.1", 200, number, at + 0.1, reconsumed=times, key=key)
    return told.commits("c.1", 2, 20.0, key=retry("c"))


def retried_here() -> Told:
    """What could not be sent back is given to the listener again."""
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later")
    told.sent_back("c.1", 200, 6, 6.2, kind="info").given("c.1", 200, 6, 11.2)
    return told.commits("c.1", 7, 12.0).log(retry("c"), 200).commits("c.1", 1, 13.0, key=retry("c"))


def waiting_for_its_delay() -> Told:
    """At the end it is not due yet."""
    told = plain().send(200, 60.0).given("c.1", 200, 6, 60.1, "later")
    return told.sent_back("c.1", 200, 6, 60.2, level=3).commits("c.1", 7, 61.0)


def delayed() -> Told:
    told = plain().send(200, 6.0, delay=2).given("c.1", 200, 6, 11.2).commits("c.1", 7, 12.0)
    return told.send(201, 63.5, delay=3, logged=False)


def in_order() -> Told:
    """Suspended, and the next owner has the lock of one that died a minute ago."""
    told = Told(ORDERLY).sends(6).member("o.1", end=4.0, ended="died").locks("o.1", 0.55)
    told.assigned("o.1", end=4.0, ended="died").given("o.1", 100, 0, 2.0, "suspend")
    told.given("o.1", 100, 0, 3.0, "suspend").given("o.1", 100, 0, 3.5).commits("o.1", 1, 3.8)
    told.given("o.1", 101, 1, 3.9, "", took=None)
    told.member("o.2", 3.0).locks("o.2", 5.0, held=False).locks("o.2", 61.0)
    return told.assigned("o.2", 61.1, offset=1).consumes("o.2", 1, 6, 61.2).commits("o.2", 6, 62)


def handed_over() -> Told:
    """An owner that gives its queue up unlocks it."""
    told = Told(ORDERLY).sends(6).member("o.1").locks("o.1", 0.55).member("o.2", 3.0)
    told.assigned("o.1", end=4.0, ended="rebalanced").consumes("o.1", 0, 3, 2.0)
    told.commits("o.1", 3, 3.9).locks("o.2", 4.1).assigned("o.2", 4.2, offset=3)
    return told.consumes("o.2", 3, 6, 4.5).commits("o.2", 6, 7)


def two_after_failover() -> Told:
    """A new master knows of no locks, so two may work at once until the old owner asks again."""
    told = Told(ORDERLY).sends(6).member("o.1").locks("o.1", 9.0).member("o.2", 8.0)
    told.assigned("o.1", 9.1, end=16.0, ended="lock-lost").consumes("o.1", 0, 1, 9.5)
    told.failover(10.0).locks("o.2", 12.0).assigned("o.2", 12.1)
    told.given("o.1", 101, 1, 12.5, "dropped", took=2.0).consumes("o.2", 0, 6, 13.0, each=0.3)
    return told.commits("o.2", 6, 17.0)


def filtered() -> Told:
    told = Told(TAGGED).send(100, 1.0).send(101, 1.1, tag="y").send(102, 1.2).member("a.1")
    told.assigned("a.1").given("a.1", 100, 0, 2.0).given("a.1", 102, 2, 2.1)
    return told.commits("a.1", 3, 5.0)


def to_everybody() -> Told:
    """The one that died had not come to the last ones."""
    told = Told(BROADCAST).sends(6).member("b.1").assigned("b.1", why="first")
    told.consumes("b.1", 0, 6, 2.0).member("b.2", end=3.0, ended="died")
    told.assigned("b.2", end=3.0, why="first", ended="died").consumes("b.2", 0, 3, 2.0)
    return told.member("b.3", 9.0).assigned("b.3", 9.5, offset=2).consumes("b.3", 2, 6, 10.0)


def slow() -> Told:
    """It goes on to the end, and has not come to its end."""
    told = Told(CONCURRENT, stuck_after_ms=2000).sends(60).member("c.1").assigned("c.1")
    told.consumes("c.1", 0, 45, 20.0, each=1.0).commits("c.1", 45, 64.9)
    return told


def unfinished() -> Told:
    """Nobody lived long enough after the heal: what waits is pending."""
    told = Told(CONCURRENT).sends(6).member("c.1", end=3.0, ended="died")
    told.assigned("c.1", end=3.0, ended="died").consumes("c.1", 0, 2, 2.0)
    return told.commits("c.1", 2, 2.9)


SOUND: dict[str, tuple[Callable[[], Told], dict[str, int]]] = {
    "plain": (plain, {"consumed": 6}),
    "rebalanced": (rebalanced, {"consumed": 6}),
    "owned-by-two": (owned_by_two, {"consumed": 6}),
    "died": (died, {"consumed": 6}),
    "failed-over": (failed_over, {"consumed": 20}),
    "reset-back": (reset_back, {"consumed": 6}),
    "reset-forward": (reset_forward, {"consumed": 2, "passed-over": 4}),
    "reset-of-nobodys-queue": (reset_of_nobodys_queue, {"consumed": 6}),
    "committed-in-trouble": (committed_in_trouble, {"consumed": 6}),
    "begun-at-the-end": (begun_at_the_end, {"consumed": 2, "passed-over": 4}),
    "retried-to-death": (retried_to_death, {"consumed": 6, "dead-lettered": 1}),
    "retried-here": (retried_here, {"consumed": 7}),
    "waiting-for-its-delay": (waiting_for_its_delay, {"consumed": 6, "pending": 1}),
    "delayed": (delayed, {"consumed": 7, "pending": 1}),
    "in-order": (in_order, {"consumed": 6}),
    "handed-over": (handed_over, {"consumed": 6}),
    "two-after-failover": (two_after_failover, {"consumed": 6}),
    "filtered": (filtered, {"consumed": 2, "filtered": 1}),
    "to-everybody": (to_everybody, {}),
    "unfinished": (unfinished, {"consumed": 2, "pending": 4}),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_run_is_valid(name: str) -> None:
    make, fates = SOUND[name]
    results = judged(make())
    assert {name: result.anomalies for name, result in results.items() if result.anomalies} == {}
    assert {name for name, result in results.items() if result.valid is not True} == set()
    counts = results["group-fates"].counts
    found = {name: counts[f"{name}-count"] for name in _FATES if counts[f"{name}-count"]}
    assert found == fates


_FATES = (
    *("filtered", "consumed", "dead-lettered", "pending", "unread", "lost", "consumed-unsure"),
    *("retry-lost", "passed-over", "skipped"),
)


def test_every_promise_has_a_checker() -> None:
    assert list(judged(plain())) == [promise.name for promise in PROMISES]


def test_what_was_not_read_is_not_known() -> None:
    told = plain().send(200, 6.0).commits("c.1", 7, 8.0)
    assert set(broken(told, unread=(QUEUE,))) == {"group-fates", "group-not-skipped"}
    assert set(broken(plain().send(200, 6.0), untold=("c",))) == {
        "group-fates",
        "group-not-skipped",
    }


def test_a_group_that_is_slow_is_not_stuck() -> None:
    assert broken(slow()) == {"group-liveness": ()}  # it did not have the time


def test_causes_are_counted() -> None:
    redeliveries = judged(rebalanced())["group-redelivery"].counts
    assert redeliveries["redelivered-count"] == redeliveries["by-rebalanced-count"] == 2
    both = judged(owned_by_two())["group-redelivery"].counts
    assert both["twice-at-once-count"] == 1 and both["by-two-owners-count"] == 3
    turned = judged(failed_over())["group-redelivery"].counts
    assert turned["by-failover-count"] == 15


@pytest.mark.parametrize(("end", "kinds"), [(54.0, ()), (60.0, ("unexplained",))])
def test_a_member_that_is_leaving_has_others_share_a_queue(
    end: float, kinds: tuple[str, ...]
) -> None:
    """Its end is written down when it has told the broker, which they hear before."""
    told = Told(CONCURRENT).sends(3, at=50.0).member("c.1").member("c.2", 3.0)
    told.member("c.3", 3.0, end=end, ended="left").assigned("c.1").assigned("c.2", 4.0)
    told.consumes("c.1", 0, 3, 50.5).consumes("c.2", 0, 3, 51.0).commits("c.1", 3, 52.0)
    assert broken(told).get("group-redelivery", ()) == kinds
