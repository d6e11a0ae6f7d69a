"""Which queues are a member's, and which messages of a queue it still has to consume.

Pure: what RocketMQ's clients compute between two answers of a broker (in client/,
consumer/rebalance/AllocateMessageQueueAveragely.java and impl/consumer/ProcessQueue.java).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shalott.clients.rocketmq_messages import PulledMessage

Item = TypeVar("Item")


def allocate_averagely(member: str, members: Sequence[str], queues: Sequence[Item]) -> list[Item]:
    """The member's share of the queues, as pages of one size or one more: none if it is not among
    the members. Every member comes to the same division if it sees the same lists.
    """
    ordered = sorted(members)
    if member not in ordered:
        return []
    place, count = ordered.index(member), len(ordered)
    size, rest = divmod(len(queues), count)
    begin = place * size + min(place, rest)
    return list(queues[begin : begin + size + (place < rest)])


class ProcessingQueue:
    """The messages of one queue that were pulled and are not consumed yet, in their order.

    ``next_offset``: where to pull next. Everything before ``committable`` is consumed, or was never
    wanted (another tag).
    """

    def __init__(self, start: int) -> None:
        self.next_offset = start
        self._held: dict[int, PulledMessage] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def committable(self) -> int:
        """The first message that is not consumed, or else the end of what was pulled."""
        return min(self._held) if self._held else self.next_offset

    @property
    def first(self) -> PulledMessage | None:
        """What an orderly consumer takes next."""
        return self._held[min(self._held)] if self._held else None

    def put(self, messages: Sequence[PulledMessage], next_offset: int) -> list[PulledMessage]:
        """What a pull brought, and where the broker says to go on. Returns what is new here."""
        fresh = [one for one in messages if one.queue_offset not in self._held]
        for message in fresh:
            self._held[message.queue_offset] = message
        self.next_offset = max(self.next_offset, next_offset)
        return fresh

    def holds(self, message: PulledMessage) -> bool:
        """Whether it is still to be consumed here."""
        return self._held.get(message.queue_offset) is message

    def done(self, message: PulledMessage) -> None:
        """It was consumed, or is somebody else's now."""
        if self.holds(message):
            del self._held[message.queue_offset]

    def move(self, offset: int) -> None:
        """Forget everything and go on there: the queue has nothing else."""
        self._held.clear()
        self.next_offset = offset
