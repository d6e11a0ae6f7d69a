"""OUR-03: a disk whose files say that they are synced when they are only written.

What was written is in the page cache: it survives the end of the process, and not a power loss. The
real sync follows once a second, as Redis does with ``appendfsync everysec``, and RabbitMQ's queue
index does for messages that no publisher wants confirmed. A broker on such a disk confirms what it
could lose. It is used if the switch is on, and never else.
"""

from __future__ import annotations

import asyncio
import contextlib

from shalott.broker.base.disk import Disk, File
from shalott.broker.base.env import pause_ms

SYNC_EVERY_MS = 1000


class LazyFile:
    """A file that is synced later."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._syncing: asyncio.Task[None] | None = None

    async def pread(self, size: int, offset: int) -> bytes:
        return await self._file.pread(size, offset)

    async def pwrite(self, data: bytes, offset: int) -> int:
        return await self._file.pwrite(data, offset)

    async def truncate(self, size: int) -> None:
        await self._file.truncate(size)

    async def size(self) -> int:
        return await self._file.size()

    async def sync(self) -> None:
        """Returns at once."""
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(self._sync_later(), name="lazy sync")

    async def _sync_later(self) -> None:
        await pause_ms(SYNC_EVERY_MS)
        with contextlib.suppress(OSError):  # not reported: it was promised long ago
            await self._file.sync()

    async def close(self) -> None:
        """With what was owed; a kernel would write it too, in the end."""
        if self._syncing is not None and not self._syncing.done():
            self._syncing.cancel()
            await asyncio.wait([self._syncing])
            with contextlib.suppress(OSError):
                await self._file.sync()
        await self._file.close()


class LazySyncDisk:
    """Implements Disk on top of another one; only File.sync differs."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def open(self, path: str, *, create: bool) -> File:
        return LazyFile(await self._disk.open(path, create=create))

    async def rename(self, source: str, target: str) -> None:
        await self._disk.rename(source, target)

    async def remove(self, path: str) -> None:
        await self._disk.remove(path)

    async def sync_dir(self, path: str) -> None:
        await self._disk.sync_dir(path)

    async def listdir(self, path: str) -> list[str]:
        return await self._disk.listdir(path)

    async def free_bytes(self) -> int:
        return await self._disk.free_bytes()
