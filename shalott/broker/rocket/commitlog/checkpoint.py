"""The checkpoint: how far a store was on the disk; replaced atomically (StoreCheckpoint.java).

Everything before ``dispatched`` was whole, flushed, and in consume queues that were flushed too, so
a recovery begins there. A checkpoint may say too little, never too much: it is lowered before
anything is cut.

The file is an original's: 4,096 bytes that begin with longs, the times at which the last messages
were stored that are in the log, in the queues and in the index, two more, and the confirm offset.
It goes by times, and looks at the log from the last file on that begins before them. What ours goes
by lies behind, where an original leaves it as it is; so what it was written with says whether an
original has changed the longs since. Then it is an original's checkpoint, as one is without ours.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.commitlog.api import Log
from shalott.broker.rocket.commitlog.consume_queues import QueueSet

PATH = "checkpoint"
CONFIRM_UNKNOWN = -1
FILE_BYTES = 4096
MS_MAX = 1 << 43  # of a time that anybody wrote

_LONGS = struct.Struct(">5q")  # ms of log, queues, index; the master's flushed end; confirm
_OURS_AT = 2048
_LAYOUT = struct.Struct(">4sqqqq")  # magic, dispatched, flushed, confirm, store ms
_MAGIC = b"CKP1"
_CRCS = struct.Struct(">2I")  # of ours, and of the longs
_BEFORE_BYTES = _LAYOUT.size + 4  # until there were longs, ours was the file, with its CRC


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``flushed``: the log's. ``confirm``: CONFIRM_UNKNOWN where dispatch follows the log's end.
    ``store_ms``: when the last was stored of what lies before ``dispatched``, 0 if that is not
    known. ``is_foreign``: an original's, which knows but this time, and perhaps ``confirm``.
    """

    dispatched: int = 0
    flushed: int = 0
    confirm: int = CONFIRM_UNKNOWN
    store_ms: int = 0
    is_foreign: bool = False

    def lowered(self, offset: int) -> Checkpoint:
        return Checkpoint(
            min(self.dispatched, offset),
            min(self.flushed, offset),
            min(self.confirm, offset),
            self.store_ms,
        )


async def read_checkpoint(disk: Disk) -> Checkpoint | None:
    """None if there is none. Raises StorageError if it is damaged: it was replaced atomically."""
    data = await read_file(disk, PATH)
    if data is None:
        return None
    if len(data) == _BEFORE_BYTES:
        crc = int.from_bytes(data[_LAYOUT.size :], "big")
        return _ours(data[: _LAYOUT.size], crc)
    if len(data) != FILE_BYTES:
        raise StorageError("the store's checkpoint is damaged")
    longs, ours = data[: _LONGS.size], data[_OURS_AT : _OURS_AT + _LAYOUT.size]
    crc, crc_of_longs = _CRCS.unpack_from(data, _OURS_AT + _LAYOUT.size)
    if any(data[_OURS_AT:]):
        found = _ours(ours, crc)
        if crc32(longs) == crc_of_longs:
            return found
    log_ms, queues_ms, _, _, confirm = _LONGS.unpack(longs)
    if confirm < 0 or not all(0 <= ms < MS_MAX for ms in (log_ms, queues_ms)):
        raise StorageError("the store's checkpoint is damaged")
    return Checkpoint(
        confirm=confirm or CONFIRM_UNKNOWN, store_ms=min(log_ms, queues_ms), is_foreign=True
    )


def _ours(data: bytes, crc: int) -> Checkpoint:
    """Raises StorageError."""
    if crc32(data) != crc:
        raise StorageError("the store's checkpoint is damaged")
    magic, *numbers = _LAYOUT.unpack(data)
    if magic != _MAGIC:
        raise StorageError("the store's checkpoint is of another version")
    return Checkpoint(*numbers)


async def write_checkpoint(disk: Disk, checkpoint: Checkpoint) -> None:
    """Durable when it returns. Raises OSError."""
    ms, confirm = checkpoint.store_ms, checkpoint.confirm
    longs = _LONGS.pack(ms, ms, ms, 0, max(0, confirm))
    ours = _LAYOUT.pack(_MAGIC, checkpoint.dispatched, checkpoint.flushed, confirm, ms)
    data = longs.ljust(_OURS_AT, b"\0") + ours + _CRCS.pack(crc32(ours), crc32(longs))
    await replace_file(disk, PATH, data.ljust(FILE_BYTES, b"\0"))


class CheckpointKeeper:
    """The checkpoint on the disk, and the one that follows it. Every method raises StorageError;
    DiskFull: what is on the disk says less, and that is true.
    """

    def __init__(self, disk: Disk, current: Checkpoint) -> None:
        self.current = current
        self._disk = disk
        self._due: Checkpoint | None = None  # the next, when the log is flushed as far

    async def run(
        self,
        interval_ms: int,
        of_now: Callable[[], Checkpoint],
        held: asyncio.Lock,
        message_log: Log,
        queues: QueueSet,
    ) -> None:
        """Write one every so often, until cancelled. Raises StorageError."""
        while True:
            await pause_ms(interval_ms)
            try:
                async with held:
                    await self.write_if_due(of_now(), message_log, queues)
            except DiskFull:
                continue  # the one on the disk says less, and that is true

    async def lower(self, offset: int) -> None:
        """What lies behind ``offset`` is about to be cut."""
        self._due = None
        if max(self.current.dispatched, self.current.flushed) > offset:
            await self.write(self.current.lowered(offset))

    async def write_if_due(self, now: Checkpoint, message_log: Log, queues: QueueSet) -> None:
        """A checkpoint asks for no flush: how often that is done is the configuration's business.

        So it waits for the log, and is not replaced by a newer one (``now``) meanwhile.
        """
        if self._due is None:
            self._due = now
        if message_log.flushed_offset < self._due.dispatched:
            return
        await queues.flush()
        due, self._due = self._due, None
        flushed = max(due.flushed, message_log.flushed_offset)
        due = Checkpoint(due.dispatched, flushed, due.confirm, due.store_ms)
        if due.lowered(flushed) != self.current:
            await self.write(due)
            places = [(message_log.directory, message_log.segment_bytes, due.dispatched)]
            queues.witness("checkpoint", [*places, *queues.places()])

    async def write(self, checkpoint: Checkpoint) -> None:
        try:
            await write_checkpoint(self._disk, checkpoint)
        except OSError as error:
            kind = DiskFull if error.errno in NO_ROOM else StorageError
            raise kind(f"checkpoint: {error.strerror or error}") from error
        self.current = checkpoint
