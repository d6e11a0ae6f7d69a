"""MessageTable: which messages a backing queue holds, by id and in order, and how many.

Of rabbit_variable_queue's state these are q1 to q4 and delta (message_order.py), the pending acks,
and the counts. Everything here is in memory and synchronous. A message that is in a delta is known
by its segment only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shalott.broker.rabbit.storage.entries import Entry, Place, Segment
from shalott.broker.rabbit.storage.message_order import Line, Lines, Order
from shalott.broker.rabbit.storage.snapshot import Held, held


class MessageTable:
    """Of one queue. ``max_priority`` None: the queue has no priorities."""

    def __init__(self, max_priority: int | None = None) -> None:
        # By id: those in memory. In order of serials, until a segment was read back.
        self.entries: dict[int, Entry] = {}
        self.order: Order = Line() if max_priority is None else Lines(max_priority)
        self.has_priorities = max_priority is not None
        self.has_paged = False  # ever in this life, or not brought from the journal
        self.in_delta = 0  # messages
        self.ready = 0
        self.ready_bytes = 0  # body bytes (x-max-length-bytes counts these)
        self.bytes = 0  # body bytes of all messages
        self.expiring = 0  # messages whose time to live is limited

    # -- changes -----------------------------------------------------------------------------------

    def enter(self, entry: Entry) -> None:
        """A new one, ready or unacknowledged."""
        size = entry.size
        self.entries[entry.id] = entry
        self.bytes += size
        if entry.place is Place.READY:
            self.order.add(entry)
            self.ready += 1
            self.ready_bytes += size
        else:
            entry.redelivered = True  # should it ever become ready
        if entry.expiry is not None:
            self.expiring += 1

    def enter_segments(self, segments: Sequence[Segment]) -> None:
        """A recovered queue's, which has one line."""
        self.order.lines()[0].recovered(segments)
        for segment in segments:
            self.in_delta += segment.count
            self.ready += segment.count
            self.ready_bytes += segment.bytes
            self.bytes += segment.bytes
            self.expiring += segment.expiring
        self.has_paged = True

    def await_ack(self, head: Entry) -> None:
        """The head becomes unacknowledged."""
        self.order.take(head)
        head.place = Place.UNACKED
        self.ready -= 1
        self.ready_bytes -= head.size

    def requeue(self, entry: Entry, *, redelivered: bool) -> None:
        """An unacknowledged one becomes ready again, in its original place."""
        entry.place, entry.redelivered = Place.READY, redelivered
        self.ready += 1
        self.ready_bytes += entry.size
        self.order.put_back(entry)

    def remove(self, entry: Entry) -> None:
        """It is gone. A ready one is out of the order already."""
        if entry.place is Place.READY:
            self.ready -= 1
            self.ready_bytes -= entry.size
        entry.place = Place.GONE
        self.bytes -= entry.size
        if entry.expiry is not None:
            self.expiring -= 1
        del self.entries[entry.id]

    def remove_segment(self, segment: Segment) -> None:
        """It is gone, unread."""
        self.ready -= segment.count
        self.ready_bytes -= segment.bytes
        self.bytes -= segment.bytes
        self.expiring -= segment.expiring

    # -- the head ----------------------------------------------------------------------------------

    def peek(self) -> Entry | None:
        """The next message that ``fetch`` would take; its content may be away. None if there is
        none, or if all of it is away (``is_head_away``).
        """
        return self.order.head()

    @property
    def is_head_away(self) -> bool:
        """Whether ``fetch`` needs ``ReadAhead.read`` first."""
        if not self.has_paged or not self.ready:
            return False
        head = self.order.head()
        return head is None or head.content is None

    # -- what is held ------------------------------------------------------------------------------

    @property
    def unacked(self) -> int:
        return len(self.entries) + self.in_delta - self.ready

    @property
    def depth(self) -> int:
        """Ready plus unacknowledged: what masters and mirrors compare."""
        return len(self.entries) + self.in_delta

    def unacked_among(self, ids: Iterable[int]) -> list[Entry]:
        found = (self.entries.get(key) for key in dict.fromkeys(ids))
        return [entry for entry in found if entry is not None and entry.place is Place.UNACKED]

    def unacked_ids(self) -> list[int]:
        """Ids of the unacknowledged messages, in order: what a promotion requeues."""
        return [entry.id for entry in self.by_serial() if entry.place is Place.UNACKED]

    def by_serial(self) -> list[Entry]:
        """Those in memory."""
        entries = list(self.entries.values())
        if self.has_paged:
            entries.sort(key=lambda entry: entry.serial)
        return entries

    def outline(self) -> list[tuple[int, bool, bool]] | None:
        """Each message by serial: its id, whether it is ready and whether it expires, for who
        compares replicas. None: not all is in memory."""
        if self.in_delta:
            return None
        ready = Place.READY
        return [(one.id, one.place is ready, one.expiry is not None) for one in self.by_serial()]

    def flags(self) -> list[tuple[int, bool]] | None:
        """Each message's id, and whether it counts as redelivered. None: not all is in memory."""
        if self.in_delta:
            return None
        return [(one.id, one.redelivered) for one in self.entries.values()]

    def contents(self) -> list[Held]:
        """Everything, ready and unacknowledged, by serial, if all is in memory."""
        assert not self.in_delta, "take a snapshot"
        return [held(entry) for entry in self.by_serial()]

    def get(self, message_id: int) -> Held | None:
        """A message by id, if it is in memory. See ``ReadAhead.load``."""
        entry = self.entries.get(message_id)
        return None if entry is None else held(entry)

    def __contains__(self, message_id: int) -> bool:
        """In a delta only those are known by id whose ``copy_may_come``."""
        if message_id in self.entries:
            return True
        return self.in_delta > 0 and any(line.has_id(message_id) for line in self.order.lines())

    def lengths(self) -> list[int]:
        """How many ready messages there are, by priority; one number without priorities."""
        return [sum(line.parts().values()) for line in self.order.lines()]

    def parts(self) -> dict[str, int]:
        """How many ready messages are in each of rabbit_variable_queue's five queues."""
        total = dict.fromkeys(("q1", "q2", "delta", "q3", "q4"), 0)
        for line in self.order.lines():
            for name, count in line.parts().items():
                total[name] += count
        return total
