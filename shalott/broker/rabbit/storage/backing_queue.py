"""BackingQueue: the messages of one queue process, in order, and on disk where they must be.

It plays the part of RabbitMQ's rabbit_variable_queue: a master and each of its mirrors hold one.
What happens in memory is synchronous; what happens on disk follows by group commit
(broker/rabbit/storage/flusher.py). ``publish`` returns the *mark* of the message; when
``durable_mark`` has reached it, the message is on disk and its publish may be confirmed.

Theory. Every message gets a serial number when it is published; order is the order of serials, also
after a requeue; a queue with priorities has one such order for each (entries.py). Only persistent
messages of a durable queue (one with a journal) are journaled: a Published record each, and a
Removed record for those acked, dropped or purged. Deliveries are not journaled: after an unclean
end every message that is recovered counts as redelivered, because it may have been delivered
(RabbitMQ does the same). A clean ``close`` appends the serials that were delivered, so that a
graceful restart keeps the exact flags. Losing an unsynced Removed record makes an acked message
come back; that is the one anomaly that a crash may show here, and AMQP allows it.

What memory has no room for goes to page files (pager.py), which are no part of that: a message is
journaled and recovered as if it had never been paged. The head may then be away: ``is_head_away``
says so, and whoever wants it awaits ``read_ahead`` first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from typing import NamedTuple

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Clock, never
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import Journal
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage import recovery
from shalott.broker.rabbit.storage.entries import Entry, Expiry, Place
from shalott.broker.rabbit.storage.flusher import Flusher
from shalott.broker.rabbit.storage.memory import MemoryMonitor
from shalott.broker.rabbit.storage.message_order import Line, Lines, Order
from shalott.broker.rabbit.storage.pager import Pager
from shalott.broker.rabbit.storage.pages import Opens, PageFiles
from shalott.broker.rabbit.storage.recovery import (
    Closed,
    Published,
    Purged,
    Removed,
    encode_record,
)
from shalott.broker.rabbit.storage.snapshot import Held, Snapshot, held

Record = bytes  # inside the class, ``bytes`` is a property

# Compact when this much of the journal is garbage, and half of it at least.
COMPACT_MIN_GARBAGE_BYTES = 1 << 20
# Where buggify makes it happen early: still, so much is garbage, and such a part of what is kept.
EARLY_MIN_GARBAGE_BYTES, EARLY_MIN_GARBAGE_SHARE = 4096, 1 / 8
# A snapshot of what is paged is gone through in such parts.
PART_COUNT, PART_BYTES = 1024, 1 << 20


class Fetched(NamedTuple):
    """What ``fetch`` took."""

    content: Content
    redelivered: bool
    remaining: int  # ready messages left


class BackingQueue:
    """Ready and unacknowledged messages of one queue process. Message ids are ``Content.id``.

    Build it with ``in_memory`` (a queue that is not durable), ``create`` (durable, starts empty
    whatever was there) or ``recover`` (durable, with what a former life left).
    """

    def __init__(
        self,
        disk: Disk | None,
        directory: str,
        journal: Journal | None,
        max_priority: int | None = None,
        pages: PageFiles | None = None,
    ) -> None:
        """Use the constructors below. ``max_priority`` None: the queue has no priorities.
        ``pages`` None: all stays in memory.
        """
        self._disk = disk
        self._directory = directory
        self._flusher = None if journal is None else Flusher(journal, self._compaction)
        self._serial = 0
        # By id: those in memory. In order of serials, until a segment was read back.
        self._entries: dict[int, Entry] = {}
        self._order: Order = Line() if max_priority is None else Lines(max_priority)
        self.pager = Pager(self._entries, self._order, pages)
        self.has_priorities = max_priority is not None
        self._ready = 0
        self._ready_bytes = 0
        self._bytes = 0
        self._live_record_bytes = 0
        self.expiring = 0  # messages whose time to live is limited
        self.buggify: Callable[[str], bool] = never  # of the node's Env

    # -- life --------------------------------------------------------------------------------------

    @classmethod
    def in_memory(
        cls, *, max_priority: int | None = None, pages: PageFiles | None = None
    ) -> BackingQueue:
        """For a queue that is not durable: no journal; every mark is 0 and durable at once."""
        return cls(None, "", None, max_priority, pages)

    @classmethod
    async def create(
        cls,
        disk: Disk,
        directory: str,
        *,
        max_priority: int | None = None,
        pages: PageFiles | None = None,
    ) -> BackingQueue:
        """A durable queue that starts empty: what ``directory`` held is wiped. Mirrors start so."""
        await recovery.wipe(disk, directory)
        journal = await recovery.open_journal(disk, directory)
        return cls(disk, directory, journal, max_priority, pages)

    @classmethod
    async def recover(
        cls,
        disk: Disk,
        directory: str,
        *,
        max_priority: int | None = None,
        clock: Clock | None = None,
        pages: PageFiles | None = None,
    ) -> BackingQueue:
        """Rebuild from ``directory`` after any end; empty if there is nothing. All are ready.

        ``clock`` tells what is left of a message's time to live; without it nothing expires.
        Raises StorageError if the journal is corrupted in the middle (the file is left as it is),
        and DiskFull if there is no room to note that it was opened.
        """
        journal = await recovery.open_journal(disk, directory)
        found = await recovery.replay(journal)
        queue = cls(disk, directory, journal, max_priority, pages)
        for message in found.messages:
            expiry = None
            if clock is not None and message.expires_wall_ns is not None:
                # Time went on while the queue was down.
                expiry = Expiry.after(clock, message.expires_wall_ns - clock.wall_ns())
            entry = Entry(message.serial, message.content, message.redelivered, Place.READY, expiry)
            entry.is_flag_recorded = message.is_flag_recorded
            queue._enter(entry)
            queue._count_record(entry, message.record_bytes)
        queue._serial = found.last_serial
        # As if they had all come now: else a queue that nobody uses yet would never be paged.
        queue.pager.traffic.count = len(found.messages)
        return queue

    async def close(self) -> None:
        """A clean end: flush everything, note which messages were delivered. Then of no use.

        Raises StorageError (DiskFull too) if that can't be written; the files are closed all the
        same.
        """
        try:
            await self._close_journal()
        finally:
            await self.pager.stop()

    async def _close_journal(self) -> None:
        if self._flusher is not None:
            delivered = [entry.serial for entry in self._by_serial() if entry.redelivered]
            try:
                delivered += [serial async for serial in self._delivered_in_delta()]
            finally:
                await self._flusher.close(encode_record(Closed(delivered)))

    async def _delivered_in_delta(self) -> AsyncIterator[int]:
        """Serials of those that count as delivered, and whose records don't say so."""
        segments = [segment for line in self._order.lines() for segment in line.delta]
        if not any(segment.unrecorded for segment in segments):
            return
        snapshot = Snapshot((), self._order.lines(), self.pager.files)
        while part := await snapshot.take_entries(PART_COUNT, PART_BYTES):
            for entry, _ in part:
                if entry.redelivered and not entry.is_flag_recorded:
                    yield entry.serial
        await snapshot.close()

    async def abandon(self) -> None:
        """End without writing anything more, as if killed. Returns when no write is under way.

        Await it before the directory is opened again.
        """
        if self._flusher is not None:
            await self._flusher.abandon()
        await self.pager.stop()

    async def wipe(self) -> None:
        """Delete the files. Then of no use. (The queue was deleted, or the mirror left.)"""
        await self.abandon()
        if self._disk is not None:
            await recovery.wipe(self._disk, self._directory)

    # -- durability --------------------------------------------------------------------------------

    def mark(self) -> int:
        """When this is durable, all that happened so far is on disk. Starts at 0 in each object."""
        return 0 if self._flusher is None else self._flusher.mark

    @property
    def durable_mark(self) -> int:
        """Every publish with a mark up to this one is on disk."""
        return 0 if self._flusher is None else self._flusher.durable_mark

    def sync_after(self, interval_ms: int) -> None:
        """Let publishes wait so long for company before they are synced (Flusher)."""
        if self._flusher is not None:
            self._flusher.sync_interval_ms = interval_ms

    @property
    def sync_timer_runs(self) -> bool:
        return self._flusher is not None and self._flusher.timer_runs

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(durable_mark)`` from the event loop each time the durable mark has grown.

        One listener; it must not raise. It runs outside any process: let it put a message into the
        process's own mailbox.
        """
        if self._flusher is not None:
            self._flusher.durable_listener = callback

    def on_failure(self, callback: Callable[[StorageError], None]) -> None:
        """Call ``callback(error)`` once, when a write or sync failed for good: crash the node.

        Nothing becomes durable any more after that. A full disk is not a failure: confirms wait and
        the flush is tried again. Without a listener the error is only logged.
        """
        self.pager.failure_listener = callback
        if self._flusher is not None:
            self._flusher.failure_listener = callback

    async def wait_durable(self, mark: int) -> None:
        """Until ``durable_mark >= mark``. Raises StorageError if that can't be any more."""
        if self._flusher is not None:
            await self._flusher.wait_durable(mark)

    # -- messages in -------------------------------------------------------------------------------

    def publish(
        self,
        content: Content,
        *,
        redelivered: bool = False,
        expiry: Expiry | None = None,
        copy_may_come: bool = False,
    ) -> int:
        """Append at the tail. Returns its mark: 0 if there is nothing to wait for.

        The id must not be here already: one queue takes a message once. ``copy_may_come``: somebody
        may ask by id whether it is here, before it is removed.
        """
        return self._take_in(content, redelivered, Place.READY, expiry, copy_may_come)

    def publish_delivered(
        self,
        content: Content,
        *,
        redelivered: bool = False,
        expiry: Expiry | None = None,
        copy_may_come: bool = False,
    ) -> int:
        """Add a message to the unacknowledged ones: it was delivered without having waited.

        Returns its mark.
        """
        return self._take_in(content, redelivered, Place.UNACKED, expiry, copy_may_come)

    def _take_in(
        self,
        content: Content,
        redelivered: bool,
        place: Place,
        expiry: Expiry | None,
        copy_may_come: bool,
    ) -> int:
        assert content.id not in self._entries, f"message {content.id} is here already"
        self._serial += 1
        entry = Entry(self._serial, content, redelivered, place, expiry)
        entry.copy_may_come = copy_may_come
        self.pager.traffic.count += 1
        self._enter(entry)
        if self._flusher is None or not content.persistent:
            return 0
        record = encode_record(_record_of(entry, content, redelivered))
        self._count_record(entry, len(record))
        # A flush may come late: nothing is promised before it.
        return self._flusher.append(record, eager=not self.buggify("storage.flush_late"))

    def _enter(self, entry: Entry) -> None:
        size = entry.size
        self._entries[entry.id] = entry
        self._bytes += size
        if entry.place is Place.READY:
            self._order.add(entry)
            self._ready += 1
            self._ready_bytes += size
        else:
            entry.redelivered = True  # should it ever become ready
        if entry.expiry is not None:
            self.expiring += 1
        self.pager.entered(entry)

    def _count_record(self, entry: Entry, size: int) -> None:
        entry.record_bytes = size
        self._live_record_bytes += size

    # -- messages out ------------------------------------------------------------------------------

    def peek(self) -> Entry | None:
        """The next message that ``fetch`` would take; its content may be away. None if there is
        none, or if all of it is away (``is_head_away``).
        """
        return self._order.head()

    @property
    def is_head_away(self) -> bool:
        """Whether ``fetch`` needs ``read_ahead`` first."""
        if not self.pager.has_paged or not self._ready:
            return False
        head = self._order.head()
        return head is None or head.content is None

    async def find_head(self) -> None:
        """See that ``peek`` and ``drop`` have the head. Raises StorageError."""
        await self.pager.find_head()

    async def read_ahead(self) -> None:
        """See that ``fetch`` has the head, and some behind it. Raises StorageError."""
        await self.pager.read_ahead()

    async def load(self, ids: Iterable[int]) -> None:
        """See that ``get`` has these, if they are unacknowledged. Raises StorageError."""
        await self.pager.load(self._unacked_among(ids))

    def fetch(self, *, no_ack: bool = False) -> Fetched | None:
        """Take the head: it becomes unacknowledged, or with ``no_ack`` it is gone."""
        entry = self._order.head()
        if entry is None:
            assert not self._ready, "the head is away: read ahead"
            return None
        redelivered, content = entry.redelivered, entry.content
        assert content is not None, "the head is away: read ahead"
        self.pager.traffic.count += 1
        self._to_unacked(entry)
        if no_ack:
            self._remove([entry])
        else:
            entry.redelivered = True  # should it ever become ready
            self.pager.delivered(entry)
        return Fetched(content, redelivered, self._ready)

    def drop(self, count: int, *, ack_required: bool = False) -> list[Entry]:
        """Take up to ``count`` from the head without delivering them; fewer if the next is away.

        They are gone, or with ``ack_required`` unacknowledged: what a mirror does when its master
        fetched. Their contents may be away.
        """
        taken: list[Entry] = []
        while len(taken) < count and (entry := self._order.head()) is not None:
            self._to_unacked(entry)
            entry.redelivered = True
            taken.append(entry)
        self.pager.traffic.count += len(taken)
        if not ack_required:
            self._remove(taken)
        return taken

    def ack(self, ids: Iterable[int]) -> list[int]:
        """Forget unacknowledged messages. Returns those that were; other ids are ignored."""
        acked = self._remove(self._unacked_among(ids))
        self.pager.traffic.count += len(acked)
        return acked

    def requeue(self, ids: Iterable[int], *, redelivered: bool = True) -> list[int]:
        """Unacknowledged ones become ready again, in their original place.

        Returns those that were unacknowledged; other ids are ignored.
        """
        entries = self._unacked_among(ids)
        for entry in entries:
            entry.place, entry.redelivered = Place.READY, redelivered
            self._ready += 1
            self._ready_bytes += entry.size
            self._order.put_back(entry)
        return [entry.id for entry in entries]

    def purge(self) -> int:
        """Forget all ready messages; returns how many. The unacknowledged ones stay."""
        entries = [entry for entry in self._entries.values() if entry.place is Place.READY]
        return self._forget(entries)

    def clear(self) -> int:
        """Forget everything, unacknowledged too; returns how many. (Mirrors, before a sync.)"""
        return self._forget(list(self._entries.values()))

    def _forget(self, entries: list[Entry]) -> int:
        """These and all that is in deltas: no ready one is left."""
        segments = [segment for line in self._order.lines() for segment in line.clear()]
        count = len(entries) + sum(segment.count for segment in segments)
        journaled = sum(segment.journaled for segment in segments)
        self._remove(entries, is_told=not journaled)
        for segment in segments:
            self._ready -= segment.count
            self._ready_bytes -= segment.bytes
            self._bytes -= segment.bytes
            self._live_record_bytes -= segment.record_bytes
            self.expiring -= segment.expiring
        self.pager.left_delta(segments)
        if journaled and self._flusher is not None:
            kept = [entry.serial for entry in self._entries.values() if entry.record_bytes]
            self._flusher.append(encode_record(Purged(self._serial, kept)), eager=False)
        return count

    def _to_unacked(self, head: Entry) -> None:
        self._order.take(head)
        head.place = Place.UNACKED
        self._ready -= 1
        self._ready_bytes -= head.size

    def _unacked_among(self, ids: Iterable[int]) -> list[Entry]:
        found = (self._entries.get(key) for key in dict.fromkeys(ids))
        return [entry for entry in found if entry is not None and entry.place is Place.UNACKED]

    def _remove(self, entries: list[Entry], *, is_told: bool = True) -> list[int]:
        """Ready ones are out of the order already. ``is_told``: the journal hears of each."""
        journaled = [entry.serial for entry in entries if entry.record_bytes]
        for entry in entries:
            if entry.place is Place.READY:
                self._ready -= 1
                self._ready_bytes -= entry.size
            entry.place = Place.GONE
            self._bytes -= entry.size
            self._live_record_bytes -= entry.record_bytes
            if entry.expiry is not None:
                self.expiring -= 1
            del self._entries[entry.id]
            self.pager.left(entry)
        if journaled and is_told and self._flusher is not None:
            self._flusher.append(encode_record(Removed(journaled)), eager=False)
        return [entry.id for entry in entries]

    # -- looks -------------------------------------------------------------------------------------

    def contents(self) -> list[Held]:
        """Everything, ready and unacknowledged, by serial, if all is in memory."""
        assert not self.pager.in_delta, "take a snapshot"
        return [held(entry) for entry in self._by_serial()]

    def snapshot(self, disk: Opens | None = None) -> Snapshot:
        """The same, wherever it is: what a synchronisation sends. ``disk``: the queue's own, or one
        with the same files."""
        return Snapshot(self._by_serial(), self._order.lines(), self.pager.files, disk)

    def lengths(self) -> list[int]:
        """How many ready messages there are, by priority; one number without priorities."""
        return [sum(line.parts().values()) for line in self._order.lines()]

    def parts(self) -> dict[str, int]:
        """How many ready messages are in each of rabbit_variable_queue's five queues."""
        total = dict.fromkeys(("q1", "q2", "delta", "q3", "q4"), 0)
        for line in self._order.lines():
            for name, count in line.parts().items():
                total[name] += count
        return total

    def _by_serial(self) -> list[Entry]:
        entries = list(self._entries.values())
        if self.pager.has_paged:
            entries.sort(key=lambda entry: entry.serial)
        return entries

    def unacked_ids(self) -> list[int]:
        """Ids of the unacknowledged messages, in order: what a promotion requeues."""
        return [entry.id for entry in self._by_serial() if entry.place is Place.UNACKED]

    def get(self, message_id: int) -> Held | None:
        """A message by id, if it is in memory. See ``load``."""
        entry = self._entries.get(message_id)
        return None if entry is None else held(entry)

    def __contains__(self, message_id: int) -> bool:
        """In a delta only those are known by id whose ``copy_may_come``."""
        if message_id in self._entries:
            return True
        return self.pager.in_delta > 0 and any(
            line.has_id(message_id) for line in self._order.lines()
        )

    @property
    def ready(self) -> int:
        return self._ready

    @property
    def unacked(self) -> int:
        return len(self._entries) + self.pager.in_delta - self._ready

    @property
    def depth(self) -> int:
        """Ready plus unacknowledged: what masters and mirrors compare."""
        return len(self._entries) + self.pager.in_delta

    def join(self, monitor: MemoryMonitor) -> None:
        """The node's: it says how much of this may be in memory."""
        self.pager.join(monitor)

    def set_lazy(self, is_lazy: bool) -> None:
        """Lazy: only what is read ahead is in memory. Any time."""
        self.pager.set_lazy(is_lazy)

    @property
    def bytes(self) -> int:
        """Body bytes of all messages."""
        return self._bytes

    @property
    def ready_bytes(self) -> int:
        """Body bytes of the ready messages (x-max-length-bytes counts these)."""
        return self._ready_bytes

    # -- compaction --------------------------------------------------------------------------------

    def _compaction(
        self, journal_bytes: int
    ) -> Iterator[Record] | AsyncGenerator[Record, None] | None:
        """The records that would replace a journal of ``journal_bytes``, if it is worth it now."""
        garbage = journal_bytes - self._live_record_bytes
        # Always right, seldom worth it.
        early_bytes = EARLY_MIN_GARBAGE_SHARE * self._live_record_bytes
        is_early = garbage >= max(EARLY_MIN_GARBAGE_BYTES, early_bytes) and self.buggify(
            "storage.compact_early"
        )
        if not is_early and (
            garbage < COMPACT_MIN_GARBAGE_BYTES or garbage < self._live_record_bytes
        ):
            return None
        # A snapshot: those removed while it is being written are in it, and a Removed record
        # follows.
        if self.pager.has_paged:
            return self._live_records()
        live = [
            (entry, entry.content)
            for entry in self._entries.values()
            if entry.record_bytes and entry.content is not None
        ]
        return (encode_record(_record_of(entry, c, entry.redelivered)) for entry, c in live)

    async def _live_records(self) -> AsyncGenerator[Record, None]:
        snapshot = self.snapshot()
        try:
            while part := await snapshot.take_entries(PART_COUNT, PART_BYTES):
                for entry, content in part:
                    if entry.record_bytes:
                        yield encode_record(_record_of(entry, content, entry.redelivered))
        finally:
            await snapshot.close()


def _record_of(entry: Entry, content: Content, redelivered: bool) -> Published:
    expires_ns = None if entry.expiry is None else entry.expiry.wall_ns
    return Published(entry.serial, redelivered, content, expires_ns)
