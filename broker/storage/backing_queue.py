"""BackingQueue: the messages of one queue process, in order, and on disk where they must be.

It plays the part of RabbitMQ's rabbit_variable_queue: a master and each of its mirrors hold one. What happens in memory is
synchronous; what happens on disk follows by group commit: all that was appended since the last flush is
written and synced together, one flush at a time. ``publish`` returns the *mark* of the message; when ``durable_mark`` has
reached it, the message is on disk and its publish may be confirmed.

Theory. Every message gets a serial number when it is published; order is the order of serials, also after a requeue.
Only persistent messages of a durable queue (one with a journal) are journaled: a Published record each, a
Removed record for those acked, dropped or purged. Deliveries are not journaled; after an unclean end every
message that is recovered counts as redelivered, because it may have been (RabbitMQ does the same). A clean ``close`` appends
the delivered serials, so that a graceful restart keeps the exact flags. Losing an unsynced Removed record makes
an acked message come back; that is the one kind of anomaly that a crash may show here, and AMQP allows it.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from broker.amqp.queue_protocol import Content
from broker.disk import Disk
from broker.errors import DiskFull, StorageError
from broker.storage.journal import Journal

log = logging.getLogger("broker.storage")

JOURNAL = "journal"
# Removals alone are not worth a sync each: nobody waits for them.
LAZY_FLUSH_MS = 50
DISK_FULL_RETRY_MS = 500
# Compact when at least this much of the journal is garbage, and more than half of it.
COMPACT_MIN_GARBAGE_BYTES = 1 << 20


class Place(enum.IntEnum):
    """Where a message is."""

    READY = 0
    UNACKED = 1
    GONE = 2  # removed, but an ordering structure may still refer to it


class Entry:
    """One message. ``mark`` is 0 unless it is journaled."""

    __slots__ = ("content", "mark", "place", "record_bytes", "redelivered", "serial")

    def __init__(self, serial: int, content: Content, redelivered: bool, place: Place) -> None:
        self.serial = serial
        self.content = content
        self.redelivered = redelivered
        self.place = place
        self.mark = 0
        self.record_bytes = 0  # in the journal; 0 if it isn't there


class Fetched(NamedTuple):
    content: Content
    redelivered: bool
    remaining: int  # ready messages left


class Held(NamedTuple):
    """A message as ``contents`` shows it."""

    content: Content
    redelivered: bool
    unacked: bool


class Published(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Journal record: a message came in."""

    serial: int
    redelivered: bool
    content: Content


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Journal record: these are gone for good."""

    serials: list[int]


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Journal record: a clean end. Of the messages before it only these were ever delivered."""

    delivered: list[int]


class BackingQueue:
    """Ready and unacknowledged messages of one queue process. Message ids are ``Content.id``.

    Build it with ``in_memory`` (a queue that is not durable), ``create`` (durable, starts empty whatever was
    there) or ``recover`` (durable, with what a former life left).
    """

    def __init__(self, journal: Journal | None, disk: Disk | None = None, directory: str = "") -> None:
        """Use the constructors below."""
        self._journal = journal
        self._disk = disk
        self._directory = directory
        self._serial = 0
        # In order of serials, because a message enters once and never moves.
        self._entries: dict[int, Entry] = {}
        # Ready messages: never fetched ones, and requeued ones by serial. Removed ones linger until they surface.
        self._fresh: deque[Entry] = deque()
        self._requeued: list[tuple[int, Entry]] = []
        self._ready = 0
        self._ready_bytes = 0
        self._bytes = 0

    # -- life ----------------------------------------------------------------------------------------------

    @classmethod
    def in_memory(cls) -> BackingQueue:
        """For a queue that is not durable: no journal, every mark is 0 and durable at once."""
        return cls(None)

    @classmethod
    async def create(cls, disk: Disk, directory: str) -> BackingQueue:
        """A durable queue that starts empty: whatever ``directory`` held is wiped (a mirror starts so)."""
        raise NotImplementedError

    @classmethod
    async def recover(cls, disk: Disk, directory: str) -> BackingQueue:
        """Rebuild from ``directory`` after any end; empty if there is nothing. All messages are ready.

        Raises StorageError if the journal is corrupted in the middle; the file is left as it is for a look.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """A clean end: flush everything, note which messages were delivered. The object is then of no use."""
        raise NotImplementedError

    async def abandon(self) -> None:
        """End without writing anything more, as if the process had been killed. Returns when no write is under way.

        Await it before the directory is opened again.
        """
        raise NotImplementedError

    async def wipe(self) -> None:
        """Delete the files. The object is then of no use. (The queue was deleted, or the mirror left.)"""
        raise NotImplementedError

    # -- durability ----------------------------------------------------------------------------------------

    def mark(self) -> int:
        """The mark of the newest journaled publish, 0 if there was none. Marks grow; they restart with the object."""
        raise NotImplementedError

    @property
    def durable_mark(self) -> int:
        """Every publish with a mark up to this one is on disk."""
        raise NotImplementedError

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(durable_mark)`` from the event loop each time the durable mark has grown.

        One listener; it must not raise. It runs outside any process: let it put a message into its mailbox.
        """
        raise NotImplementedError

    def on_failure(self, callback: Callable[[StorageError], None]) -> None:
        """Call ``callback(error)`` once, when a write or sync failed for good: the node must crash itself.

        Nothing becomes durable any more after that. A full disk is not a failure: confirms wait and the flush is
        tried again every DISK_FULL_RETRY_MS. Without a listener the error is logged.
        """
        raise NotImplementedError

    async def wait_durable(self, mark: int) -> None:
        """Until ``durable_mark >= mark``. Raises StorageError if that can't be any more."""
        raise NotImplementedError

    # -- messages in ---------------------------------------------------------------------------------------

    def publish(self, content: Content, *, redelivered: bool = False) -> int:
        """Append at the tail. Returns its mark: 0 if there is nothing to wait for. The id must be new."""
        raise NotImplementedError

    def publish_delivered(self, content: Content, *, redelivered: bool = False) -> int:
        """Straight to the unacknowledged ones: it was delivered without having waited. Returns its mark."""
        raise NotImplementedError

    # -- messages out --------------------------------------------------------------------------------------

    def peek(self) -> Held | None:
        """The next message that ``fetch`` would take."""
        raise NotImplementedError

    def fetch(self, *, no_ack: bool = False) -> Fetched | None:
        """Take the head: it becomes unacknowledged, or with ``no_ack`` it is gone."""
        raise NotImplementedError

    def drop(self, count: int, *, ack_required: bool = False) -> list[Content]:
        """Take up to ``count`` from the head without delivering them: gone, or unacknowledged if ``ack_required``."""
        raise NotImplementedError

    def ack(self, ids: Iterable[int]) -> list[int]:
        """Forget unacknowledged messages. Returns those of ``ids`` that were unacknowledged; others are ignored."""
        raise NotImplementedError

    def requeue(self, ids: Iterable[int]) -> list[int]:
        """Unacknowledged ones become ready again, at their original place, redelivered. Returns as ``ack``."""
        raise NotImplementedError

    def discard(self, ids: Iterable[int]) -> list[int]:
        """Forget messages wherever they are, ready or unacknowledged. Returns those that were here."""
        raise NotImplementedError

    def purge(self) -> int:
        """Forget all ready messages; returns how many. The unacknowledged ones stay."""
        raise NotImplementedError

    def clear(self) -> int:
        """Forget everything, unacknowledged too; returns how many. (What a mirror does before a sync.)"""
        raise NotImplementedError

    # -- looks ---------------------------------------------------------------------------------------------

    def contents(self) -> list[Held]:
        """Everything, ready and unacknowledged, in order: what a synchronisation sends."""
        raise NotImplementedError

    def unacked_ids(self) -> list[int]:
        """Ids of the unacknowledged messages in order: what a promotion requeues."""
        raise NotImplementedError

    def get(self, message_id: int) -> Held | None:
        """A message by id."""
        raise NotImplementedError

    def __contains__(self, message_id: int) -> bool:
        raise NotImplementedError

    @property
    def ready(self) -> int:
        raise NotImplementedError

    @property
    def unacked(self) -> int:
        raise NotImplementedError

    @property
    def depth(self) -> int:
        """Ready plus unacknowledged: what masters and mirrors compare."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """Body bytes of all messages."""
        raise NotImplementedError

    @property
    def ready_bytes(self) -> int:
        """Body bytes of the ready messages (x-max-length-bytes counts these)."""
        raise NotImplementedError
