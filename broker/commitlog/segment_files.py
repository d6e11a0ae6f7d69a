"""SegmentFiles: the files of a segmented log, by the offset that each begins with."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from broker.disk import Disk, File
from broker.storage.journal import sync_parents

log = logging.getLogger("broker.commitlog")

NAME_DIGITS = 20


class SegmentFiles:
    """``starts`` is sorted. Every method raises OSError."""

    def __init__(self, disk: Disk, path: str, starts: list[int]) -> None:
        """Use ``find``."""
        self.starts = starts
        self._disk = disk
        self._path = path
        self._open: dict[int, File] = {}
        self._opening = asyncio.Lock()
        self._names_dirty = bool(starts)  # a former life may not have got so far

    @classmethod
    async def find(cls, disk: Disk, path: str, segment_bytes: int) -> tuple[SegmentFiles, int]:
        """Those that are there, and the end of the last one.

        Files after a gap, or after one that is too short, are removed: what was flushed has no
        gaps.
        """
        found = [int(name) for name in await disk.listdir(path) if name.isdigit()]
        files = cls(disk, path, found)
        whole, end = 0, found[0] if found else 0
        for start in found:
            if start != end:
                break
            whole += 1
            end = start + min(await (await files.get(start)).size(), segment_bytes)
        if stray := found[whole:]:
            log.warning("%s: %d files beyond its end at %d are removed", path, len(stray), end)
            await files.remove(stray[::-1])
        return files, end

    async def get(self, start: int) -> File:
        async with self._opening:  # a reader and the writer may want the same one
            file = self._open.get(start)
            if file is None:
                file = self._open[start] = await self._disk.open(self._name(start), create=False)
            return file

    async def create(self, start: int) -> None:
        async with self._opening:
            self._open[start] = await self._disk.open(self._name(start), create=True)
        self.starts.append(start)
        self._names_dirty = True

    async def remove(self, starts: list[int]) -> None:
        """In this order, each durably before the next."""
        for start in starts:
            self.starts.remove(start)
            file = self._open.pop(start, None)
            if file is not None:
                await file.close()
            await self._disk.remove(self._name(start))
            await self._disk.sync_dir(self._path)

    async def sync_names(self) -> None:
        if self._names_dirty:
            self._names_dirty = False
            await sync_parents(self._disk, f"{self._path}/.")

    async def close(self) -> None:
        for file in self._open.values():
            with suppress(OSError):
                await file.close()
        self._open.clear()

    def _name(self, start: int) -> str:
        return f"{self._path}/{start:0{NAME_DIGITS}d}"
