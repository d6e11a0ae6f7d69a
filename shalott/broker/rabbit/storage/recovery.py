"""What a backing queue's directory holds when a node starts: opening, replaying and wiping it.

A long queue is to serve soon after a kill. So its journal is gone through once, for what is left,
and the messages stay there, as segments of a delta that are read when their turn comes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from shalott.broker.base.disk import Disk, Opens
from shalott.broker.base.env import Clock
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import Journal, sync_parents
from shalott.broker.rabbit.storage.entries import Entry, Expiry, Place, Segment
from shalott.broker.rabbit.storage.queue_index import (
    Closed,
    Opened,
    Published,
    Purged,
    QueueRecord,
    Removed,
    decode_record,
    encode_record,
)

JOURNAL = "journal"
# A part ends with the batch that makes it so large: it is what is read at once.
SEGMENT_COUNT, SEGMENT_BYTES = 4096, 1 << 20
EXPIRES, FLAGGED = 1, 2  # its time to live is limited; its record says that it was delivered


def journal_of(directory: str) -> str:
    return f"{directory}/{JOURNAL}"


class Recovered(NamedTuple):
    """``segments``: of what survived. ``is_ordered``: they are in the order of serials."""

    segments: list[Segment]
    last_serial: int  # the highest ever given, also to messages that are gone
    is_ordered: bool

    async def entries(self) -> list[Entry]:
        """All of it, in order. Raises StorageError."""
        found = [entry for segment in self.segments for entry in await segment.read(None)]
        return found if self.is_ordered else sorted(found, key=lambda entry: entry.serial)


class _Columns:
    """Of messages, in the order of their records."""

    __slots__ = ("flags", "records", "serials", "sizes")

    def __init__(self) -> None:
        self.serials = array("Q")
        self.sizes = array("I")  # of bodies
        self.records = array("I")  # their sizes
        self.flags = bytearray()  # EXPIRES | FLAGGED

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Those of whose serials it says so."""
        kept = [at for at, serial in enumerate(self.serials) if wanted(serial)]
        if len(kept) < len(self.serials):
            self.serials = array("Q", [self.serials[at] for at in kept])
            self.sizes = array("I", [self.sizes[at] for at in kept])
            self.records = array("I", [self.records[at] for at in kept])
            self.flags = bytearray(self.flags[at] for at in kept)


class _Life:
    """What the messages of a recovered queue have in common."""

    def __init__(self, journal: Journal, last: QueueRecord | None, clock: Clock | None) -> None:
        self.journal = journal
        self._clock = clock
        # Everything may have been delivered, unless a clean end says what was.
        self._delivered = dict.fromkeys(last.delivered) if isinstance(last, Closed) else None

    def delivered(self, serials: Iterable[int]) -> Iterable[int]:
        if self._delivered is None:
            return serials
        return (serial for serial in serials if serial in self._delivered)

    def entry(self, record: Published, size: int) -> Entry:
        expiry, clock = None, self._clock
        if clock is not None and record.expires_wall_ns is not None:
            # Time went on while the queue was down.
            expiry = Expiry.after(clock, record.expires_wall_ns - clock.wall_ns())
        redelivered = record.redelivered or bool(list(self.delivered([record.serial])))
        entry = Entry(record.serial, record.content, redelivered, Place.READY, expiry)
        entry.is_flag_recorded = record.redelivered
        entry.record_bytes = size
        return entry


class _Part:
    """Batches that stand together in a journal: a segment's source."""

    def __init__(self, life: _Life, start: int, end: int, serials: array[int]) -> None:
        self._life = life
        self._start, self._end = start, end
        self._serials = serials  # of the messages that are left

    def delivered(self) -> Iterable[int]:
        return self._life.delivered(self._serials)

    async def read(self, disk: Opens | None) -> list[Entry]:
        left = dict.fromkeys(self._serials)
        entries = []
        for data in await self._life.journal.read(self._start, self._end, disk):
            record = decode_record(data)
            if isinstance(record, Published) and record.serial in left:
                entries.append(self._life.entry(record, len(data)))
        return entries


class Replay:
    """Takes a journal's batches as they are read, and keeps no contents."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, _Columns]] = []  # start, end
        self._columns = _Columns()  # of the last part
        self._removed: dict[int, None] = {}
        self._last: QueueRecord | None = None
        self._last_serial = 0
        self._is_ordered = True
        self._error: msgspec.DecodeError | None = None

    def take(self, records: list[bytes], start: int, end: int) -> None:
        first = self._parts[-1][0] if self._parts else 0
        is_full = start - first >= SEGMENT_BYTES or len(self._columns.serials) >= SEGMENT_COUNT
        if is_full or not self._parts:
            first, self._columns = start, _Columns()
            self._parts.append((start, end, self._columns))
        self._parts[-1] = (first, end, self._columns)
        try:
            for data in records:
                self._last = record = decode_record(data)
                if isinstance(record, Published):
                    self._published(record, len(data))
                elif isinstance(record, Removed):
                    self._removed.update(dict.fromkeys(record.serials))
                    self._last_serial = max([self._last_serial, *record.serials])
                elif isinstance(record, Purged):
                    kept = dict.fromkeys(record.kept)
                    for _, _, columns in self._parts:
                        columns.keep(kept.__contains__)
                    self._last_serial = max(self._last_serial, record.last_serial)
        except msgspec.DecodeError as error:
            self._error = self._error or error

    @property
    def last_serial(self) -> int:
        """The highest ever given, also to messages that are gone."""
        return self._last_serial

    def _published(self, record: Published, size: int) -> None:
        columns, serial = self._columns, record.serial
        columns.serials.append(serial)
        columns.sizes.append(len(record.content.body))
        columns.records.append(size)
        expires = EXPIRES if record.expires_wall_ns is not None else 0
        columns.flags.append(expires | (FLAGGED if record.redelivered else 0))
        if serial > self._last_serial:
            self._last_serial = serial
        else:
            self._is_ordered = False

    async def finish(self, journal: Journal, clock: Clock | None) -> Recovered:
        """The messages that survived. Closes the journal if it can't be used."""
        try:
            if self._error is not None:
                text = f"a record of a queue's journal can't be understood: {self._error}"
                raise StorageError(text) from self._error
            if isinstance(self._last, Closed):
                # Durable before the first delivery of this life.
                journal.append(encode_record(Opened()))
                await journal.flush()
        except StorageError:
            await journal.abandon()
            raise
        life = _Life(journal, self._last, clock)
        segments = []
        for start, end, columns in self._parts:
            if self._removed:
                columns.keep(lambda serial: serial not in self._removed)
            if columns.serials:
                segments.append(_segment(columns, _Part(life, start, end, columns.serials)))
        return Recovered(segments, self._last_serial, self._is_ordered)


def _segment(columns: _Columns, part: _Part) -> Segment:
    size, flags = sum(columns.sizes), columns.flags
    flagged = dict.fromkeys(
        s for s, flag in zip(columns.serials, flags, strict=True) if flag & FLAGGED
    )
    return Segment(
        first_serial=columns.serials[0],
        count=len(columns.serials),
        bytes=size,
        record_bytes=sum(columns.records),
        journaled=len(columns.serials),
        journaled_bytes=size,
        expiring=sum(flag & EXPIRES for flag in flags),
        unrecorded=sum(serial not in flagged for serial in part.delivered()),
        source=part,
    )


async def wipe(disk: Disk, directory: str) -> None:
    """Remove a queue's directory. Raises StorageError.

    The journal goes last: a crash before that leaves the queue as it was, never half of it.
    """
    try:
        names = await disk.listdir(directory)
        for name in sorted(names, key=lambda name: name == JOURNAL):
            await disk.remove(f"{directory}/{name}")
        with suppress(FileNotFoundError):
            await disk.remove(directory)
        if names:
            await sync_parents(disk, directory)
    except OSError as error:
        raise StorageError(f"{directory}: {error.strerror or error}") from error
