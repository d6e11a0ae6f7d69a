"""One planted breach of each promise to consumer groups, and the checker that must say so."""

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
    retry,
)
from tests.checkers.groups.test_sound_groups import (
    delayed,
    failed_over,
    handed_over,
    plain,
    retried_to_death,
)

pytestmark = pytest.mark.unit


def lost() -> Told:
    told = plain()
    told.story.row("send", 6.0, value=300, offset=6, extra={"tag": "x"})
    return told


def skipped() -> Told:
    """Nobody was given it, and the offset is behind it."""
    return plain().send(200, 6.0).commits("c.1", 7, 8.0)


def skipped_by_who_dropped_it() -> Told:
    """Its owner gave it up without a word, and had committed more than it had done."""
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "dropped")
    return told.commits("c.1", 7, 8.0)


def skipped_by_move() -> Told:
    """A broker that says that the queue begins later than it does."""
    return plain().send(200, 6.0).moved("c.1", 6.5, 7).commits("c.1", 7, 8.0)


def begun_at_the_end_again() -> Told:
    """A group that was there before has nothing to do at the end of the queue."""
    told = Told(CONCURRENT).sends(6).member("c.1", end=8.0).assigned("c.1", end=8.0)
    told.consumes("c.1", 0, 2, 2.0).commits("c.1", 2, 3.0).member("c.2", 9.0)
    return told.assigned("c.2", 9.5, offset=6, why="last").commits("c.2", 6, 12.0)


def after_commit() -> Told:
    """The next owner began where it should, and was given what was committed long before."""
    told = Told(CONCURRENT).sends(6).member("c.1").member("c.2", 8.0)
    told.assigned("c.1", end=9.0, ended="rebalanced").consumes("c.1", 0, 6, 2.0)
    told.commits("c.1", 6, 3.0).assigned("c.2", 9.5, offset=6)
    return told.given("c.2", 103, 3, 10.0)


def again_for_nothing() -> Told:
    """Its member has had it, and has the queue still."""
    return plain().given("c.1", 102, 2, 20.0)


def again_without_a_failed_answer() -> Told:
    """It was sent back, and that was answered."""
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later")
    told.sent_back("c.1", 200, 6, 6.2).given("c.1", 200, 6, 6.5).log(retry("c"), 200)
    return told.commits("c.1", 7, 8.0).commits("c.1", 1, 9.0, key=retry("c"))


def two_owners_for_long() -> Told:
    """Nothing has changed for minutes, and two members have one queue."""
    told = Told(CONCURRENT).sends(3, at=50.0).member("c.1").member("c.2", 3.0)
    told.assigned("c.1").assigned("c.2", 4.0)
    return told.consumes("c.1", 0, 3, 50.5).consumes("c.2", 0, 3, 51.0).commits("c.1", 3, 52.0)


def lock_of_two() -> Told:
    """The lock is given away 3 s after its owner had asked for it."""
    told = Told(ORDERLY).sends(4).member("o.1").member("o.2", 3.0).locks("o.1", 1.0)
    told.assigned("o.1", 1.1, end=20.0, ended="lock-lost").consumes("o.1", 0, 2, 2.0)
    told.commits("o.1", 2, 3.9).locks("o.2", 4.0).assigned("o.2", 4.1, offset=2)
    return told.consumes("o.2", 2, 4, 5.0).commits("o.2", 4, 7.0)


def work_of_two() -> Told:
    """No broker said so, but both are at work."""
    told = handed_over()
    return told.given("o.1", 104, 4, 4.55, took=0.5)


def backwards() -> Told:
    told = Told(ORDERLY).sends(4).member("o.1").locks("o.1", 0.55).assigned("o.1")
    for offset, at in ((0, 2.0), (2, 2.2), (1, 2.4), (3, 2.6)):
        told.given("o.1", 100 + offset, offset, at)
    return told.commits("o.1", 4, 5.0)


def over_a_suspended_one() -> Told:
    told = Told(ORDERLY).sends(4).member("o.1", end=8.0).locks("o.1", 0.55)
    told.assigned("o.1", end=8.0).given("o.1", 100, 0, 2.0, "suspend")
    told.given("o.1", 101, 1, 2.5).member("o.2", 9.0).locks("o.2", 61.9)
    told.assigned("o.2", 62.0).consumes("o.2", 0, 4, 62.1)
    return told.commits("o.2", 4, 64.0)


def two_at_once() -> Told:
    """One queue, one member, two messages at once."""
    told = Told(ORDERLY).sends(4).member("o.1").locks("o.1", 0.55).assigned("o.1")
    told.given("o.1", 100, 0, 2.0, took=1.0).consumes("o.1", 1, 4, 2.5)
    return told.commits("o.1", 4, 5.0)


def set_back() -> Told:
    """Nothing happened, and the offset is another."""
    told = Told(CONCURRENT).sends(6).member("c.1").member("c.2", 8.0)
    told.assigned("c.1", end=9.0, ended="rebalanced").consumes("c.1", 0, 6, 2.0)
    told.commits("c.1", 2, 2.5).commits("c.1", 6, 3.0)
    return told.assigned("c.2", 9.5, offset=2).commits("c.2", 6, 12.0)


def set_back_at_the_end() -> Told:
    return plain().ends_at("c", 3)


def set_back_too_far() -> Told:
    """The new master's copy is older than a copy may be."""
    told = failed_over()
    told.story.rows = [row for row in told.story.rows if row["f"] != "assignment"]
    told.assigned("c.1", end=40.0, ended="rebalanced").commits("c.1", 12, 12.0)
    return told.assigned("c.2", 41.0, offset=5).ends_at("c", 20)


def committed_back() -> Told:
    return plain().commits("c.1", 4, 7.0).commits("c.1", 6, 9.0)


def commit_not_taken() -> Told:
    return plain().commits("c.1", 6, 50.0, seen=2).ends_at("c", 6)


def begun_anew() -> Told:
    told = Told(CONCURRENT).sends(6).member("c.1").member("c.2", 8.0)
    told.assigned("c.1", end=9.0, ended="rebalanced").consumes("c.1", 0, 6, 2.0)
    told.commits("c.1", 6, 3.0).assigned("c.2", 9.5, offset=0, why="first")
    return told.commits("c.2", 6, 12.0)


def forgotten() -> Told:
    """The master says that it knows of no offset."""
    return plain().ends_at("c", None)


def early_retry() -> Told:
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later").commits("c.1", 7, 8.0)
    told.sent_back("c.1", 200, 6, 6.2, level=2).assigned("c.1", key=retry("c"))
    told.log(retry("c"), 200).given("c.1", 200, 0, 7.3, reconsumed=1, key=retry("c"))
    return told.commits("c.1", 1, 20.0, key=retry("c"))


def retry_that_never_came() -> Told:
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later").commits("c.1", 7, 8.0)
    return told.sent_back("c.1", 200, 6, 6.2)


def retry_without_end() -> Told:
    """The group's limit is 2."""
    told = retried_to_death().log(retry("c"), 200).commits("c.1", 3, 21.0, key=retry("c"))
    return told.given("c.1", 200, 2, 9.9, reconsumed=3, key=retry("c"))


def retry_of_nobody() -> Told:
    """Reconsumed twice, and sent back once."""
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later").commits("c.1", 7, 8.0)
    told.sent_back("c.1", 200, 6, 6.2).assigned("c.1", key=retry("c")).log(retry("c"), 200)
    told.given("c.1", 200, 0, 7.3, reconsumed=2, key=retry("c"))
    return told.commits("c.1", 1, 20.0, key=retry("c"))


def retried_twice_at_once() -> Told:
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later").commits("c.1", 7, 8.0)
    told.sent_back("c.1", 200, 6, 6.2).assigned("c.1", key=retry("c")).log(retry("c"), 200, 200)
    told.given("c.1", 200, 0, 7.3, reconsumed=1, key=retry("c"))
    told.given("c.1", 200, 1, 7.4, reconsumed=1, key=retry("c"))
    return told.commits("c.1", 2, 20.0, key=retry("c"))


def two_dead_letters() -> Told:
    return retried_to_death().log(dead("c"), 200)


def dead_too_soon() -> Told:
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later").commits("c.1", 7, 8.0)
    return told.sent_back("c.1", 200, 6, 6.2).log(dead("c"), 200)


def no_dead_letter() -> Told:
    """Its retries are used up, and there is nothing of it."""
    told = retried_to_death()
    told.logs[dead("c")] = []
    return told


def delayed_too_little() -> Told:
    told = plain().send(200, 6.0, delay=2).given("c.1", 200, 6, 7.2)
    return told.commits("c.1", 7, 12.0)


def delayed_for_ever() -> Told:
    return plain().send(200, 6.0, delay=2, logged=False)


def delayed_twice() -> Told:
    told = delayed().log(QUEUE, 200).given("c.1", 200, 7, 11.5)
    return told.commits("c.1", 8, 20.0)


def not_subscribed() -> Told:
    told = Told(TAGGED).send(100, 1.0).send(101, 1.1, tag="y").member("a.1")
    told.assigned("a.1").given("a.1", 100, 0, 2.0).given("a.1", 101, 1, 2.1)
    return told.commits("a.1", 2, 5.0)


def hole() -> Told:
    told = Told(BROADCAST).sends(6).member("b.1").assigned("b.1", why="first")
    return told.consumes("b.1", 0, 2, 2.0).consumes("b.1", 3, 6, 3.0)


def unseen() -> Told:
    told = Told(BROADCAST).sends(6).member("b.1").assigned("b.1", why="first")
    return told.consumes("b.1", 0, 4, 2.0)


def stuck() -> Told:
    """It lives, it has the queue, and nothing comes."""
    return plain().send(200, 6.0)


def stuck_retry() -> Told:
    told = plain().send(200, 6.0).given("c.1", 200, 6, 6.1, "later").commits("c.1", 7, 8.0)
    return told.sent_back("c.1", 200, 6, 6.2).log(retry("c"), 200)


def phantom() -> Told:
    return plain().send(200, 6.0, kind="fail").given("c.1", 200, 6, 6.5).commits("c.1", 7, 8.0)


def unexpected() -> Told:
    return plain().given("c.1", 999, 6, 6.5).commits("c.1", 7, 8.0)


def corrupted() -> Told:
    told = plain().send(200, 6.0, kind="info").given("c.1", None, 6, 6.5, error="corrupted")
    return told.commits("c.1", 7, 8.0)


def too_early() -> Told:
    return plain().send(200, 6.0).given("c.1", 200, 6, 5.9).commits("c.1", 7, 8.0)


def foreign() -> Told:
    """The group does not subscribe to that topic."""
    told = plain().send(200, 6.0, key="other/0").given("c.1", 200, 0, 6.5, key="other/0")
    return told.assigned("c.1", key="other/0")


PLANTED: dict[str, tuple[Callable[[], Told], dict[str, tuple[str, ...]]]] = {
    "lost": (lost, {"group-fates": ("lost",)}),
    "skipped": (skipped, {"group-not-skipped": ("skipped",)}),
    "skipped-dropped": (skipped_by_who_dropped_it, {"group-not-skipped": ("skipped",)}),
    "skipped-moved": (skipped_by_move, {"group-not-skipped": ("skipped",)}),
    "begun-at-the-end": (
        begun_at_the_end_again,
        {"group-not-skipped": ("skipped",), "spurious-zero": ("spurious-end",)},
    ),
    "after-commit": (after_commit, {"group-redelivery": ("after-commit",)}),
    "again": (again_for_nothing, {"group-redelivery": ("unexplained",)}),
    "again-answered": (again_without_a_failed_answer, {"group-redelivery": ("unexplained",)}),
    "two-owners": (two_owners_for_long, {"group-redelivery": ("unexplained",)}),
    "lock-of-two": (lock_of_two, {"orderly-exclusive": ("lock-of-two",)}),
    "work-of-two": (work_of_two, {"orderly-exclusive": ("work-of-two",)}),
    "backwards": (backwards, {"orderly-order": ("order-back",)}),
    "over": (over_a_suspended_one, {"orderly-order": ("order-over",)}),
    "at-once": (two_at_once, {"orderly-order": ("order-at-once",)}),
    "set-back": (set_back, {"offsets-forward": ("offset-back",)}),
    "set-back-at-the-end": (set_back_at_the_end, {"offsets-forward": ("offset-back",)}),
    "set-back-too-far": (
        set_back_too_far,
        {"group-redelivery": ("after-commit",), "offsets-forward": ("offset-back",)},
    ),
    "committed-back": (committed_back, {"offsets-forward": ("commit-back",)}),
    "not-taken": (commit_not_taken, {"offsets-forward": ("offset-not-taken",)}),
    "begun-anew": (begun_anew, {"spurious-zero": ("spurious-zero",)}),
    "forgotten": (forgotten, {"spurious-zero": ("spurious-zero",)}),
    "early-retry": (early_retry, {"retry-delay": ("retry-early",)}),
    "no-retry": (retry_that_never_came, {"retry-delay": ("retry-lost",)}),
    "over-limit": (retry_without_end, {"retry-count": ("retry-over",)}),
    "unasked": (retry_of_nobody, {"retry-count": ("retry-unasked",)}),
    "retried-twice": (retried_twice_at_once, {"retry-count": ("retry-twice",)}),
    "two-dead-letters": (two_dead_letters, {"retry-count": ("dead-letter-twice",)}),
    "dead-too-soon": (dead_too_soon, {"retry-count": ("dead-letter-early",)}),
    "no-dead-letter": (
        no_dead_letter,
        {"retry-count": ("dead-letter-missing",), "retry-delay": ("retry-lost",)},
    ),
    "delayed-too-little": (delayed_too_little, {"delayed": ("delayed-early",)}),
    "delayed-for-ever": (delayed_for_ever, {"delayed": ("delayed-lost",)}),
    "delayed-twice": (
        delayed_twice,
        {"delayed": ("delayed-twice",), "group-redelivery": ("unexplained",)},
    ),
    "not-subscribed": (not_subscribed, {"tags": ("unsubscribed",)}),
    "hole": (hole, {"broadcast-complete": ("broadcast-hole",)}),
    "unseen": (unseen, {"broadcast-complete": ("broadcast-unseen",)}),
    "stuck": (stuck, {"group-liveness": ("stuck",)}),
    "stuck-retry": (stuck_retry, {"group-liveness": ("stuck",)}),
    "phantom": (phantom, {"group-deliveries": ("phantom",)}),
    "unexpected": (unexpected, {"group-deliveries": ("unexpected",)}),
    "corrupted": (corrupted, {"group-deliveries": ("corrupted",)}),
    "too-early": (too_early, {"group-deliveries": ("too-early",)}),
    "foreign": (foreign, {"group-deliveries": ("foreign",)}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_breach_turns_its_checker_red(name: str) -> None:
    make, expected = PLANTED[name]
    assert broken(make()) == expected


def test_every_promise_has_a_planted_breach() -> None:
    named = {checker for _, expected in PLANTED.values() for checker in expected}
    assert named == {promise.name for promise in PROMISES}
