"""FlushMark: up to where a file of records was on the disk, kept beside it.

A reader of the file alone can't tell an end that was still being written when a crash came from one
that was flushed, perhaps acknowledged, and damaged since: both are records that make no sense. So
what was flushed is noted in a file of its own. It may say too little, never too much: it is written
behind the flush, without one of its own, and made lower, durably, before anything is cut. After a
kill it is exact but for a moment; after a power loss, or if it was damaged itself, it may be old.

Two slots are written in turn, so that a torn one leaves the other: ``number 8 | end 8 | crc32 4``.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from contextlib import suppress
from zlib import crc32

from shalott.broker.base.disk import Disk, File

_SLOT = struct.Struct(">QQ")
_CRC_BYTES = 4
_SLOT_BYTES = _SLOT.size + _CRC_BYTES
_APART_BYTES = 512  # slots share no sector


class FlushMark:
    """Made by ``open``."""

    def __init__(self, file: File, number: int, end: int) -> None:
        """Use ``open``."""
        self.end = end
        self._file = file
        self._number = number
        self._written = end
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, disk: Disk, path: str) -> FlushMark:
        """0 if there is none, or none that makes sense. Raises OSError."""
        file = await disk.open(path, create=True)
        number = end = 0
        for place in (0, _APART_BYTES):
            data = b""
            while part := await file.pread(_SLOT_BYTES - len(data), place + len(data)):
                data += part  # reads may be short
            if len(data) == _SLOT_BYTES and _crc(data[: _SLOT.size]) == data[_SLOT.size :]:
                number, end = max((number, end), _SLOT.unpack_from(data))
        return cls(file, number, end)

    def note(self, end: int) -> None:
        """So much is on the disk. It is written in the background."""
        if end > self.end:
            self.end = end
            if self._writing is None:
                self._writing = asyncio.create_task(self._write_newest(), name="flush mark")

    async def lower(self, end: int) -> None:
        """What lies behind ``end`` is about to be cut. Durable when it returns; raises OSError."""
        if self.end <= end:
            return
        self.end = end
        await self._idle()
        await self._write()
        await self._file.sync()

    async def close(self) -> None:
        await self._idle()
        with suppress(OSError):
            await self._file.close()

    async def _idle(self) -> None:
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_newest(self) -> None:
        try:
            with suppress(OSError):  # what is there says less, and that is true
                while self._written < self.end:
                    await self._write()
        finally:
            self._writing = None

    async def _write(self) -> None:
        self._number, self._written = self._number + 1, self.end
        body = _SLOT.pack(self._number, self.end)
        data, place = body + _crc(body), self._number % 2 * _APART_BYTES
        done = 0
        while done < len(data):
            count = await self._file.pwrite(data[done:], place + done)
            if count <= 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            done += count


def _crc(body: bytes) -> bytes:
    return crc32(body).to_bytes(_CRC_BYTES, "big")
