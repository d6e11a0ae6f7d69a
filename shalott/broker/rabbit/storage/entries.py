"""What a backing queue keeps of each message in memory.

The states are rabbit_variable_queue's. *Alpha*: all of it is in memory only (or in the journal as
well, which is for recovery). *Gamma*: it is on a page, and its entry is in memory, without its
content. (A *beta*, whose content alone is on disk, is for us one whose page is being written:
a page holds the entry too.) *Delta*: nothing of it is in memory; it is one of a Segment.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from shalott.broker.base.disk import Opens
from shalott.broker.base.env import Clock
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.pages import HEADER, Page, PageReader, Run, runs_of

# What an entry, and the content that it may have, take beside the bytes of a message.
ENTRY_BYTES = 300
CONTENT_BYTES = 300


class Place(enum.IntEnum):
    """Where a message is."""

    READY = 0
    UNACKED = 1
    GONE = 2  # removed


class Expiry(NamedTuple):
    """When a message's time to live is over.

    Two clocks, for two uses. ``at_ns`` counts while this process lives: monotonic, so that setting
    the node's clock ends no message early. ``wall_ns`` is for the disk, where no other time
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
    """One message. ``record_bytes`` is its size in the journal, 0 if it isn't there.

    ``content`` None: it is on ``page`` only. ``is_alpha``: it has not begun to be paged.
    ``is_flag_recorded``: the journal's record says already that it counts as redelivered.
    ``copy_may_come``: it came with a synchronisation, and may come once more from its channel.
    """

    __slots__ = (
        "content",
        "copy_may_come",
        "expiry",
        "id",
        "is_alpha",
        "is_flag_recorded",
        "page",
        "place",
        "priority",
        "record_bytes",
        "redelivered",
        "serial",
        "size",
        "weight",
    )

    def __init__(
        self,
        serial: int,
        content: Content,
        redelivered: bool,
        place: Place,
        expiry: Expiry | None = None,
    ) -> None:
        self.serial = serial
        self.id = content.id
        self.size = len(content.body)
        self.weight = self.size + len(content.properties) + CONTENT_BYTES
        self.priority = content.priority
        self.content: Content | None = content
        self.redelivered = redelivered
        self.place = place
        self.expiry = expiry
        self.record_bytes = 0
        self.page: Page | None = None
        self.is_alpha = True
        self.is_flag_recorded = redelivered
        self.copy_may_come = False

    @property
    def is_ahead(self) -> bool:
        """Of one that was read back: whether it still waits with its content in memory."""
        return self.content is not None and self.place is Place.READY


class Paged(msgspec.Struct, frozen=True, array_like=True):
    """An entry on a page. Its place is not there: what is in a segment is ready."""

    serial: int
    redelivered: bool
    content: Content
    at_ns: int | None
    wall_ns: int | None
    record_bytes: int
    is_flag_recorded: bool
    copy_may_come: bool


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Paged] = msgspec.msgpack.Decoder(Paged)


def encode_page(entry: Entry) -> bytes:
    assert entry.content is not None
    expiry = entry.expiry
    return _encoder.encode(
        Paged(
            entry.serial,
            entry.redelivered,
            entry.content,
            None if expiry is None else expiry.at_ns,
            None if expiry is None else expiry.wall_ns,
            entry.record_bytes,
            entry.is_flag_recorded,
            entry.copy_may_come,
        )
    )


def decode_page(data: bytes) -> Paged:
    return _decoder.decode(data)


def entry_of(paged: Paged, page: Page | None) -> Entry:
    """A ready one, with its content."""
    expiry = None
    if paged.at_ns is not None and paged.wall_ns is not None:
        expiry = Expiry(paged.at_ns, paged.wall_ns)
    entry = Entry(paged.serial, paged.content, paged.redelivered, Place.READY, expiry)
    entry.record_bytes = paged.record_bytes
    entry.is_flag_recorded = paged.is_flag_recorded
    entry.copy_may_come = paged.copy_may_come
    entry.page, entry.is_alpha = page, False
    return entry


class Source(Protocol):
    """Where a segment is whose messages are on no page."""

    async def read(self, disk: Opens | None) -> list[Entry]:
        """In order, with their contents; from ``disk``, which has the same files as the queue's
        own. Raises StorageError."""
        ...

    def delivered(self) -> Iterable[int]:
        """Serials of those that count as delivered."""
        ...


@dataclass(slots=True, kw_only=True)
class Segment:
    """Ready messages of one line, in order, of which nothing else is in memory.

    ``ids``: of those whose channel may still bring a copy, sorted. ``unrecorded``: those that count
    as delivered, and whose records don't say so. ``source`` None: they are on pages, in ``runs``.
    """

    first_serial: int
    count: int
    bytes: int
    record_bytes: int
    journaled: int
    journaled_bytes: int
    expiring: int
    unrecorded: int
    runs: Sequence[Run] = ()
    ids: Sequence[int] = ()
    source: Source | None = None

    async def read(self, reader: PageReader | None) -> list[Entry]:
        """In order, with their contents. Raises StorageError."""
        if self.source is not None:
            return await self.source.read(None if reader is None else reader.other)
        return [
            entry_of(paged, page)
            for run in self.runs
            for paged, page in await read_run(reader, run)
        ]


def segment_of(entries: list[Entry]) -> Segment:
    """All are on their pages."""
    pages = [entry.page for entry in entries if entry.page is not None]
    assert len(pages) == len(entries), "an entry without a page stays in memory"
    return Segment(
        first_serial=entries[0].serial,
        count=len(entries),
        bytes=sum(entry.size for entry in entries),
        record_bytes=sum(entry.record_bytes for entry in entries),
        journaled=sum(entry.record_bytes > 0 for entry in entries),
        journaled_bytes=sum(entry.size for entry in entries if entry.record_bytes),
        expiring=sum(entry.expiry is not None for entry in entries),
        unrecorded=sum(e.redelivered and not e.is_flag_recorded for e in entries),
        runs=runs_of(pages),
        ids=array("Q", sorted(entry.id for entry in entries if entry.copy_may_come)),
    )


async def read_run(reader: PageReader | None, run: Run) -> list[tuple[Paged, Page]]:
    """What is there, record by record. Raises StorageError."""
    assert reader is not None
    read, offset = [], run.offset
    for record in await reader.read(run):
        page = Page(run.file, offset, offset + HEADER.size + len(record))
        read.append((decode_page(record), page))
        offset = page.end
    return read
