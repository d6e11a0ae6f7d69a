"""Flusher: makes a backing queue's journal durable in the background.

One flush at a time; all that was appended while one runs shares the next (group commit). Publishes
are flushed at once, because a publisher waits for the confirm, or with ``sync_interval_ms`` after
so long, as RabbitMQ's queues do (sync_timer_ref, 200 ms); removals wait LAZY_FLUSH_MS for company,
because no publisher waits for them. A full disk is tried again until there is room; any other error
is told to the failure listener, once.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Iterator

from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.journal import Journal

log = logging.getLogger("shalott.broker.storage")

LAZY_FLUSH_MS = 50
DISK_FULL_RETRY_MS = 500


class Flusher:
    """Flushes a queue's journal, and compacts it when that pays.

    ``compaction`` gets the journal's size and returns the records that replace it, or None if it
    is not to be compacted now.
    """

    def __init__(
        self,
        journal: Journal,
        compaction: Callable[[int], Iterator[bytes] | AsyncGenerator[bytes, None] | None],
    ) -> None:
        self._journal = journal
        self._compaction = compaction
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None  # set while the disk is full
        self._flushing: asyncio.Future[None] | None = None  # or compacting
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._failure: StorageError | None = None
        self._announced = 0
        self._closed = False
        self.sync_interval_ms = 0  # how long publishes wait for company too
        self.durable_listener: Callable[[int], None] = lambda mark: None
        self.failure_listener: Callable[[StorageError], None] = lambda error: None

    @property
    def mark(self) -> int:
        """Of the newest record. After a failure it lies ahead of all that can become durable."""
        return self._journal.mark + (self._failure is not None)

    @property
    def timer_runs(self) -> bool:
        """Whether something waits for company."""
        return self._timer is not None

    @property
    def durable_mark(self) -> int:
        return self._journal.durable_mark

    def append(self, record: bytes, *, eager: bool) -> int:
        """Take a record and see to its flush.

        Never raises: after a failure its mark is just never durable.
        """
        if self._failure is not None or self._closed:
            return self._journal.mark + 1
        mark = self._journal.append(record)
        delay_ms = self.sync_interval_ms if eager else LAZY_FLUSH_MS
        if not delay_ms:
            self._flush_now()
        elif self._timer is None and self._flushing is None:
            self._timer = _call_later(delay_ms, self._flush_now)
        return mark

    async def wait_durable(self, mark: int) -> None:
        """Raises StorageError if ``mark`` can't become durable any more."""
        if mark <= self.durable_mark:
            return
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._closed:
            raise StorageError("the journal is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((mark, waiter))
        self._flush_now()
        await waiter

    async def close(self, last_record: bytes) -> None:
        """Append ``last_record``, flush, close.

        Raises StorageError, with the file closed all the same.
        """
        if self._closed:
            return
        try:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            self._journal.append(last_record)
            self._stop()
            await self._journal.flush()
            self._announce()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Close without flushing."""
        self._stop()
        await self._journal.abandon()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        self._refuse_waiters(StorageError("the journal was closed"))

    def _stop(self) -> None:
        self._closed = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = None

    def _flush_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None or self._retry is not None or self._closed:
            return
        if self._failure is None and self._behind():
            self._begin(self._journal.begin_flush)

    def _begin(self, work: Callable[[], asyncio.Future[None]]) -> None:
        try:
            self._flushing = work()
        except StorageError as error:
            self._refused(error)
        else:
            self._flushing.add_done_callback(self._flushed)

    def _try_again(self) -> None:
        self._retry = None
        self._flush_now()

    def _flushed(self, flushing: asyncio.Future[None]) -> None:
        """A flush or a compaction has ended: announce it, and go on with what is due."""
        self._flushing = None
        error = None if flushing.cancelled() else flushing.exception()
        if error is not None:
            if not isinstance(error, StorageError):
                raise error
            self._refused(error)
            return
        self._announce()
        # Once closed, the last record must stay the last.
        replacement = None if self._closed else self._compaction(self._journal.size)
        if replacement is not None:
            self._begin(functools.partial(self._journal.begin_rewrite, replacement))
        else:
            self._flush_now()

    def _refused(self, error: StorageError) -> None:
        if isinstance(error, DiskFull):
            if not self._closed:
                self._retry = _call_later(DISK_FULL_RETRY_MS, self._try_again)
            return
        self._announce()
        if not self._closed:
            self._fail(error)

    def _behind(self) -> bool:
        return self._journal.durable_mark < self._journal.mark

    def _announce(self) -> None:
        """Tell everyone how far durability has come."""
        durable = self.durable_mark
        if durable == self._announced:
            return
        self._announced = durable
        waiting = []
        for mark, waiter in self._waiters:
            if mark > durable:
                waiting.append((mark, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = waiting
        self.durable_listener(durable)

    def _fail(self, error: StorageError) -> None:
        self._failure = error
        log.error("no more durability: %s", error)
        self._refuse_waiters(error)
        self.failure_listener(error)

    def _refuse_waiters(self, error: StorageError) -> None:
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)


def _call_later(delay_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)
