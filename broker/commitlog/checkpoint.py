"""The checkpoint: how far a store was on the disk; replaced atomically (StoreCheckpoint.java).

Everything before ``dispatched`` was whole, flushed, and in consume queues that were flushed too, so
a recovery begins there. A checkpoint may say too little, never too much: it is lowered before
anything is cut.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from broker.disk import Disk
from broker.errors import StorageError
from broker.storage.files import read_file, replace_file

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
