"""SegmentWriter: writes and syncs the tail of a segmented log in the background.

``append`` takes bytes into memory at once. One background task writes them, as much as has gathered
at a time, and syncs when a caller asks: all who wait share a sync. Bytes not yet written, and some
written ones behind them, are served from memory.

Failures. A full disk is tried again until there is room; meanwhile appends raise DiskFull. Any
other failure of a write or a sync is final: the kernel may have dropped what it could not write,
and a later sync that succeeds would prove nothing. Every wait then raises StorageError, and
``failure_listener`` is told, once: the node must end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.commitlog.segment_files import SegmentFiles
from shalott.broker.rocket.commitlog.segment_tail import Tail
from shalott.broker.rocket.commitlog.waiters import Waiters

log = logging.getLogger("shalott.broker.commitlog")

DISK_FULL_RETRY_MS = 500
PENDING_BYTES_MAX = 64 << 20  # what a slow disk may be behind


class SegmentWriter:
    """Of one log. ``written_end`` and ``flushed_end`` are how far it has got.

    ``is_halted``: a truncation is under way, or the log is closed.
    """

    def __init__(self, path: str, files: SegmentFiles, tail: Tail, *, flushed: int) -> None:
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self.progress_listener: Callable[[], None] = lambda: None  # more is written or flushed
        # So many bytes may stay in memory until a caller asks for them to be written or flushed.
        self.lazy_bytes = 0
        self.written_end = tail.end
        self.flushed_end = flushed
        self.is_halted = False
        self._path = path
        self._files = files
        self._tail = tail
        self._flush_wanted = 0
        self._write_waiters = Waiters()
        self._flush_waiters = Waiters()
        self._working: asyncio.Task[None] | None = None
        self._closing = False
        self._full: DiskFull | None = None
        self._failure: StorageError | None = None

    def require_usable(self) -> None:
        """Raises StorageError if nothing can be appended now, DiskFull if that may change."""
        if self._full is not None and self._failure is None:
            raise self._full.with_traceback(None)
        self._require_open()
        if self._tail.end - self.written_end > PENDING_BYTES_MAX:
            raise DiskFull(f"{self._path}: the disk is too slow, {PENDING_BYTES_MAX} bytes wait")

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self.is_halted:
            raise StorageError(f"{self._path} is closed, or being truncated")

    # -- waiting -----------------------------------------------------------------------------------

    async def written(self, offset: int) -> None:
        if offset > self.written_end:
            await self._wait(self._write_waiters, offset)

    async def flushed(self, offset: int) -> None:
        if offset > self.flushed_end:
            await self._wait(self._flush_waiters, offset)

    def request_flush(self) -> None:
        """Have all that was appended flushed, without waiting for it."""
        if self.flushed_end < self._tail.end:
            self._flush_wanted = self._tail.end
            self.work()

    async def _wait(self, waiters: Waiters, offset: int) -> None:
        self._require_open()
        if waiters is self._flush_waiters:
            self._flush_wanted = max(self._flush_wanted, min(offset, self._tail.end))
        self.work()
        await waiters.wait(offset)

    # -- cutting and closing -----------------------------------------------------------------------

    async def halt(self) -> None:
        """Stop the background task between two steps."""
        self._require_open()
        self.is_halted = True
        await self._idle()
        self._full = None

    def cut(self, offset: int) -> None:
        """The tail ends there now; waits for more are told that it can't be."""
        self.written_end = min(self.written_end, offset)
        self.flushed_end = min(self.flushed_end, offset)
        self._flush_wanted = min(self._flush_wanted, offset)
        gone = StorageError(f"{self._path} was truncated to {offset}")
        self._write_waiters.refuse(gone, beyond=offset)
        self._flush_waiters.refuse(gone, beyond=offset)

    async def finish(self) -> None:
        """Flush for the last time. Raises StorageError."""
        self._closing = True
        if self._full is not None:
            raise self._full.with_traceback(None)
        if self._failure is None and not self.is_halted and self.flushed_end < self._tail.end:
            await self.flushed(self._tail.end)

    async def stop(self) -> None:
        """Nothing is written any more."""
        self.is_halted = True
        await self._idle()
        self._release(StorageError(f"{self._path} was closed"))

    # -- the background task -----------------------------------------------------------------------

    def work(self) -> None:
        if self._working is not None or self.is_halted or self._failure is not None:
            return
        if self._has_work():
            self._working = asyncio.create_task(self._run(), name=f"log {self._path}")

    async def _run(self) -> None:
        try:
            await self._work_all()
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._working = None

    async def _idle(self) -> None:
        """Wait for the background task; one that was cancelled before it began says nothing."""
        while self._working is not None and not self._working.done():
            await asyncio.wait([self._working])

    def _has_work(self) -> bool:
        unwritten = self._tail.end - self.written_end
        if unwritten and (unwritten > self.lazy_bytes or self._write_waiters.has_any):
            return True
        return self.flushed_end < min(self._flush_wanted, self._tail.end)

    async def _work_all(self) -> None:
        while not self.is_halted and self._has_work():
            if self.flushed_end < self._flush_wanted <= self.written_end:
                await self.sync()
                self._flush_waiters.wake(self.flushed_end)
                self.progress_listener()
            else:
                await self._write_some()

    async def _write_some(self) -> None:
        data = self._tail.unwritten(self.written_end)
        try:
            await self._files.write(self.written_end, data, self._advance)
        except OSError as error:
            if error.errno not in NO_ROOM or self._closing:
                raise
            if self._full is None:
                log.warning("%s: the disk is full", self._path)
            self._full = DiskFull(f"{self._path}: {error.strerror}")
            await pause_ms(DISK_FULL_RETRY_MS)
            return
        self._full = None
        self._tail.release(self.written_end)
        self._write_waiters.wake(self.written_end)
        self.progress_listener()

    def _advance(self, count: int) -> None:
        self.written_end += count

    async def sync(self) -> None:
        """All that is written, and the names of the files."""
        end = self.written_end
        await self._files.sync()
        self.flushed_end = end

    def fail(self, error: BaseException) -> StorageError:
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
