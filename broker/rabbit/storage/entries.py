"""What a backing queue keeps of each message, and the order in which it hands the ready ones out.

Order is by serial: a ``Line``, as every queue has it. A queue with priorities (x-max-priority) has
one line for each of them, and its head is that of the highest that is not empty (as
rabbit/rabbit_priority_queue.erl: one backing queue a priority, asked from the highest down). So
whatever takes from the head, a length limit too, takes what is of the highest priority.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from shalott.broker.base.env import Clock
from shalott.broker.rabbit.amqp.queue_protocol import Content


class Place(enum.IntEnum):
    """Where a message is."""

    READY = 0
    UNACKED = 1
    GONE = 2  # removed, but an ordering structure may still refer to it


class Expiry(NamedTuple):
    """When a message's time to live is over.

    Two clocks, for two uses. ``at_ns`` counts while this process lives: monotonic, so that nobody
    who sets the node's clock ends a message early. ``wall_ns`` is for the disk, where no other time
    means anything after a restart. Neither means anything on another node: mirrors are told what is
    left (RabbitMQ has one wall-clock time for all three).
    """

    at_ns: int
    wall_ns: int

    @classmethod
    def after(cls, clock: Clock, left_ns: int) -> Expiry:
        """In ``left_ns`` from now; it may be over already."""
        return cls(clock.monotonic_ns() + left_ns, clock.wall_ns() + left_ns)

    def left_ns(self, clock: Clock) -> int:
        return self.at_ns - clock.monotonic_ns()


class Entry:
    """One message. ``record_bytes`` is its size in the journal, 0 if it isn't there."""

    __slots__ = ("content", "expiry", "place", "record_bytes", "redelivered", "serial")

    def __init__(
        self,
        serial: int,
        content: Content,
        redelivered: bool,
        place: Place,
        expiry: Expiry | None = None,
    ) -> None:
        self.serial = serial
        self.content = content
        self.redelivered = redelivered
        self.place = place
        self.expiry = expiry
        self.record_bytes = 0


class Order(Protocol):
    """The ready messages. Removed ones may linger until they would be the head."""

    add: Callable[[Entry], None]

    def put_back(self, entry: Entry) -> None:
        """It is ready again: in its place among those of its priority."""
        ...

    def head(self) -> Entry | None:
        """The next to be handed out."""
        ...

    def take(self, head: Entry) -> None:
        """Take out what ``head`` returned."""
        ...


class Line:
    """Never fetched messages as they came, and requeued ones by serial."""

    def __init__(self) -> None:
        self._fresh: deque[Entry] = deque()
        self._requeued: list[tuple[int, Entry]] = []
        self.add = self._fresh.append

    def put_back(self, entry: Entry) -> None:
        heapq.heappush(self._requeued, (entry.serial, entry))

    def head(self) -> Entry | None:
        while self._fresh and self._fresh[0].place is not Place.READY:
            self._fresh.popleft()
        while self._requeued and self._requeued[0][1].place is not Place.READY:
            heapq.heappop(self._requeued)
        fresh = self._fresh[0] if self._fresh else None
        requeued = self._requeued[0][1] if self._requeued else None
        if fresh is None or requeued is None:
            return fresh or requeued
        return fresh if fresh.serial < requeued.serial else requeued

    def take(self, head: Entry) -> None:
        if self._fresh and self._fresh[0] is head:
            self._fresh.popleft()
        else:
            heapq.heappop(self._requeued)


class Lines:
    """One line a priority, from 0 to ``max_priority``; what is above it counts as the highest."""

    def __init__(self, max_priority: int) -> None:
        self._lines = [Line() for _ in range(max_priority + 1)]
        self._max = max_priority
        self.add: Callable[[Entry], None] = self._add

    def _add(self, entry: Entry) -> None:
        self._line_of(entry).add(entry)

    def put_back(self, entry: Entry) -> None:
        self._line_of(entry).put_back(entry)

    def head(self) -> Entry | None:
        for line in reversed(self._lines):
            head = line.head()
            if head is not None:
                return head
        return None

    def take(self, head: Entry) -> None:
        self._line_of(head).take(head)

    def _line_of(self, entry: Entry) -> Line:
        return self._lines[min(entry.content.priority, self._max)]
