"""Histories that keep every promise to consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shalott.checkers.consumers.consume_rules import QueueRules
from tests.checkers.consumers.scenes import (
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
from tests.checkers.consumers.tale import Tale

pytestmark = pytest.mark.unit

SOUND: dict[str, Callable[[], Tale]] = {
    "consumed": lambda: Tale().publish(1, 2).consumer("c").consume(1, 3).consume(2, 3.1),
    "drained": lambda: Tale().publish(1).take(1),
    "two consumers": lambda: two().publish(1, 2).consume(1, 3).consume(2, 3.1, "d"),
    "acknowledged without an answer": lambda: _unanswered(),
    "no_ack": lambda: given(Tale().publish(1).consumer("c", no_ack=True), 1, 3),
    "multiple": multiple,
    "tag 0": lambda: tag_zero(),
    "a channel's limit": lambda: shared_channel(),
    "recovered": lambda: recovered(),
    "sent to one that had just hung up, and needs no acknowledgement": lambda: (
        Tale().publish(1, at=5).consumer("c", end=4.9, ended="hung-up", no_ack=True)
    ),
    "dead-lettered by two masters": lambda: _died_twice(),
    "lost, where nothing is promised": lambda: (
        Tale(keeps_acknowledged=False).publish(1, 2).take(2)
    ),
    "an acknowledgement is refused that was the second": lambda: refused(2),
    "acknowledged in one breath with a requeue": lambda: _in_one_breath(),
    "requeued, and next": lambda: requeued().consume(1, 3.2, flagged=True).consume(2, 3.4),
    "requeued, and given again before the answer": lambda: _again_before_the_answer(),
    "recovered, and the queue has not heard of it": lambda: _recovered_late(),
    "requeued, to another that is read late": lambda: (
        requeued().consumer("d").consume(2, 3.2).consume(1, 3.3, "d", flagged=True)
    ),
    "died with it": lambda: died_with(1).consume(1, 6, "d", flagged=True),
    "died with it, drained": lambda: died_with(1).take(1, flagged=True),
    "acked again after a failover that came at once": lambda: (
        failover().publish(1, at=19.5).consume(1, 19.8).consume(1, 22, flagged=True)
    ),
    "without the flag after a failover, for it was never confirmed": lambda: (
        given(failover().publish(1, at=18, kind="info"), 1, 19).consume(1, 22)
    ),
    "twice at once over a failover": lambda: (
        given(failover().publish(1, at=18), 1, 19).consumer("d").consume(1, 22, "d", flagged=True)
    ),
    "a new window after a failover": lambda: _window_over_failover(),
    "indeterminate, and came": lambda: Tale().publish(1, kind="info").take(1),
    "indeterminate, and did not": lambda: Tale().publish(1, kind="info").publish(2).take(2),
    "failed": lambda: Tale().publish(1, kind="fail").publish(2).take(2),
    "routed to three": lambda: _fanout(),
    "rejected to the dead letters": lambda: dead(rejected(letters()), 1, 65),
    "rejected without dead letters": lambda: rejected(Tale().publish(1)),
    "expired without dead letters": lambda: Tale(QueueRules(name="q", ttl_ms=500)).publish(1),
    "expired by its own": lambda: Tale().publish(1, ttl_ms=100),
    "expired to the dead letters": lambda: dead(letters(ttl_ms=500), 1, 65, "expired"),
    "dropped": lambda: (
        Tale(QueueRules(name="q", max_length=2)).publish(1, 2, 3).take(2).take(3, 65.1)
    ),
    "dropped to the dead letters": lambda: dead(
        letters(max_length=1).publish(2, at=3).take(2), 1, 65.1, "maxlen"
    ),
    "deleted": lambda: deleted(Tale().publish(1), 5),
    "purged": lambda: purged(Tale().publish(1), 5),
    "purged while it was on its way": lambda: (
        purged(Tale().publish(1), 3).consumer("c").consume(1, 3.2)
    ),
    "purged while a consumer had it": lambda: (
        purged(Tale().publish(1), 3)
        .consumer("c", end=4, ended="hung-up")
        .consumer("d")
        .publish(2, at=4)
        .consume(2, 5, "d")
    ),
    "purged without an answer": lambda: (
        purged(Tale().publish(1), 3, "info").consumer("c").consume(1, 5)
    ),
    "deleted while nobody used it": lambda: Tale(QueueRules(name="q", expires_ms=2000)).publish(1),
    "deleted while its consumer's node was without power": lambda: _expired_at_a_fault(),
    "deleted while its consumer was cut off, and never heard of it": lambda: _expired_at_a_fault(
        "partition", ["cuts-links"], end=63, ended="closed"
    ),
    "a dead letter lost near a fault": lambda: rejected(
        letters().fault(1, "kill", 3, 4, ["n3"], effects=["ends-processes"])
    ),
    "single active, one after the other": lambda: (
        single(1, 2).consumer("c", end=4).consumer("d").consume(1, 3).consume(2, 5, "d")
    ),
    "single active, what was under way": lambda: (
        single(1, 2, 3)
        .consumer("c", end=3.2, leaving=3.05)
        .consumer("d")
        .consume(1, 3)
        .consume(3, 3.12, "d")
        .consume(2, 3.15)
    ),
    "exclusive, then another": lambda: (
        Tale().publish(1, 2).consumer("c", end=4, exclusive=True).consumer("d", 5)
        .consume(1, 3).consume(2, 6, "d")
    ),
    "exclusive, another refused": lambda: (
        Tale().publish(1).consumer("c", exclusive=True)
        .consumer("d", 2, 2.1, ended="refused", active=None).consume(1, 3)
    ),
    "exclusive until the failover, then another": lambda: (
        failover(exclusive=True, end=21, ended="lost").consumer("d", 40)
        .publish(1, at=5).consume(1, 6).publish(2, at=41).consume(2, 42, "d")
    ),
    "cancelled, as its queue was deleted": lambda: (
        deleted(Tale().publish(1).consumer("c", end=20, ended="cancelled-by-server").consume(1, 3),
                19.9)
    ),
    "delivered before cancel-ok": lambda: (
        Tale().publish(1).consumer("c", end=4, leaving=2.9).consume(1, 3)
    ),
    "cancelled at a failover": lambda: (
        failover(end=21, ended="cancelled-by-server", cancel_on_failover=True)
        .publish(1, at=18).consume(1, 19)
    ),
    "in time": lambda: (
        Tale(QueueRules(name="q", ttl_ms=5000)).publish(1).consumer("c").consume(1, 6)
    ),
    "a little late": lambda: (
        Tale(QueueRules(name="q", ttl_ms=5000)).publish(1).consumer("c").consume(1, 7.5)
    ),
    "late, near a fault": lambda: (
        Tale(QueueRules(name="q", ttl_ms=5000))
        .publish(1).consumer("c").fault(1, "pause", 5, 12, ["n1"], effects=["suspends"])
        .consume(1, 12.5)
    ),
    "late by an heir that was not quick": lambda: (
        failover(queue=QueueRules(name="q", ttl_ms=3000)).publish(1, at=19)
        .consume(1, 23.9, flagged=True)
    ),
    "late by an heir, while a node stood still": lambda: (
        failover(queue=QueueRules(name="q", ttl_ms=3000))
        .fault(2, "pause", 20, 23, ["n3"], effects=["suspends"])
        .publish(1, at=19).consume(1, 24.5, flagged=True)
    ),
    "higher first": lambda: (
        Tale(QueueRules(name="q", max_priority=9)).publish(1, priority=1)
        .publish(2, at=2.1, priority=5).consumer("c", 5).consume(2, 6).consume(1, 6.1)
    ),
    "higher, but it came late": lambda: (
        Tale(QueueRules(name="q", max_priority=9)).publish(1, at=2, priority=1)
        .publish(2, at=5.5, priority=5).consumer("c", 5).consume(1, 6).consume(2, 6.1)
    ),
    "the high consumer is full": lambda: (
        given(two(prefetch=1).publish(1, 2), 1, 3).consume(2, 5, "d").take(1, flagged=True)
    ),
    "as long as it may be": lambda: (
        Tale(QueueRules(name="q", max_length=2)).publish(1, 2).take(1).take(2, 65.1)
    ),
    "waited a short time": lambda: waited(begin=55),
    "no room": lambda: given(waited(prefetch=1), 5, 25).publish(5, at=24).take(5, flagged=True),
    "before the heal": lambda: (
        Tale(stuck_after_ms=10_000).publish(1).consumer("c").consume(1, 40)
    ),
    "the harness stood still": lambda: waited().stall(31, 60),
    "the broker does not read who is gone": lambda: (
        waited()
        .consumer("gone", end=22, ended="hung-up", process=7)
        .row("blocked", 21, took=1, kind="info", key="", process=7)
    ),
    "single active, waits behind one that is full": lambda: _behind_a_full_one(),
    "order on two channels, read late": lambda: (
        two().publish(1, 2).consume(2, 3, "d").consume(1, 3.4)
    ),
    "order of what was published at once": lambda: (
        Tale().publish(1, at=2).publish(2, at=2.001).consumer("c").consume(2, 3).consume(1, 3.1)
    ),
    "an older one comes first after a requeue": lambda: (
        requeued().publish(0, at=1.9).consume(0, 3.2, flagged=True).consume(1, 3.3, flagged=True)
        .consume(2, 3.5)
    ),
    "lost, in a queue that was not drained": lambda: (
        Tale().publish(1).publish(2, node="n2").take(2).empty(65.5, ["n1"])
    ),
}  # fmt: skip


def _unanswered() -> Tale:
    story = Tale().publish(1).consumer("c", end=4, ended="lost")
    return story.ack(3.1, story.deliver(1, 3), sure=False, took=None)


def _expired_at_a_fault(
    kind: str = "power", effects: Sequence[str] = ("ends-processes",), **consumer: Any
) -> Tale:
    """The queue's master hears of it soon, its client when it has waited long enough."""
    story = Tale(QueueRules(name="q", expires_ms=1000)).publish(1, at=19).publish(2, at=21)
    story.consumer("c", **{"end": 25, "ended": "hung-up", **consumer})
    story.consume(1, 19.1).fault(1, kind, 20, 24, ["n2"], effects=list(effects))
    return story.publish(3, at=27).consumer("d", 26).consume(3, 27.1, "d")


def _again_before_the_answer() -> Tale:
    """The new delivery is given back as well, when another message has come."""
    story = Tale().publish(1).publish(2, at=3.5).consumer("c", prefetch=10)
    story.settle("nack", 3.1, story.deliver(1, 3), requeue=True, took=0.3)
    again = story.deliver(1, 3.2, flagged=True)
    story.consume(2, 3.6)
    story.settle("nack", 3.8, again, requeue=True)
    return story.consume(1, 3.9, flagged=True)


def _recovered_late() -> Tale:
    story = Tale().publish(1, 2).consumer("c", prefetch=3)
    story.recover(3.5, story.deliver(1, 3))
    return story.consume(2, 3.52).consume(1, 3.53, flagged=True)


def _died_twice() -> Tale:
    """The mirror had not heard that it was rejected: it is delivered and rejected again."""
    story = failover(queue=QueueRules(name="q", dead_letters="d"), others=[QueueRules(name="d")])
    story.publish(1, at=19).consumer("e", queue="d")
    for at, again in ((19.5, False), (22, True)):
        story.settle("reject", at + 0.1, story.deliver(1, at, flagged=again))
        tag = story.deliver(1, at + 0.3, "e", queue="d", deaths=[("q", "rejected")])
        story.ack(at + 0.4, tag, "e", queue="d")
    return story


def _in_one_breath() -> Tale:
    """The acknowledgement overtakes the requeue, and makes room for the next one."""
    story = Tale().publish(1, 2, 3).consumer("c", prefetch=2)
    one, two = story.deliver(1, 3), story.deliver(2, 3.1)
    story.settle("nack", 3.2, one, requeue=True).ack(3.2, two)
    return story.consume(3, 3.21).consume(1, 3.4, flagged=True)


def _window_over_failover() -> Tale:
    story = given(failover(prefetch=1).publish(1, 2, at=18), 1, 19)
    return story.consume(1, 22, flagged=True).consume(2, 22.5)


def _fanout() -> Tale:
    queues = [QueueRules(name=name) for name in ("a", "b", "c")]
    story = Tale(*queues)
    story.publish(1, key="exchange/x", to=["a", "b", "c"])
    for number, name in enumerate("abc"):
        story.take(1, 65 + number / 10, queue=name)
    return story


def _behind_a_full_one() -> Tale:
    story = Tale(QueueRules(name="q", single_active=True), stuck_after_ms=10_000)
    story.rows = [row for row in story.rows if row["f"] != "phase"]
    story.phases(load=18, heal=20, drain=64)
    story.consumer("c", prefetch=1).consumer("d", prefetch=1).publish(1, 2, at=21)
    return given(story, 1, 22).take(1, flagged=True).take(2, 65.1)


def tag_zero() -> Tale:
    story = Tale().publish(1, 2).consumer("c", prefetch=2)
    story.deliver(1, 3)
    story.deliver(2, 3.1)
    return story.ack(3.5, 2, multiple=True)


def shared_channel() -> Tale:
    """One channel with a limit of two, and two consumers on it."""
    story = Tale().publish(1, 2, 3)
    story.channel("both", 0.4, 64, "closed")
    for name in ("c", "d"):
        story.consumer(name, channel="both", prefetch=2, **{"global": True})  # type: ignore[arg-type]
    one = story.deliver(1, 3, "c", channel="both")
    story.deliver(2, 3.1, "d", channel="both")
    story.ack(3.2, one, channel="both")
    three = story.deliver(3, 3.3, "d", channel="both")
    return story.ack(3.5, three, channel="both", multiple=True)


def recovered() -> Tale:
    story = Tale().publish(1, 2).consumer("c", prefetch=2)
    story.deliver(1, 3)
    tag = story.deliver(2, 3.1)
    story.recover(3.5, tag)
    return story.consume(1, 3.6, flagged=True).consume(2, 3.7, flagged=True)


@pytest.mark.parametrize("what", SOUND)
def test_sound(what: str) -> None:
    results = SOUND[what]().results()
    assert {
        name: result.detail["broken"] for name, result in results.items() if result.detail["broken"]
    } == {}
    unsure = what.startswith("lost, in a queue")
    nothing = not next(iter(results.values())).counts["delivery-count"]
    for name, result in results.items():
        assert result.valid is not False
        if not unsure and not nothing:
            assert result.valid is True, (name, result.notes)
