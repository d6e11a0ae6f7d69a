"""Each promise to consumers, and the smallest histories that break it and it alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.checkers.consumers.consumer_checkers import PROMISES, consumer_checkers
from tests.checkers.consumers.scenes import (
    Q,
    alive,
    dead,
    deleted,
    died_with,
    failover,
    given,
    letters,
    multiple,
    purged,
    refused,
    rejected,
    requeued,
    single,
    two,
    waited,
)
from tests.checkers.consumers.tale import CHECKERS, Tale

pytestmark = pytest.mark.unit

PLANTED: dict[str, tuple[Callable[[], Tale], dict[str, list[str]]]] = {
    "lost": (lambda: Tale().publish(1, 2).take(2), {"consumer-fates": ["lost"]}),
    "lost with a consumer that died": (
        lambda: died_with(1).publish(2).take(2),
        {"consumer-fates": ["lost"]},
    ),
    "one of three routes is lost": (
        lambda: (
            Tale(QueueRules(name="a"), QueueRules(name="b"))
            .publish(1, key="exchange/x", to=["a", "b"]).take(1, queue="a")
        ),
        {"consumer-fates": ["lost"]},
    ),
    "lost when nobody could take it without a word": (
        lambda: Tale().publish(1, at=5).consumer("c", end=4, no_ack=True),
        {"consumer-fates": ["lost"]},
    ),
    "lost long after one hung up that takes without a word": (
        lambda: Tale().publish(1, at=12).consumer("c", end=4, ended="hung-up", no_ack=True),
        {"consumer-fates": ["lost"]},
    ),
    "lost after a requeue": (
        lambda: requeued().consume(2, 3.5),
        {"consumer-fates": ["lost"]},
    ),
    "gone before its time to live was over": (
        lambda: Tale(QueueRules(name="q", ttl_ms=90_000)).publish(1),
        {"consumer-fates": ["lost"]},
    ),
    "gone from a queue that was not full": (
        lambda: Tale(QueueRules(name="q", max_length=3)).publish(1, 2, 3).take(2).take(3, 65.1),
        {"consumer-fates": ["lost"]},
    ),
    "gone after the queue was deleted": (
        lambda: deleted(Tale(), 1).publish(1, at=3),
        {"consumer-fates": ["lost"]},
    ),
    "a deletion that failed deletes nothing": (
        lambda: deleted(Tale().publish(1), 5, "fail"),
        {"consumer-fates": ["lost"]},
    ),
    "gone after the queue was purged": (
        lambda: purged(Tale(), 1).publish(1, at=3),
        {"consumer-fates": ["lost"]},
    ),
    "delivered long after the queue was purged": (
        lambda: purged(Tale().publish(1), 3).consumer("c").consume(1, 5),
        {"purge": ["purged-delivered"]},
    ),
    "gone from a queue that somebody used, and nothing happened": (
        lambda: (
            Tale(QueueRules(name="q", expires_ms=5000)).publish(1, at=19).publish(2, at=21)
            .consumer("c", end=64.5, ended="hung-up").consume(1, 19.1)
        ),
        {"consumer-fates": ["lost"]},
    ),
    "gone from a queue whose consumer was heard of after the fault": (
        lambda: (
            Tale(QueueRules(name="q", expires_ms=5000)).publish(1, at=40).publish(2, at=41)
            .consumer("c", end=64.5)
            .fault(1, "power", 20, 24, ["n2"], effects=["ends-processes"]).consume(1, 40.1)
            .consume(3, 60.2).publish(3, at=60.1)
        ),
        {"consumer-fates": ["lost"]},
    ),
    "rejected, and no dead letter": (
        lambda: rejected(letters()),
        {"consumer-fates": ["dead-letter-missing"]},
    ),
    "expired, and no dead letter": (
        lambda: letters(ttl_ms=500),
        {"consumer-fates": ["dead-letter-missing"]},
    ),
    "a dead letter that nobody rejected": (
        lambda: dead(letters(), 1, 65),
        {"consumer-fates": ["dead-letter-undue"]},
    ),
    "a dead letter of a queue without a limit": (
        lambda: dead(letters(), 1, 65, "maxlen"),
        {"consumer-fates": ["dead-letter-undue"]},
    ),
    "dead-lettered twice": (
        lambda: dead(dead(rejected(letters()), 1, 65), 1, 65.1),
        {"consumer-fates": ["dead-letter-twice"]},
    ),
    "dropped from a queue that was not full": (
        lambda: dead(letters(max_length=3).publish(2, at=3).take(2), 1, 65.1, "maxlen"),
        {"consumer-fates": ["dead-letter-undue"]},
    ),
    "phantom": (
        lambda: Tale().publish(1, kind="fail").take(1),
        {"consumer-fates": ["phantom"]},
    ),
    "unexpected": (lambda: Tale().publish(1).take(1).take(7), {"consumer-fates": ["unexpected"]}),
    "in a queue that it was not routed to": (
        lambda: Tale(Q, QueueRules(name="r")).publish(1).take(1).take(1, 65.1, queue="r"),
        {"consumer-fates": ["unexpected"]},
    ),
    "corrupted": (
        lambda: _given_damaged(Tale().publish(1).take(1).consumer("c")),
        {"consumer-fates": ["corrupted"]},
    ),
    "too early": (
        lambda: Tale().publish(1, at=5).consumer("c").consume(1, 4),
        {"consumer-fates": ["too-early"]},
    ),
    "acked again": (
        lambda: Tale().publish(1).consumer("c").consume(1, 3).consume(1, 5, flagged=True),
        {"acked-again": ["acked-again"]},
    ),
    "acked again, drained": (
        lambda: Tale().publish(1).consumer("c").consume(1, 3).take(1, flagged=True),
        {"acked-again": ["acked-again"]},
    ),
    "acked again long before a failover": (
        lambda: failover().publish(1, at=5).consume(1, 6).consume(1, 40, flagged=True),
        {"acked-again": ["acked-again"]},
    ),
    "rejected, and it comes again": (
        lambda: rejected(Tale().publish(1)).take(1, flagged=True),
        {"acked-again": ["acked-again"]},
    ),
    "an acknowledgement is refused": (
        lambda: refused(3),
        {"acked-again": ["refused-ack"]},
    ),
    "one of a multiple acknowledgement again": (
        lambda: multiple().take(3, flagged=True),
        {"acked-again": ["acked-again"]},
    ),
    "without the flag": (
        lambda: died_with(1).consume(1, 6, "d"),
        {"redelivered-flag": ["unflagged"]},
    ),
    "without the flag after a requeue": (
        lambda: requeued().consume(1, 3.2).consume(2, 3.4),
        {"redelivered-flag": ["unflagged"]},
    ),
    "without the flag by an heir": (
        lambda: given(failover().publish(1, at=18), 1, 19).consume(1, 22),
        {"redelivered-flag": ["unflagged"]},
    ),
    "twice at once": (
        lambda: alive(
            given(two().publish(1), 1, 3).consume(1, 3.5, "d", flagged=True), 5, "c", "d"
        ),
        {"delivered-once-at-a-time": ["twice-at-once"]},
    ),
    "out of order": (
        lambda: Tale().publish(1, 2).consumer("c").consume(2, 3).consume(1, 3.1),
        {"queue-order": ["order"]},
    ),
    "out of order on two channels": (
        lambda: two().publish(1, 2).consume(2, 3, "d").consume(1, 4.5),
        {"queue-order": ["order"]},
    ),
    "requeued at the wrong end": (
        lambda: requeued().consume(2, 3.2).consume(1, 3.4, flagged=True),
        {"queue-order": ["requeue-order"]},
    ),
    "recovered at the wrong end": (
        lambda: _recovered_wrongly(),
        {"queue-order": ["requeue-order"]},
    ),
    "two are active": (
        lambda: alive(
            single(1, 2).consumer("c").consumer("d").consume(1, 3).consume(2, 3.2, "d"), 5, "c", "d"
        ),
        {"single-active": ["dual-active-consumer"]},
    ),
    "two are active after a failover": (
        lambda: alive(
            failover(queue=QueueRules(name="q", single_active=True)).consumer("d")
            .publish(1, 2, at=40).consume(1, 41).consume(2, 41.2, "d"), 43, "c", "d",
        ),
        {"single-active": ["dual-active-consumer"]},
    ),
    "exclusive is not": (
        lambda: alive(
            Tale().publish(1).consumer("c", exclusive=True).consumer("d", 4).consume(1, 3),
            6, "c", "d",
        ),
        {"exclusive": ["not-exclusive"]},
    ),
    "exclusive is not after a failover": (
        lambda: alive(
            failover(exclusive=True).consumer("d", 40).publish(1, at=5).consume(1, 6), 45, "c", "d"
        ),
        {"exclusive": ["not-exclusive"]},
    ),
    "one too many": (
        lambda: given(given(Tale().publish(1, 2).consumer("c", prefetch=1), 1, 3), 2, 3.1)
        .ack(3.5, 2, multiple=True),
        {"prefetch": ["prefetch"]},
    ),
    "one too many on a channel": (
        lambda: _too_many_on_a_channel(),
        {"prefetch": ["prefetch"]},
    ),
    "one too many, after one was settled": (
        lambda: _refilled_twice(),
        {"prefetch": ["prefetch"]},
    ),
    "expired early": (
        lambda: _letter_at(letters(ttl_ms=5000), 4),
        {"ttl": ["expired-early"]},
    ),
    "delivered when it was dead": (
        lambda: (
            Tale(QueueRules(name="q", ttl_ms=1000)).publish(1).consumer("c").consume(1, 6)
        ),
        {"ttl": ["delivered-expired"]},
    ),
    "an heir forgets that it dies": (
        lambda: failover(queue=QueueRules(name="q", ttl_ms=3000)).publish(1, at=19).take(1),
        {"ttl": ["delivered-expired"]},
    ),
    "an heir forgets that it dies, and soon after the failover": (
        lambda: (
            failover(queue=QueueRules(name="q", ttl_ms=3000)).publish(1, at=19)
            .consume(1, 24.5, flagged=True)
        ),
        {"ttl": ["delivered-expired"]},
    ),
    "a requeue gives it a new life": (
        lambda: _requeued_late(),
        {"ttl": ["delivered-expired"]},
    ),
    "the drain finds it dead": (
        lambda: Tale().publish(1, ttl_ms=1000).take(1),
        {"ttl": ["delivered-expired"]},
    ),
    "too long": (
        lambda: (
            Tale(QueueRules(name="q", max_length=2)).publish(1, 2, 3)
            .take(1).take(2, 65.1).take(3, 65.2)
        ),
        {"max-length": ["too-long"]},
    ),
    "too long, as its first consumer finds": (
        lambda: (
            Tale(QueueRules(name="q", max_length=2)).publish(1, 2, 3, at=4.8).consumer("c", 5)
            .consume(1, 5.1).consume(2, 5.2).consume(3, 5.3)
        ),
        {"max-length": ["too-long"]},
    ),
    "lower first": (
        lambda: (
            Tale(QueueRules(name="q", max_priority=9)).publish(1, priority=1)
            .publish(2, at=2.1, priority=5).consumer("c", 5).consume(1, 6).consume(2, 6.1)
        ),
        {"priority": ["priority"]},
    ),
    "lower first, as its first consumer finds": (
        lambda: (
            Tale(QueueRules(name="q", max_priority=9)).publish(1, at=4.8, priority=1)
            .publish(2, at=4.82, priority=5).consumer("c", 5).consume(1, 5.1).consume(2, 5.2)
        ),
        {"priority": ["priority"]},
    ),
    "the lower consumer is served": (
        lambda: alive(
            Tale().publish(1, at=4).consumer("c", priority=5, prefetch=3)
            .consumer("d", priority=1, prefetch=3).consume(1, 5, "d"), 8, "c",
        ),
        {"consumer-priority": ["consumer-priority"]},
    ),
    "stuck": (waited, {"consumer-liveness": ["stuck"]}),
    "stuck, nobody is active": (
        lambda: _nobody_is_active(),
        {"consumer-liveness": ["stuck"]},
    ),
    "stuck after its window was freed": (
        lambda: _freed_and_stuck(),
        {"consumer-liveness": ["stuck"]},
    ),
    "served after cancel-ok": (
        lambda: given(Tale().publish(1).consumer("c", end=2.5), 1, 3).take(1, flagged=True),
        {"cancel": ["to-cancelled"]},
    ),
    "served after the server cancelled it": (
        lambda: given(
            Tale().publish(1).consumer("c", end=2.5, ended="cancelled-by-server"), 1, 3
        ).take(1, flagged=True),
        {"cancel": ["to-cancelled", "cancelled-for-nothing"]},
    ),
    "cancelled though its queue was there": (
        lambda: Tale().publish(1).consumer("c", end=20, ended="cancelled-by-server").consume(1, 3),
        {"cancel": ["cancelled-for-nothing"]},
    ),
    "not cancelled at a failover": (
        lambda: failover(cancel_on_failover=True).publish(1, at=39).consume(1, 40),
        {"cancel": ["not-cancelled"]},
    ),
}  # fmt: skip


def _given_damaged(story: Tale) -> Tale:
    story.deliver(0, 3, damaged=True)
    return story


def _recovered_wrongly() -> Tale:
    story = Tale().publish(1, 2).consumer("c", prefetch=1)
    story.recover(3.5, story.deliver(1, 3))
    return story.consume(2, 3.6).consume(1, 3.7, flagged=True)


def _too_many_on_a_channel() -> Tale:
    story = Tale().publish(1, 2)
    story.channel("both", 0.4, 64, "closed")
    for name in ("c", "d"):
        story.consumer(name, channel="both", prefetch=1, **{"global": True})  # type: ignore[arg-type]
    story.deliver(1, 3, "c", channel="both")
    tag = story.deliver(2, 3.1, "d", channel="both")
    return story.ack(3.2, tag, channel="both", multiple=True)


def _refilled_twice() -> Tale:
    story = Tale().publish(1, 2, 3, 4).consumer("c", prefetch=2)
    first = story.deliver(1, 3)
    story.deliver(2, 3.1)
    story.ack(3.2, first)
    story.deliver(3, 3.3)
    last = story.deliver(4, 3.4)
    return story.ack(3.5, last, multiple=True)


def _letter_at(story: Tale, at: float) -> Tale:
    story.consumer("e", queue="d")
    tag = story.deliver(1, at, "e", queue="d", deaths=[("q", "expired")])
    return story.ack(at + 0.1, tag, "e", queue="d")


def _requeued_late() -> Tale:
    story = Tale(QueueRules(name="q", ttl_ms=3000)).publish(1).consumer("c")
    story.settle("nack", 7, story.deliver(1, 3), requeue=True)
    return story.consume(1, 7.1, flagged=True)


def _nobody_is_active() -> Tale:
    story = Tale(QueueRules(name="q", single_active=True), stuck_after_ms=10_000)
    story.rows = [row for row in story.rows if row["f"] != "phase"]
    story.phases(load=18, heal=20, drain=64)
    return story.consumer("c", prefetch=1).consumer("d", prefetch=1).publish(1, at=21).take(1)


def _freed_and_stuck() -> Tale:
    story = waited(prefetch=1).publish(5, at=24)
    return story.ack(30, story.deliver(5, 25))


@pytest.mark.parametrize("what", PLANTED)
def test_planted(what: str) -> None:
    make, expected = PLANTED[what]
    assert make().broken() == expected


def test_every_promise_has_a_planted_failure() -> None:
    found = {name for _, expected in PLANTED.values() for name in expected}
    assert found == set(CHECKERS)


def test_every_promise_names_its_source() -> None:
    names = [checker.name for checker in consumer_checkers(ConsumeRules(queues=()))]
    assert names == ["consumer-fates", *(promise.name for promise in PROMISES)]
    assert all(promise.source and promise.promise.endswith(".") for promise in PROMISES)
    assert all("Source:" in (promise.judge.__doc__ or "") for promise in PROMISES)
