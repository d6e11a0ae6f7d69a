"""The checkpoint: how far a store was on the disk; replaced atomically (StoreCheckpoint.java).

Everything before ``dispatched`` was whole, flushed, and in consume queues that were flushed too, so
a recovery begins there. A checkpoint may say too little, never too much: it is lowered before
anything is cut.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.commitlog.api import Log
from shalott.broker.rocket.commitlog.queue_set import QueueSet

PATH = "checkpoint"
CONFIRM_UNKNOWN = -1

_LAYOUT = struct.Struct(">4sqqqq")  # magic, dispatched, flushed, confirm, store ms
_MAGIC = b"CKP1"
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``flushed``: the log's. ``confirm``: CONFIRM_UNKNOWN where dispatch follows the log's end."""

    dispatched: int = 0
    flushed: int = 0
    confirm: int = CONFIRM_UNKNOWN
    store_ms: int = 0

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
    body, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if len(body) != _LAYOUT.size or crc32(body).to_bytes(_CRC_BYTES, "big") != crc:
        raise StorageError("the store's checkpoint is damaged")
    magic, *numbers = _LAYOUT.unpack(body)
    if magic != _MAGIC:
        raise StorageError("the store's checkpoint is of another version")
    return Checkpoint(*numbers)


async def write_checkpoint(disk: Disk, checkpoint: Checkpoint) -> None:
    """Durable when it returns. Raises OSError."""
    body = _LAYOUT.pack(
        _MAGIC,
        checkpoint.dispatched,
        checkpoint.flushed,
        checkpoint.confirm,
        checkpoint.store_ms,
    )
    await replace_file(disk, PATH, body + crc32(body).to_bytes(_CRC_BYTES, "big"))


class CheckpointKeeper:
    """The checkpoint on the disk, and the one that follows it. Every method raises StorageError;
    DiskFull: what is on the disk says less, and that is true.
    """

    def __init__(self, disk: Disk, current: Checkpoint) -> None:
        self.current = current
        self._disk = disk
        self._due: Checkpoint | None = None  # the next, when the log is flushed as far

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

    async def write(self, checkpoint: Checkpoint) -> None:
        try:
            await write_checkpoint(self._disk, checkpoint)
        except OSError as error:
            kind = DiskFull if error.errno in NO_ROOM else StorageError
            raise kind(f"checkpoint: {error.strerror or error}") from error
        self.current = checkpoint
