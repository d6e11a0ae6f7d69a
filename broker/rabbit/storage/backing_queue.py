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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Clock, never
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import Journal
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage import recovery
from shalott.broker.rabbit.storage.entries import Entry, Expiry, Line, Lines, Order, Place
from shalott.broker.rabbit.storage.flusher import Flusher
from shalott.broker.rabbit.storage.queue_records import Closed, Published, Removed, encode_record

Record = bytes  # inside the class, ``bytes`` is a property

# Compact when this much of the journal is garbage, and half of it at least.
COMPACT_MIN_GARBAGE_BYTES = 1 << 20
# Where buggify makes it happen early: still, so much is garbage, and such a part of what is kept.
EARLY_MIN_GARBAGE_BYTES, EARLY_MIN_GARBAGE_SHARE = 4096, 1 / 8


class Fetched(NamedTuple):
    """What ``fetch`` took."""

    content: Content
    redelivered: bool
    remaining: int  # ready messages left


class Held(NamedTuple):
    """A message as the looks show it."""

    content: Content
    redelivered: bool
    unacked: bool
    expiry: Expiry | None = None


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
    ) -> None:
        """Use the constructors below. ``max_priority`` None: the queue has no priorities."""
        self._disk = disk
        self._directory = directory
        self._flusher = None if journal is None else Flusher(journal, self._compaction)
        self._serial = 0
        # In order of serials, because a message enters once and never moves.
        self._entries: dict[int, Entry] = {}
        self._order: Order = Line() if max_priority is None else Lines(max_priority)
        self.has_priorities = max_priority is not None
        self._ready = 0
        self._ready_bytes = 0
        self._bytes = 0
        self._live_record_bytes = 0
        self.expiring = 0  # messages whose time to live is limited
        self.buggify: Callable[[str], bool] = never  # of the node's Env

    # -- life --------------------------------------------------------------------------------------

    @classmethod
    def in_memory(cls, *, max_priority: int | None = None) -> BackingQueue:
        """For a queue that is not durable: no journal; every mark is 0 and durable at once."""
        return cls(None, "", None, max_priority)

    @classmethod
    async def create(
        cls, disk: Disk, directory: str, *, max_priority: int | None = None
    ) -> BackingQueue:
        """A durable queue that starts empty: what ``directory`` held is wiped. Mirrors start so."""
        await recovery.wipe(disk, directory)
        journal = await recovery.open_journal(disk, directory)
        return cls(disk, directory, journal, max_priority)

    @classmethod
    async def recover(
        cls,
        disk: Disk,
        directory: str,
        *,
        max_priority: int | None = None,
        clock: Clock | None = None,
    ) -> BackingQueue:
        """Rebuild from ``directory`` after any end; empty if there is nothing. All are ready.

        ``clock`` tells what is left of a message's time to live; without it nothing expires.
        Raises StorageError if the journal is corrupted in the middle (the file is left as it is),
        and DiskFull if there is no room to note that it was opened.
        """
        journal = await recovery.open_journal(disk, directory)
        found = await recovery.replay(journal)
        queue = cls(disk, directory, journal, max_priority)
        for message in found.messages:
            expiry = None
            if clock is not None and message.expires_wall_ns is not None:
                # Time went on while the queue was down.
                expiry = Expiry.after(clock, message.expires_wall_ns - clock.wall_ns())
            entry = Entry(message.serial, message.content, message.redelivered, Place.READY, expiry)
            queue._enter(entry)
            queue._count_record(entry, message.record_bytes)
        queue._serial = found.last_serial
        return queue

    async def close(self) -> None:
        """A clean end: flush everything, note which messages were delivered. Then of no use.

        Raises StorageError (DiskFull too) if that can't be written; the files are closed all the
        same.
        """
        if self._flusher is not None:
            delivered = [entry.serial for entry in self._entries.values() if entry.redelivered]
            await self._flusher.close(encode_record(Closed(delivered)))

    async def abandon(self) -> None:
        """End without writing anything more, as if killed. Returns when no write is under way.

        Await it before the directory is opened again.
        """
        if self._flusher is not None:
            await self._flusher.abandon()

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
        if self._flusher is not None:
            self._flusher.failure_listener = callback

    async def wait_durable(self, mark: int) -> None:
        """Until ``durable_mark >= mark``. Raises StorageError if that can't be any more."""
        if self._flusher is not None:
            await self._flusher.wait_durable(mark)

    # -- messages in -------------------------------------------------------------------------------

    def publish(
        self, content: Content, *, redelivered: bool = False, expiry: Expiry | None = None
    ) -> int:
        """Append at the tail. Returns its mark: 0 if there is nothing to wait for.

        The id must not be here already: one queue takes a message once.
        """
        return self._take_in(content, redelivered, Place.READY, expiry)

    def publish_delivered(
        self, content: Content, *, redelivered: bool = False, expiry: Expiry | None = None
    ) -> int:
        """Add a message to the unacknowledged ones: it was delivered without having waited.

        Returns its mark.
        """
        return self._take_in(content, redelivered, Place.UNACKED, expiry)

    def _take_in(
        self, content: Content, redelivered: bool, place: Place, expiry: Expiry | None
    ) -> int:
        assert content.id not in self._entries, f"message {content.id} is here already"
        self._serial += 1
        entry = Entry(self._serial, content, redelivered, place, expiry)
        self._enter(entry)
        if self._flusher is None or not content.persistent:
            return 0
        record = encode_record(_record_of(entry, redelivered))
        self._count_record(entry, len(record))
        # A flush may come late: nothing is promised before it.
        return self._flusher.append(record, eager=not self.buggify("storage.flush_late"))

    def _enter(self, entry: Entry) -> None:
        size = len(entry.content.body)
        self._entries[entry.content.id] = entry
        self._bytes += size
        if entry.place is Place.READY:
            self._order.add(entry)
            self._ready += 1
            self._ready_bytes += size
        else:
            entry.redelivered = True  # should it ever become ready
        if entry.expiry is not None:
            self.expiring += 1

    def _count_record(self, entry: Entry, size: int) -> None:
        entry.record_bytes = size
        self._live_record_bytes += size

    # -- messages out ------------------------------------------------------------------------------

    def peek(self) -> Held | None:
        """The next message that ``fetch`` would take."""
        entry = self._order.head()
        return None if entry is None else _held(entry)

    def fetch(self, *, no_ack: bool = False) -> Fetched | None:
        """Take the head: it becomes unacknowledged, or with ``no_ack`` it is gone."""
        entry = self._order.head()
        if entry is None:
            return None
        redelivered = entry.redelivered
        if no_ack:
            self._remove([entry])
        else:
            self._to_unacked(entry)
            entry.redelivered = True  # should it ever become ready
        return Fetched(entry.content, redelivered, self._ready)

    def drop(self, count: int, *, ack_required: bool = False) -> list[Content]:
        """Take up to ``count`` from the head without delivering them.

        They are gone, or with ``ack_required`` unacknowledged: what a mirror does when its master
        fetched.
        """
        taken: list[Entry] = []
        while len(taken) < count and (entry := self._order.head()) is not None:
            self._to_unacked(entry)
            entry.redelivered = True
            taken.append(entry)
        if not ack_required:
            self._remove(taken)
        return [entry.content for entry in taken]

    def ack(self, ids: Iterable[int]) -> list[int]:
        """Forget unacknowledged messages. Returns those that were; other ids are ignored."""
        return self._remove(self._unacked_among(ids))

    def requeue(self, ids: Iterable[int], *, redelivered: bool = True) -> list[int]:
        """Unacknowledged ones become ready again, in their original place.

        Returns those that were unacknowledged; other ids are ignored.
        """
        entries = self._unacked_among(ids)
        for entry in entries:
            entry.place, entry.redelivered = Place.READY, redelivered
            self._ready += 1
            self._ready_bytes += len(entry.content.body)
            self._order.put_back(entry)
        return [entry.content.id for entry in entries]

    def discard(self, ids: Iterable[int]) -> list[int]:
        """Forget messages wherever they are, ready or not. Returns those that were here."""
        wanted = dict.fromkeys(ids)
        return self._remove([self._entries[key] for key in wanted if key in self._entries])

    def purge(self) -> int:
        """Forget all ready messages; returns how many. The unacknowledged ones stay."""
        entries = [entry for entry in self._entries.values() if entry.place is Place.READY]
        return len(self._remove(entries))

    def clear(self) -> int:
        """Forget everything, unacknowledged too; returns how many. (Mirrors, before a sync.)"""
        return len(self._remove(list(self._entries.values())))

    def _to_unacked(self, head: Entry) -> None:
        self._order.take(head)
        head.place = Place.UNACKED
        self._ready -= 1
        self._ready_bytes -= len(head.content.body)

    def _unacked_among(self, ids: Iterable[int]) -> list[Entry]:
        found = (self._entries.get(key) for key in dict.fromkeys(ids))
        return [entry for entry in found if entry is not None and entry.place is Place.UNACKED]

    def _remove(self, entries: list[Entry]) -> list[int]:
        journaled = [entry.serial for entry in entries if entry.record_bytes]
        for entry in entries:
            size = len(entry.content.body)
            if entry.place is Place.READY:
                self._ready -= 1
                self._ready_bytes -= size
            entry.place = Place.GONE
            self._bytes -= size
            self._live_record_bytes -= entry.record_bytes
            if entry.expiry is not None:
                self.expiring -= 1
            del self._entries[entry.content.id]
        if journaled and self._flusher is not None:
            self._flusher.append(encode_record(Removed(journaled)), eager=False)
        return [entry.content.id for entry in entries]

    # -- looks -------------------------------------------------------------------------------------

    def contents(self) -> list[Held]:
        """Everything, ready and unacknowledged, by serial: what a synchronisation sends."""
        return [_held(entry) for entry in self._entries.values()]

    def unacked_ids(self) -> list[int]:
        """Ids of the unacknowledged messages, in order: what a promotion requeues."""
        return [key for key, entry in self._entries.items() if entry.place is Place.UNACKED]

    def get(self, message_id: int) -> Held | None:
        """A message by id."""
        entry = self._entries.get(message_id)
        return None if entry is None else _held(entry)

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._entries

    @property
    def ready(self) -> int:
        return self._ready

    @property
    def unacked(self) -> int:
        return len(self._entries) - self._ready

    @property
    def depth(self) -> int:
        """Ready plus unacknowledged: what masters and mirrors compare."""
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Body bytes of all messages."""
        return self._bytes

    @property
    def ready_bytes(self) -> int:
        """Body bytes of the ready messages (x-max-length-bytes counts these)."""
        return self._ready_bytes

    # -- compaction --------------------------------------------------------------------------------

    def _compaction(self, journal_bytes: int) -> Iterator[Record] | None:
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
        live = [entry for entry in self._entries.values() if entry.record_bytes]
        return (encode_record(_record_of(entry, entry.redelivered)) for entry in live)


def _held(entry: Entry) -> Held:
    return Held(entry.content, entry.redelivered, entry.place is Place.UNACKED, entry.expiry)


def _record_of(entry: Entry, redelivered: bool) -> Published:
    expires_ns = None if entry.expiry is None else entry.expiry.wall_ns
    return Published(entry.serial, redelivered, entry.content, expires_ns)
