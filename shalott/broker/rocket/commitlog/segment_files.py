"""SegmentFiles: the files of a segmented log, by the offset that each begins with: what is written
to them, and what of that is still to be synced.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections.abc import Callable
from contextlib import suppress

from shalott.broker.base.disk import Disk, File
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import sync_parents

log = logging.getLogger("shalott.broker.commitlog")

NAME_DIGITS = 20
_NAME = re.compile(r"[0-9]{20}")


class SegmentFiles:
    """``starts`` is sorted. Every method raises OSError."""

    def __init__(self, disk: Disk, path: str, segment_bytes: int, starts: list[int]) -> None:
        """Use ``find``."""
        self.starts = starts
        self.allocates = False  # each file has its full length from the beginning
        self._segment_bytes = segment_bytes
        self._dirty: dict[int, None] = {}  # files with something to sync
        self._disk = disk
        self._path = path
        self._open: dict[int, File] = {}
        self._opening = asyncio.Lock()
        self._names_dirty = bool(starts)  # a former life may not have got so far

    @classmethod
    async def find(cls, disk: Disk, path: str, segment_bytes: int) -> tuple[SegmentFiles, int]:
        """Those that are there, and the end of the last one.

        Files after a gap, or after one that is too short, are removed: what was flushed has no
        gaps. Raises StorageError for files that can't be of this log.
        """
        names = [name for name in await disk.listdir(path) if _NAME.fullmatch(name)]
        found = [int(name) for name in names]
        files = cls(disk, path, segment_bytes, found)
        whole, end = 0, found[0] if found else 0
        for start in found:
            size = await (await files.get(start)).size()
            if start % segment_bytes or size > segment_bytes:
                await files.close()
                raise StorageError(
                    f"{path}/{start:0{NAME_DIGITS}d} of {size} bytes is none of files of"
                    f" {segment_bytes}: another program wrote it, and it is left as it is"
                )
            if start != end:
                break
            whole += 1
            end = start + size
        if stray := found[whole:]:
            log.warning("%s: %d files beyond its end at %d are removed", path, len(stray), end)
            await files.remove(stray[::-1])
        return files, end

    async def get(self, start: int) -> File:
        found = self._open.get(start)
        if found is not None:
            return found
        async with self._opening:  # a reader and the writer may want the same one
            file = self._open.get(start)
            if file is None:
                file = self._open[start] = await self._disk.open(self._name(start), create=False)
            return file

    async def read(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes, of one file."""
        start = offset - offset % self._segment_bytes
        return await (await self.get(start)).pread(size, offset - start)

    async def create(self, start: int) -> None:
        async with self._opening:
            self._open[start] = file = await self._disk.open(self._name(start), create=True)
        if self.allocates:
            await file.truncate(self._segment_bytes)
        self.starts.append(start)
        self._names_dirty = True

    async def remove(self, starts: list[int]) -> None:
        """In this order, each durably before the next."""
        for start in starts:
            self.starts.remove(start)
            self._dirty.pop(start, None)
            file = self._open.pop(start, None)
            if file is not None:
                await file.close()
            await self._disk.remove(self._name(start))
            await self._disk.sync_dir(self._path)

    async def remove_all(self) -> None:
        """And the directory, durably, with the one above it if that is empty. It may be that none
        of them was made yet."""
        await self.remove(self.starts[::-1])
        parent = self._path.rpartition("/")[0]
        with suppress(OSError):
            await self._disk.remove(self._path)
            await self._disk.remove(parent)
        with suppress(FileNotFoundError):
            await self._disk.sync_dir(parent.rpartition("/")[0])

    async def write(
        self, offset: int, data: bytes, advanced: Callable[[int], None] = lambda count: None
    ) -> None:
        """All of ``data``, however short the writes are; ``advanced`` is told of each. It lies in
        one file, which may be the next.
        """
        start = offset - offset % self._segment_bytes
        if start not in self.starts:
            if self.starts and self.starts[-1] + self._segment_bytes != start:
                await self.remove(self.starts[::-1])  # empty: the log was told where to begin
            await self.create(start)
        file = await self.get(start)
        done = 0
        while done < len(data):
            self._dirty[start] = None
            count = await file.pwrite(data[done:] if done else data, offset + done - start)
            if count <= 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            done += count
            advanced(count)

    async def sync(self) -> None:
        """All that is written, and the names."""
        dirty, self._dirty = self._dirty, {}
        for start in dirty:
            await (await self.get(start)).sync()
        if self._names_dirty:
            self._names_dirty = False
            await sync_parents(self._disk, f"{self._path}/.")

    async def cut(self, offset: int, first: int, *, shorten: bool) -> None:
        """Everything from ``offset`` on, durably; the file that begins at ``first`` stays.

        ``shorten`` is false for KB-RKT-23: the file with the cut stays as it is.
        """
        await self.remove([start for start in self.starts if start > offset][::-1])
        start = self.starts[-1]
        if start == offset and start > first:
            await self.remove([start])
        elif shorten:
            file = await self.get(start)
            await file.truncate(offset - start)
            if self.allocates:
                await file.truncate(self._segment_bytes)
            await file.sync()

    async def close(self) -> None:
        for file in self._open.values():
            with suppress(OSError):
                await file.close()
        self._open.clear()

    def _name(self, start: int) -> str:
        return f"{self._path}/{start:0{NAME_DIGITS}d}"
