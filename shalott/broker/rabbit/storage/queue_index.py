"""QueueIndex: which messages of a durable queue must outlive its process, as records in a journal.

It plays the part of RabbitMQ's rabbit_queue_index. Only persistent messages are journaled: a
Published record each, and a Removed record for those acked, dropped or purged. Deliveries are not
journaled: after an unclean end every message that is recovered counts as redelivered, because it
may have been delivered (RabbitMQ does the same). A clean end appends the serials that were
delivered, so that a graceful restart keeps the exact flags. Losing an unsynced Removed record makes
an acked message come back; that is the one anomaly that a crash may show here, and AMQP allows it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec

from shalott.broker.base.env import never
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import Journal
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.entries import Entry, Segment
from shalott.broker.rabbit.storage.flusher import Flusher

# Compact when this much of the journal is garbage, and half of it at least.
COMPACT_MIN_GARBAGE_BYTES = 1 << 20
# Where buggify makes it happen early: still, so much is garbage, and such a part of what is kept.
EARLY_MIN_GARBAGE_BYTES, EARLY_MIN_GARBAGE_SHARE = 4096, 1 / 8

LiveRecords = Iterator[bytes] | AsyncGenerator[bytes, None]


class Published(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A message came in. ``expires_wall_ns``: when its time to live is over by the node's clock."""

    serial: int
    redelivered: bool
    content: Content
    expires_wall_ns: int | None = None


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """These are gone for good. A serial that isn't there is no error."""

    serials: list[int]


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A clean end: of all messages only these may have been delivered.

    It counts only if it is the last record.
    """

    delivered: list[int]


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A new start after a clean end. The flags of the end no longer hold.

    The deliveries since the start are not known.
    """


class Purged(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Of all that came up to ``last_serial`` only these are left."""

    last_serial: int
    kept: list[int]


QueueRecord = Published | Removed | Closed | Opened | Purged

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[QueueRecord] = msgspec.msgpack.Decoder(QueueRecord)


def encode_record(record: QueueRecord) -> bytes:
    return _encoder.encode(record)


def decode_record(data: bytes) -> QueueRecord:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(data)


def record_of(entry: Entry, content: Content, redelivered: bool) -> bytes:
    """Its Published record."""
    expires_ns = None if entry.expiry is None else entry.expiry.wall_ns
    return encode_record(Published(entry.serial, redelivered, content, expires_ns))


class QueueIndex:
    """Of one queue. Without a journal (a queue that is not durable) every mark is 0 and durable at
    once. ``live_records``: what a compacted journal holds; None: it can't be compacted now.
    """

    def __init__(
        self, journal: Journal | None, live_records: Callable[[], LiveRecords | None]
    ) -> None:
        self._flusher = None if journal is None else Flusher(journal, self._compaction)
        self._live_records = live_records
        # Of messages that are still there: their number, their bodies, and their records.
        self.live = self.live_body_bytes = self.live_bytes = 0
        self.written = 0  # records of messages, in this life
        self.buggify: Callable[[str], bool] = never  # of the node's Env

    # -- records -----------------------------------------------------------------------------------

    def publish(self, entry: Entry, content: Content, redelivered: bool) -> int:
        """Returns the message's mark: 0 if there is nothing to wait for."""
        if self._flusher is None or not content.persistent:
            return 0
        record = record_of(entry, content, redelivered)
        self.count(entry, len(record))
        self.written += 1
        # A flush may come late: nothing is promised before it.
        return self._flusher.append(record, eager=not self.buggify("storage.flush_late"))

    def count(self, entry: Entry, size: int) -> None:
        """Its record of ``size`` bytes is in the journal."""
        entry.record_bytes = size
        self.live += 1
        self.live_body_bytes += entry.size
        self.live_bytes += size

    def count_segment(self, found: Segment) -> None:
        self.live += found.journaled
        self.live_body_bytes += found.journaled_bytes
        self.live_bytes += found.record_bytes

    def uncount(self, gone: Entry) -> None:
        """It may have no record."""
        if gone.record_bytes:
            self.live -= 1
            self.live_body_bytes -= gone.size
            self.live_bytes -= gone.record_bytes

    def uncount_segment(self, gone: Segment) -> None:
        self.live -= gone.journaled
        self.live_body_bytes -= gone.journaled_bytes
        self.live_bytes -= gone.record_bytes

    def remove(self, serials: list[int]) -> None:
        if serials and self._flusher is not None:
            self._flusher.append(encode_record(Removed(serials)), eager=False)

    def purge(self, last_serial: int, kept: list[int]) -> None:
        """Of all that came up to ``last_serial`` only ``kept`` are left."""
        if self._flusher is not None:
            self._flusher.append(encode_record(Purged(last_serial, kept)), eager=False)

    # -- durability --------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        return self._flusher is not None

    @property
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
        """See ``BackingQueue.on_failure``."""
        if self._flusher is not None:
            self._flusher.failure_listener = callback

    async def wait_durable(self, mark: int) -> None:
        """Until ``durable_mark >= mark``. Raises StorageError if that can't be any more."""
        if self._flusher is not None:
            await self._flusher.wait_durable(mark)

    # -- the end -----------------------------------------------------------------------------------

    async def close(self, delivered: list[int]) -> None:
        """A clean end. ``delivered``: serials of those that count as delivered."""
        if self._flusher is not None:
            await self._flusher.close(encode_record(Closed(delivered)))

    async def abandon(self) -> None:
        if self._flusher is not None:
            await self._flusher.abandon()

    def _compaction(self, journal_bytes: int) -> LiveRecords | None:
        """The records that would replace a journal of ``journal_bytes``, if it is worth it now."""
        garbage = journal_bytes - self.live_bytes
        # Always right, seldom worth it.
        early_bytes = EARLY_MIN_GARBAGE_SHARE * self.live_bytes
        is_early = garbage >= max(EARLY_MIN_GARBAGE_BYTES, early_bytes) and self.buggify(
            "storage.compact_early"
        )
        if not is_early and (garbage < COMPACT_MIN_GARBAGE_BYTES or garbage < self.live_bytes):
            return None
        # A snapshot: those removed while it is being written are in it, and a Removed record
        # follows.
        return self._live_records()
