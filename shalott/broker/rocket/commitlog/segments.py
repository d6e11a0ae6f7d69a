"""SegmentedLog: an endless byte string in files of one size, each named by its first offset.

Upstream's MappedFileQueue (store/MappedFileQueue.java) without the mapping. Offsets count from the
beginning of the log and never restart; a file holds ``segment_bytes`` of them and is complete when
it is that long. A file is as long as what was written to it, unless the log allocates. Writing,
syncing and what their failures mean is the SegmentWriter's.

Truncation is durable when it returns (KB-RKT-23: a tail that is cut in memory only comes back after
a crash, for its messages are as valid as ever). Newer files are removed before the file with the
cut is shortened, so a crash in between leaves a longer log, never one with a gap.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.segment_files import SegmentFiles
from shalott.broker.rocket.commitlog.segment_tail import Tail
from shalott.broker.rocket.commitlog.segment_writer import SegmentWriter

REWRITE_BYTES = 1 << 20
CACHE_BYTES = 4 << 20  # of written bytes kept for readers: replication and dispatch follow closely


class SegmentedLog:
    """One directory of files. Made by ``open``; what is found there is durable only after
    ``settle``."""

    def __init__(
        self,
        path: str,
        segment_bytes: int,
        files: SegmentFiles,
        end: int,
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """Use ``open``."""
        self.segment_bytes = segment_bytes
        # KB-RKT-23: a truncation leaves the file with the cut as it is.
        self.truncate_in_memory_only = False
        self._path = path
        self._files = files
        self._min = files.starts[0] if files.starts else 0
        self._tail = Tail(end, cache_bytes)
        self.writer = SegmentWriter(path, files, self._tail, flushed=self._min)
        self._cuts = 0

    @classmethod
    async def open(
        cls,
        disk: Disk,
        path: str,
        segment_bytes: int,
        *,
        cache_bytes: int = CACHE_BYTES,
        allocates: bool = False,
    ) -> SegmentedLog:
        """Find the files of a former life. Files after a gap, or after one that is too short, are
        removed: what was flushed has no gaps.

        ``allocates``: files have their full length from the beginning, as an original wants them,
        and are blank behind the log's end, which who opens the log must find and cut.
        """
        try:
            files, end = await SegmentFiles.find(disk, path, segment_bytes)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}") from error
        files.allocates = allocates
        return cls(path, segment_bytes, files, end, cache_bytes=cache_bytes)

    async def settle(self, trusted: int) -> None:
        """Make all that was found durable; what lies before ``trusted`` is known to be.

        It is written again first: after a failed sync the kernel calls pages clean that never
        reached the disk, and what a former life wrote may be of them.
        """
        try:
            position = max(trusted, self._min)
            while position < self.max_offset:
                data = await self.read(position, REWRITE_BYTES)
                await self._files.write(position, data)
                position += len(data)
            await self.writer.sync()
        except OSError as error:
            raise self.writer.fail(error) from error

    # -- where it is -------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        return self._min

    @property
    def max_offset(self) -> int:
        return self._tail.end

    @property
    def written_offset(self) -> int:
        return self.writer.written_end

    @property
    def flushed_offset(self) -> int:
        return self.writer.flushed_end

    @property
    def room(self) -> int:
        """Bytes until the end of the file that is being filled; never 0."""
        return self.segment_bytes - self.max_offset % self.segment_bytes

    # -- appending ---------------------------------------------------------------------------------

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """Take bytes; returns their offset. What is longer than ``room`` goes on in the next file.
        Raises StorageError; DiskFull: later, perhaps.
        """
        self.writer.require_usable()
        offset = self.max_offset
        self._tail.append_across(data, self.segment_bytes)
        self.writer.work()
        return offset

    def begin_at(self, offset: int) -> None:
        """Let an empty log go on at ``offset``, where a file would begin."""
        assert self._min == self.max_offset == self.written_offset
        assert offset % self.segment_bytes == 0
        self._tail.truncate(offset)
        self._begin(offset)

    def _begin(self, offset: int) -> None:
        """The log is empty, and begins there."""
        self._min = offset
        self.writer.written_end = self.writer.flushed_end = offset

    async def written(self, offset: int) -> None:
        """Return when everything before ``offset`` is in the operating system's hands, also if it
        is still to be appended.

        Raises StorageError if that can't be any more, or if ``offset`` is cut off.
        """
        await self.writer.written(offset)

    async def flushed(self, offset: int) -> None:
        """Return when everything before ``offset`` is on the disk. Raises as ``written`` does."""
        await self.writer.flushed(offset)

    # -- reading -----------------------------------------------------------------------------------

    async def read(self, offset: int, size: int) -> bytes:
        """Bytes from ``offset``: ``size`` of them, or all until the end of the file or the log.

        None if ``offset`` is not in the log. Raises StorageError if the disk can't read.
        """
        size = min(size, self.max_offset - offset, self.segment_bytes - offset % self.segment_bytes)
        if offset < self._min or size <= 0:
            return b""
        if offset >= self._tail.start:
            return self._tail.read(offset, size)
        cuts, parts = self._cuts, []
        while size > 0:
            if offset >= self._tail.start:
                part = self._tail.read(offset, size)
            else:
                part = await self._read_file(offset, min(size, self._tail.start - offset))
            if not part or cuts != self._cuts:
                return b""  # it was cut off meanwhile
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    async def _read_file(self, offset: int, size: int) -> bytes:
        try:
            return await self._files.read(offset, size)
        except OSError as error:
            if offset < self._min or offset >= self.max_offset:
                return b""  # removed meanwhile
            raise StorageError(f"{self._path}: {error.strerror or error}") from error

    # -- cutting -----------------------------------------------------------------------------------

    async def truncate(self, offset: int) -> None:
        """Cut everything from ``offset`` on, durably. Appending is refused until it is done.

        Before the log's beginning: the log is empty then, and begins where that file would.
        """
        if offset >= self.max_offset:
            return
        if offset < self._min:
            await self.restart_at(offset - offset % self.segment_bytes)
            return
        await self.writer.halt()
        try:
            written = self.written_offset
            self._cut_memory(offset)
            if offset < written:
                await self._files.cut(offset, self._min, shorten=not self.truncate_in_memory_only)
        except (OSError, asyncio.CancelledError) as error:  # half cut: what is next is unknown
            raise self.writer.fail(error) from error
        finally:
            self.writer.is_halted = False
        self.writer.work()

    async def restart_at(self, offset: int) -> None:
        """Drop everything, durably; the log is empty and goes on at ``offset``, where a file would
        begin.
        """
        assert offset % self.segment_bytes == 0
        await self.writer.halt()
        try:
            self._cut_memory(offset)
            await self._files.remove(self._files.starts[::-1])
            self._begin(offset)
            await self._files.create(offset)
            await self.writer.sync()
        except (OSError, asyncio.CancelledError) as error:  # half cut: what is next is unknown
            raise self.writer.fail(error) from error
        finally:
            self.writer.is_halted = False
        self.writer.work()

    async def remove_all(self) -> None:
        """Remove the files and their directory; nothing is appended any more."""
        await self.writer.halt()
        try:
            await self._files.remove_all()
        except OSError as error:
            raise self.writer.fail(error) from error

    async def remove_before(self, offset: int) -> None:
        """Remove the files that lie before ``offset`` as a whole, and are flushed: nothing writes
        to them or syncs them any more."""
        keep = bisect_right(self._files.starts, min(offset, self.flushed_offset)) - 1
        for start in self._files.starts[: max(0, keep)]:
            self._min = start + self.segment_bytes
            try:
                await self._files.remove([start])  # oldest first: a crash makes no gap
            except OSError as error:
                raise self.writer.fail(error) from error

    def _cut_memory(self, offset: int) -> None:
        self._cuts += 1
        self._tail.truncate(offset)
        self.writer.cut(offset)

    async def close(self) -> None:
        """Flush and close. Raises StorageError, with the files closed all the same: a full disk is
        not waited for any more.
        """
        try:
            await self.writer.finish()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Close without flushing."""
        await self.writer.stop()
        await self._files.close()
