"""BackingQueue: the messages of one queue process, in order, and on disk where they must be.

It plays the part of RabbitMQ's rabbit_variable_queue: a master and each of its mirrors hold one.
What happens in memory is synchronous; what happens on disk follows by group commit
(broker/rabbit/storage/flusher.py). ``publish`` returns the *mark* of the message; when
``index.durable_mark`` has reached it, the message is on disk and its publish may be confirmed.

Theory. Every message gets a serial number when it is published; order is the order of serials, also
after a requeue; a queue with priorities has one such order for each (message_order.py). The parts:

- ``messages``: which are ready, which await an acknowledgement, and how many (message_table.py);
- ``index``: what of a durable queue is in its journal, and its durability (queue_index.py);
- ``pager`` and ``ahead``: what memory has no room for goes to page files, and comes back
  (pager.py, read_ahead.py). A message is journaled and recovered as if it had never been paged.

The head may be paged out: ``messages.is_head_away`` says so, and the queue process awaits
``ahead.read`` before it fetches.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import NamedTuple

from shalott.broker.base.disk import Disk, Opens
from shalott.broker.base.env import Clock
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import Journal
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage import recovery
from shalott.broker.rabbit.storage.entries import Entry, Expiry, Place
from shalott.broker.rabbit.storage.memory import RamUse
from shalott.broker.rabbit.storage.message_table import MessageTable
from shalott.broker.rabbit.storage.pager import Pager
from shalott.broker.rabbit.storage.pages import PageFiles
from shalott.broker.rabbit.storage.queue_index import LiveRecords, QueueIndex, record_of
from shalott.broker.rabbit.storage.read_ahead import ReadAhead
from shalott.broker.rabbit.storage.recovery import Recovered
from shalott.broker.rabbit.storage.snapshot import Snapshot

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
    even if its directory holds messages) or ``recover`` (durable, with what a former life left).
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
        self.directory = directory
        self.last_serial = 0  # the next message gets the one after it
        self._reads_journal = False  # or may
        self.index = QueueIndex(journal, lambda: _live_records(self))
        self.messages = MessageTable(max_priority)
        self.ram = RamUse()
        reader = None if pages is None else pages.reader()
        self.ahead = ReadAhead(self.messages, self.ram, reader)
        self.pager = Pager(self.messages, self.ram, self.ahead, pages)

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
        journal = await Journal.open(disk, recovery.journal_of(directory))
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
        replay = recovery.Replay()
        journal = await Journal.open(disk, recovery.journal_of(directory), replay.take)
        found = await replay.finish(journal, clock)
        queue = cls(disk, directory, journal, max_priority, pages)
        queue.last_serial = found.last_serial
        try:
            await queue._enter(found)
        except StorageError:
            await journal.abandon()
            raise
        # As if they had all come now: else a queue without traffic would never be paged.
        queue.pager.traffic.count = queue.messages.depth
        return queue

    async def _enter(self, found: Recovered) -> None:
        """All, or none of a long queue: what is in the journal stays there until its turn comes."""
        stays = found.is_ordered and self.pager.files is not None
        if stays and len(found.segments) > 1 and not self.messages.has_priorities:
            self._reads_journal = True
            self.messages.enter_segments(found.segments)
            for segment in found.segments:
                self.index.count_segment(segment)
            return
        for entry in await found.entries():
            self.messages.enter(entry)
            self.pager.entered(entry)
            self.index.count(entry, entry.record_bytes)

    async def close(self) -> None:
        """A clean end: flush everything, note which messages were delivered. Then of no use.

        Raises StorageError (DiskFull too) if that can't be written; the files are closed all the
        same.
        """
        try:
            delivered: list[int] = []
            try:
                if self.index.is_durable:
                    in_memory = self.messages.by_serial()
                    delivered = [entry.serial for entry in in_memory if entry.redelivered]
                    delivered += [serial async for serial in _delivered_in_delta(self)]
            finally:
                await self.index.close(delivered)
        finally:
            await self.pager.stop()

    async def abandon(self) -> None:
        """End without writing anything more, as if killed. Returns when no write is under way.

        Await it before the directory is opened again.
        """
        await self.index.abandon()
        await self.pager.stop()

    async def wipe(self) -> None:
        """Delete the files. Then of no use. (The queue was deleted, or the mirror left.)"""
        await self.abandon()
        if self._disk is not None:
            await recovery.wipe(self._disk, self.directory)

    def on_failure(self, callback: Callable[[StorageError], None]) -> None:
        """Call ``callback(error)`` once, when a write or sync failed for good: crash the node.

        Nothing becomes durable any more after that. A full disk is not a failure: confirms wait and
        the flush is tried again. Without a listener the error is only logged.
        """
        self.pager.failure_listener = callback
        self.index.on_failure(callback)

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

        The id must not be here already: one queue takes a message once. ``copy_may_come``: its
        channel may ask by id whether it is here, before it is removed.
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
        assert content.id not in self.messages.entries, f"message {content.id} is here already"
        self.last_serial += 1
        entry = Entry(self.last_serial, content, redelivered, place, expiry)
        entry.copy_may_come = copy_may_come
        self.pager.traffic.count += 1
        self.messages.enter(entry)
        self.pager.entered(entry)
        return self.index.publish(entry, content, redelivered)

    # -- messages out ------------------------------------------------------------------------------

    def fetch(self, *, no_ack: bool = False) -> Fetched | None:
        """Take the head: it becomes unacknowledged, or with ``no_ack`` it is gone."""
        entry = self.messages.peek()
        if entry is None:
            assert not self.messages.ready, "the head is away: read ahead"
            return None
        redelivered, content = entry.redelivered, entry.content
        assert content is not None, "the head is away: read ahead"
        self.pager.traffic.count += 1
        self.messages.await_ack(entry)
        if no_ack:
            self._remove([entry])
        else:
            entry.redelivered = True  # should it ever become ready
            self.pager.delivered(entry)
        return Fetched(content, redelivered, self.messages.ready)

    def drop(self, count: int, *, ack_required: bool = False) -> list[Entry]:
        """Take up to ``count`` from the head without delivering them; fewer if the next is away.

        They are gone, or with ``ack_required`` unacknowledged: what a mirror does when its master
        fetched. Their contents may be away.
        """
        taken: list[Entry] = []
        while len(taken) < count and (entry := self.messages.peek()) is not None:
            self.messages.await_ack(entry)
            entry.redelivered = True
            taken.append(entry)
        self.pager.traffic.count += len(taken)
        if not ack_required:
            self._remove(taken)
        return taken

    def ack(self, ids: Iterable[int]) -> list[int]:
        """Forget unacknowledged messages. Returns those that were; other ids are ignored."""
        acked = self._remove(self.messages.unacked_among(ids))
        self.pager.traffic.count += len(acked)
        return acked

    def requeue(self, ids: Iterable[int], *, redelivered: bool = True) -> list[int]:
        """Unacknowledged ones become ready again, in their original place.

        Returns those that were unacknowledged; other ids are ignored.
        """
        entries = self.messages.unacked_among(ids)
        for entry in entries:
            self.messages.requeue(entry, redelivered=redelivered)
        return [entry.id for entry in entries]

    def purge(self) -> int:
        """Forget all ready messages; returns how many. The unacknowledged ones stay."""
        entries = self.messages.entries.values()
        return self._forget([entry for entry in entries if entry.place is Place.READY])

    def clear(self) -> int:
        """Forget everything, unacknowledged too; returns how many. (Mirrors, before a sync.)"""
        return self._forget(list(self.messages.entries.values()))

    def _forget(self, entries: list[Entry]) -> int:
        """These and all that is in deltas: no ready one is left."""
        segments = [segment for line in self.messages.order.lines() for segment in line.clear()]
        count = len(entries) + sum(segment.count for segment in segments)
        journaled = sum(segment.journaled for segment in segments)
        self._remove(entries, is_told=not journaled)
        for segment in segments:
            self.messages.remove_segment(segment)
            self.index.uncount_segment(segment)
        self.pager.left_delta(segments)
        if journaled:
            kept = [e.serial for e in self.messages.entries.values() if e.record_bytes]
            self.index.purge(self.last_serial, kept)
        return count

    def _remove(self, entries: list[Entry], *, is_told: bool = True) -> list[int]:
        """Ready ones are out of the order already. ``is_told``: the journal hears of each."""
        journaled = [entry.serial for entry in entries if entry.record_bytes]
        for entry in entries:
            self.messages.remove(entry)
            self.index.uncount(entry)
            self.pager.left(entry)
        if is_told:
            self.index.remove(journaled)
        return [entry.id for entry in entries]

    # -- all of them -------------------------------------------------------------------------------

    def is_read_from_journal(self) -> bool:
        """Whether its file must stay as it is."""
        if self._reads_journal:
            lines = self.messages.order.lines()
            waits = any(line.delta and line.delta[0].source is not None for line in lines)
            assert self.pager.files is not None
            self._reads_journal = waits or self.pager.files.is_pinned
        return self._reads_journal

    def snapshot(self, disk: Opens | None = None) -> Snapshot:
        """All messages, in memory or not: what a synchronisation sends. ``disk``: the queue's own,
        or one with the same files."""
        lines = self.messages.order.lines()
        return Snapshot(self.messages.by_serial(), lines, self.pager.files, disk)


async def _delivered_in_delta(queue: BackingQueue) -> AsyncIterator[int]:
    """Serials of those that count as delivered, and whose records don't say so."""
    segments = [segment for line in queue.messages.order.lines() for segment in line.delta]
    for segment in segments:
        if segment.source is not None:
            for serial in segment.source.delivered():
                yield serial
    if not any(segment.unrecorded for segment in segments if segment.source is None):
        return
    snapshot = Snapshot((), queue.messages.order.lines(), queue.pager.files)
    while part := await snapshot.take_entries(PART_COUNT, PART_BYTES):
        for entry, _ in part:
            if entry.page is not None and entry.redelivered and not entry.is_flag_recorded:
                yield entry.serial
    await snapshot.close()


def _live_records(queue: BackingQueue) -> LiveRecords | None:
    """None while what the journal holds is read from there: garbage is mostly what was read."""
    if queue.is_read_from_journal():
        return None
    if queue.messages.has_paged:
        return _live_records_of_pages(queue)
    live = [
        (entry, entry.content)
        for entry in queue.messages.entries.values()
        if entry.record_bytes and entry.content is not None
    ]
    return (record_of(entry, content, entry.redelivered) for entry, content in live)


async def _live_records_of_pages(queue: BackingQueue) -> AsyncGenerator[bytes, None]:
    snapshot = queue.snapshot()
    try:
        while part := await snapshot.take_entries(PART_COUNT, PART_BYTES):
            for entry, content in part:
                if entry.record_bytes:
                    yield record_of(entry, content, entry.redelivered)
    finally:
        await snapshot.close()
