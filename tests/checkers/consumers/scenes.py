"""Scenes that several tests of the promises to consumers begin with."""

from __future__ import annotations

from collections.abc import Sequence

from shalott.checkers.consumers.consume_rules import QueueRules
from tests.checkers.consumers.tale import Tale

Q = QueueRules(name="q")


def two(**said: object) -> Tale:
    """Two consumers of one queue, each with a channel."""
    return Tale().consumer("c", **said).consumer("d", **said)  # type: ignore[arg-type]


def alive(story: Tale, at: float, *names: str, value: int = 900) -> Tale:
    """Something of its own that each consumer is given and acknowledges, with an answer."""
    for number, name in enumerate(names):
        story.publish(value + number, at=at - 0.2 + number / 100)
        story.consume(value + number, at + number / 100, name)
    return story


def requeued(sure: bool = True) -> Tale:
    story = Tale().publish(1, 2).consumer("c", prefetch=1)
    tag = story.deliver(1, 3)
    story.settle("nack", 3.1, tag, requeue=True, sure=sure)
    return story


def died_with(value: int) -> Tale:
    """A consumer was hung up with one unsettled, and another took its place."""
    story = Tale().publish(value).consumer("c", end=4, ended="hung-up").consumer("d", 5)
    story.deliver(value, 3)
    return story


def failover(
    at: float = 20,
    queue: QueueRules = Q,
    others: Sequence[QueueRules] = (),
    **consumer: object,
) -> Tale:
    """n1 is killed, and n2 promoted one second later. ``others`` are n3's all the time."""
    story = Tale(queue, *others, ruled=False)
    for other in others:
        story.master("n3", 0.2, 66, queue=other.name)
    story.master("n1", 0.2, at - 0.1).role("n2", 0.3, "mirror")
    story.fault(1, "kill", at, at + 8, ["n1"], effects=["ends-processes"])
    story.master("n2", at + 1, 66, 2, how="promoted")
    story.consumer("c", **consumer)  # type: ignore[arg-type]
    return story


def multiple() -> Tale:
    story = Tale().publish(1, 2, 3, 4).consumer("c", prefetch=4)
    for value in (1, 2, 3, 4):
        story.deliver(value, 3 + value / 10)
    return story.ack(4, 3, multiple=True).ack(4.1, 4)


def letters(**of_queue: object) -> Tale:
    return Tale(
        QueueRules(name="q", dead_letters="d", **of_queue),
        QueueRules(name="d"),  # type: ignore[arg-type]
    ).publish(1)


def dead(story: Tale, value: int, at: float, reason: str = "rejected") -> Tale:
    return story.take(value, at, queue="d", deaths=[("q", reason)])


def waited(end: float = 63, begin: float = 30, **said: object) -> Tale:
    """A consumer with room, and a message that only the drain brings out. Healed at 20 s."""
    story = Tale(stuck_after_ms=10_000)
    story.rows = [row for row in story.rows if row["f"] != "phase"]
    story.phases(load=18, heal=20, drain=64)
    story.publish(1, at=begin).consumer("c", end=end, **said)  # type: ignore[arg-type]
    return story.take(1)


def given(story: Tale, value: int, at: float, to: str = "c") -> Tale:
    """Delivered and never settled."""
    story.deliver(value, at, to)
    return story


def rejected(story: Tale, at: float = 3, sure: bool = True) -> Tale:
    story.consumer("c")
    return story.settle("reject", at + 0.1, story.deliver(1, at), sure=sure)


def deleted(story: Tale, at: float, kind: str = "ok") -> Tale:
    story.row("delete-queue", at, kind=kind)
    return story.row("declare-queue", at + 1)  # type: ignore[return-value]


def purged(story: Tale, at: float, kind: str = "ok") -> Tale:
    return story.row("purge-queue", at, kind=kind)  # type: ignore[return-value]


def single(*values: int) -> Tale:
    return Tale(QueueRules(name="q", single_active=True)).publish(*values)


def refused(third: int) -> Tale:
    """Two acknowledgements, and a third of the given tag, after which the server closes."""
    story = Tale().publish(1, 2, 3).consumer("c", end=5, ended="channel-closed", channel="x")
    story.channel("x", 0.4, 5, "channel-closed", error="406 unknown delivery tag 3")
    tags = [story.deliver(value, 3 + value / 10, channel="x") for value in (1, 2, 3)]
    story.ack(4, tags[0], channel="x").ack(4.1, tags[1], channel="x")
    story.ack(4.9, third, channel="x", sure=False)
    return story if third == 3 else story.take(3, flagged=True)
