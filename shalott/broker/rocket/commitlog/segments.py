"""SegmentedLog: an endless byte string in files of one size, each named by its first offset.

Upstream's MappedFileQueue (store/MappedFileQueue.java) without the mapping. Offsets count from the
beginning of the log and never restart; a file holds ``segment_bytes`` of them and is complete when
it is that long. Nothing is allocated ahead: a file is as long as what was written to it.

``append`` takes bytes into memory at once. One background task writes them, as much as has gathered
at a time, and syncs when somebody asks: all who wait share a sync. Bytes not yet written, and some
written ones behind them, are served from memory.

Truncation is durable when it returns (KB-RKT-23: a tail that is cut in memory only comes back after
a crash, for its messages are as valid as ever). Newer files are removed before the file with the
cut is shortened, so a crash in between leaves a longer log, never one with a gap.

Failures. A full disk is tried again until there is room; meanwhile appends raise DiskFull. Any
other failure of a write or a sync is final: the kernel may have dropped what it could not write,
and a later sync that succeeds would prove nothing. Every wait then raises StorageError, and
``failure_listener`` is told, once: the node must end.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.commitlog.segment_files import SegmentFiles
from shalott.broker.rocket.commitlog.segment_tail import Tail
from shalott.broker.rocket.commitlog.waiters import Waiters

log = logging.getLogger("shalott.broker.commitlog")

DISK_FULL_RETRY_MS = 500
REWRITE_BYTES = 1 << 20
CACHE_BYTES = 4 << 20  # of written bytes kept for readers: replication and dispatch follow closely
PENDING_BYTES_MAX = 64 << 20  # what a slow disk may be behind


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
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self.progress_listener: Callable[[], None] = lambda: None  # more is written or flushed
        # So many bytes may stay in memory until somebody asks for them to be written or flushed.
        self.lazy_bytes = 0
        # KB-RKT-23: a truncation leaves the file with the cut as it is.
        self.truncate_in_memory_only = False
        self._path = path
        self._files = files
        self._min = files.starts[0] if files.starts else 0
        self._max = self._written = end
        self._flushed = self._min
        self._tail = Tail(end, cache_bytes)
        self._flush_wanted = 0
        self._write_waiters = Waiters()
        self._flush_waiters = Waiters()
        self._working: asyncio.Task[None] | None = None
        self._closing = False
        self._halted = False  # a truncation is under way, or the log is closed
        self._full: DiskFull | None = None
        self._failure: StorageError | None = None
        self._cuts = 0

    @classmethod
    async def open(
        cls, disk: Disk, path: str, segment_bytes: int, *, cache_bytes: int = CACHE_BYTES
    ) -> SegmentedLog:
        """Find the files of a former life. Files after a gap, or after one that is too short, are
        removed: what was flushed has no gaps.
        """
        try:
            files, end = await SegmentFiles.find(disk, path, segment_bytes)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}") from error
        return cls(path, segment_bytes, files, end, cache_bytes=cache_bytes)

    async def settle(self, trusted: int) -> None:
        """Make all that was found durable; what lies before ``trusted`` is known to be.

        It is written again first: after a failed sync the kernel calls pages clean that never
        reached the disk, and what a former life wrote may be of them.
        """
        try:
            position = max(trusted, self._min)
            while position < self._max:
                data = await self.read(position, REWRITE_BYTES)
                await self._files.write(position, data)
                position += len(data)
            await self._sync()
        except OSError as error:
            raise self._fail(error) from error

    # -- where it is -------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        return self._min

    @property
    def max_offset(self) -> int:
        return self._max

    @property
    def written_offset(self) -> int:
        return self._written

    @property
    def flushed_offset(self) -> int:
        return self._flushed

    @property
    def failure(self) -> StorageError | None:
        return self._failure

    @property
    def room(self) -> int:
        """Bytes until the end of the file that is being filled; never 0."""
        return self.segment_bytes - self._max % self.segment_bytes

    def segment_start(self, offset: int) -> int:
        return offset - offset % self.segment_bytes

    # -- appending ---------------------------------------------------------------------------------

    def require_usable(self) -> None:
        """Raises StorageError if nothing can be appended now, DiskFull if that may change."""
        if self._full is not None and self._failure is None:
            raise self._full.with_traceback(None)
        self._require_open()
        if self._max - self._written > PENDING_BYTES_MAX:
            raise DiskFull(f"{self._path}: the disk is too slow, {PENDING_BYTES_MAX} bytes wait")

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._halted:
            raise StorageError(f"{self._path} is closed, or being truncated")

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """Take bytes; returns their offset. What is longer than ``room`` goes on in the next file.
        Raises StorageError; DiskFull: later, perhaps.
        """
        self.require_usable()
        offset = self._max
        self._tail.append_across(data, self.segment_bytes)
        self._max += len(data)
        self._work()
        return offset

    def begin_at(self, offset: int) -> None:
        """Let an empty log go on at ``offset``, where a file would begin."""
        assert self._min == self._max == self._written and offset % self.segment_bytes == 0
        self._min = self._max = self._written = self._flushed = offset
        self._tail.truncate(offset)

    async def written(self, offset: int) -> None:
        """Return when everything before ``offset`` is in the operating system's hands, also if it
        is still to be appended.

        Raises StorageError if that can't be any more, or if ``offset`` is cut off.
        """
        if offset > self._written:
            await self._wait(self._write_waiters, offset)

    async def flushed(self, offset: int) -> None:
        """Return when everything before ``offset`` is on the disk. Raises as ``written`` does."""
        if offset > self._flushed:
            await self._wait(self._flush_waiters, offset)

    def request_flush(self) -> None:
        """Have all that was appended flushed, without waiting for it."""
        if self._flushed < self._max:
            self._flush_wanted = self._max
            self._work()

    async def _wait(self, waiters: Waiters, offset: int) -> None:
        self._require_open()
        if waiters is self._flush_waiters:
            self._flush_wanted = max(self._flush_wanted, min(offset, self._max))
        self._work()
        await waiters.wait(offset)

    # -- reading -----------------------------------------------------------------------------------

    async def read(self, offset: int, size: int) -> bytes:
        """Bytes from ``offset``: ``size`` of them, or all until the end of the file or the log.

        None if ``offset`` is not in the log. Raises StorageError if the disk can't read.
        """
        size = min(size, self._max - offset, self.segment_bytes - offset % self.segment_bytes)
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
            if offset < self._min or offset >= self._max:
                return b""  # removed meanwhile
            raise StorageError(f"{self._path}: {error.strerror or error}") from error

    # -- cutting -----------------------------------------------------------------------------------

    async def truncate(self, offset: int) -> None:
        """Cut everything from ``offset`` on, durably. Appending is refused until it is done.

        Before the log's beginning: the log is empty then, and begins where that file would.
        """
        if offset >= self._max:
            return
        if offset < self._min:
            await self.restart_at(self.segment_start(offset))
            return
        await self._halt()
        try:
            written = self._written
            self._cut_memory(offset)
            if offset < written:
                await self._files.cut(offset, self._min, shorten=not self.truncate_in_memory_only)
        except (OSError, asyncio.CancelledError) as error:  # half cut: what is next is unknown
            raise self._fail(error) from error
        finally:
            self._halted = False
        self._work()

    async def restart_at(self, offset: int) -> None:
        """Drop everything, durably; the log is empty and goes on at ``offset``, where a file would
        begin.
        """
        assert offset % self.segment_bytes == 0
        await self._halt()
        try:
            self._cut_memory(offset)
            await self._files.remove(self._files.starts[::-1])
            self._min = self._max = self._written = self._flushed = offset
            await self._files.create(offset)
            await self._sync()
        except (OSError, asyncio.CancelledError) as error:  # half cut: what is next is unknown
            raise self._fail(error) from error
        finally:
            self._halted = False
        self._work()

    async def remove_before(self, offset: int) -> None:
        """Remove the files that lie before ``offset`` as a whole, and are flushed: nobody writes to
        them or syncs them any more."""
        keep = bisect_right(self._files.starts, min(offset, self._flushed)) - 1
        for start in self._files.starts[: max(0, keep)]:
            self._min = start + self.segment_bytes
            try:
                await self._files.remove([start])  # oldest first: a crash makes no gap
            except OSError as error:
                raise self._fail(error) from error

    def _cut_memory(self, offset: int) -> None:
        self._cuts += 1
        self._max = offset
        self._written = min(self._written, offset)
        self._flushed = min(self._flushed, offset)
        self._flush_wanted = min(self._flush_wanted, offset)
        self._tail.truncate(offset)
        gone = StorageError(f"{self._path} was truncated to {offset}")
        self._write_waiters.refuse(gone, beyond=offset)
        self._flush_waiters.refuse(gone, beyond=offset)

    async def _halt(self) -> None:
        """Stop the background task between two steps."""
        self._require_open()
        self._halted = True
        await self._idle()
        self._full = None

    async def close(self) -> None:
        """Flush and close. Raises StorageError, with the files closed all the same: a full disk is
        not waited for any more.
        """
        self._closing = True
        try:
            if self._full is not None:
                raise self._full.with_traceback(None)
            if self._failure is None and not self._halted and self._flushed < self._max:
                await self.flushed(self._max)
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Close without flushing."""
        self._halted = True
        await self._idle()
        self._release(StorageError(f"{self._path} was closed"))
        await self._files.close()

    # -- the background task -----------------------------------------------------------------------

    def _work(self) -> None:
        if self._working is not None or self._halted or self._failure is not None:
            return
        if self._has_work():
            self._working = asyncio.create_task(self._run(), name=f"log {self._path}")

    async def _run(self) -> None:
        try:
            await self._work_all()
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._working = None

    async def _idle(self) -> None:
        """Wait for the background task; one that was cancelled before it began says nothing."""
        while self._working is not None and not self._working.done():
            await asyncio.wait([self._working])

    def _has_work(self) -> bool:
        unwritten = self._max - self._written
        if unwritten and (unwritten > self.lazy_bytes or self._write_waiters.has_any):
            return True
        return self._flushed < min(self._flush_wanted, self._max)

    async def _work_all(self) -> None:
        while not self._halted and self._has_work():
            if self._flushed < self._flush_wanted <= self._written:
                await self._sync()
                self._flush_waiters.wake(self._flushed)
                self.progress_listener()
            else:
                await self._write_some()

    async def _write_some(self) -> None:
        data = self._tail.unwritten(self._written)
        try:
            await self._files.write(self._written, data, self._advance)
        except OSError as error:
            if error.errno not in NO_ROOM or self._closing:
                raise
            if self._full is None:
                log.warning("%s: the disk is full", self._path)
            self._full = DiskFull(f"{self._path}: {error.strerror}")
            await pause_ms(DISK_FULL_RETRY_MS)
            return
        self._full = None
        self._tail.release(self._written)
        self._write_waiters.wake(self._written)
        self.progress_listener()

    def _advance(self, count: int) -> None:
        self._written += count

    async def _sync(self) -> None:
        """All that is written, and the names of the files."""
        end = self._written
        await self._files.sync()
        self._flushed = end

    def _fail(self, error: BaseException) -> StorageError:
        if self._failure is None:
            reason = error.strerror or error if isinstance(error, OSError) else repr(error)
            self._failure = StorageError(f"{self._path}: {reason}")
            log.error("%s", self._failure)
            self._release(self._failure)
            self.failure_listener(self._failure)
        return self._failure

    def _release(self, error: StorageError) -> None:
        self._write_waiters.refuse(error)
        self._flush_waiters.refuse(error)
