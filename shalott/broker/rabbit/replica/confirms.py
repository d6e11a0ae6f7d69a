"""Which publishes a queue process still has to confirm, and when it did.

A publish is confirmed to its channel once the message is safe here: at once if it needn't be on
disk, else when the backing queue's durable mark has reached it. Confirms leave in batches, one
message a channel.
"""

from __future__ import annotations

from collections import deque

import msgspec

from shalott.broker.rabbit.amqp.queue_protocol import Confirmed, Refused
from shalott.broker.rabbit.processes.messages import Message, Pid

BATCH_MAX = 64


class DurableMarks:
    """Message ids in the order in which they become durable."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque()

    def add(self, mark: int, message_id: int) -> None:
        self._waiting.append((mark, message_id))

    def clear(self) -> None:
        self._waiting.clear()

    def reached(self, durable_mark: int) -> list[int]:
        """Ids that have become durable."""
        ids = []
        while self._waiting and self._waiting[0][0] <= durable_mark:
            ids.append(self._waiting.popleft()[1])
        return ids


class AckedInterval(msgspec.Struct, frozen=True):
    """Publishes that were confirmed between two instants of this node's clock."""

    first_ns: int
    last_ns: int
    count: int


class Outbox:
    """Confirms and refusals on their way to channels."""

    def __init__(self, process: Pid, queue: str) -> None:
        self._process = process
        self._queue = queue
        self._confirmed: dict[Pid, list[int]] = {}
        self._refused: dict[Pid, list[int]] = {}
        self.size = 0  # what waits: confirms and refusals
        self._interval: AckedInterval | None = None

    def confirm(self, channel: Pid, seq: int) -> None:
        self._confirmed.setdefault(channel, []).append(seq)
        self.size += 1

    def refuse(self, channel: Pid, seq: int) -> None:
        self._refused.setdefault(channel, []).append(seq)
        self.size += 1

    @property
    def is_full(self) -> bool:
        return self.size >= BATCH_MAX

    @property
    def has_confirms(self) -> bool:
        return bool(self._confirmed)

    def take(self, now_ns: int) -> list[tuple[Pid, Message]]:
        """What to send now, to whom."""
        if not self.size:
            return []
        if self._confirmed:
            first = now_ns if self._interval is None else self._interval.first_ns
            count = 0 if self._interval is None else self._interval.count
            count += sum(len(seqs) for seqs in self._confirmed.values())
            self._interval = AckedInterval(first, now_ns, count)
        letters: list[tuple[Pid, Message]] = []
        for channel, seqs in self._confirmed.items():
            letters.append((channel, Confirmed(self._process, self._queue, tuple(seqs))))
        for channel, seqs in self._refused.items():
            letters.append((channel, Refused(self._process, self._queue, tuple(seqs))))
        self._confirmed, self._refused, self.size = {}, {}, 0
        return letters

    @property
    def has_interval(self) -> bool:
        return self._interval is not None

    def take_interval(self) -> AckedInterval | None:
        """What was confirmed since this was last asked."""
        interval, self._interval = self._interval, None
        return interval
