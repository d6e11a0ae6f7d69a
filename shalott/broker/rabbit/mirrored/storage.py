"""Where queue processes keep their messages: one directory a queue, one owner at a time."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Clock, never
from shalott.broker.base.errors import StorageError
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import policy
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.memory import MemoryMonitor
from shalott.broker.rabbit.storage.pages import PageFiles, PageStore

log = logging.getLogger("shalott.broker.mirrored")

DIRECTORY = "queues"


class QueueStorage:
    """Opens backing queues. A former owner that was killed can't write any more once its successor
    opens.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        buggify: Callable[[str], bool] = never,
        monitor: MemoryMonitor | None = None,
        *,
        sync_interval_ms: int = 0,
    ) -> None:
        self._sync_interval_ms = sync_interval_ms
        self._disk = disk
        self._clock = clock
        self._buggify = buggify
        self._monitor = MemoryMonitor(clock) if monitor is None else monitor
        self._pages = PageStore(disk)
        self._open: dict[str, BackingQueue] = {}

    def directory(self, key: str) -> str:
        """A queue's name may hold anything, and be longer than a file's name may be."""
        return f"{DIRECTORY}/{hashlib.sha256(key.encode()).hexdigest()[:32]}"

    async def open_empty(self, row: QueueRow) -> tuple[BackingQueue, int]:
        """An empty queue, and how many messages of a former life were discarded for it."""
        discarded = await self.wipe(row.key)
        levels, pages = max_priority(row), self._pages_of(row)
        if not row.durable:
            queue = BackingQueue.in_memory(max_priority=levels, pages=pages)
        else:
            queue = await BackingQueue.create(
                self._disk, self.directory(row.key), max_priority=levels, pages=pages
            )
        return self._opened(row, queue), discarded

    async def recover(self, row: QueueRow) -> BackingQueue:
        """What the queue held when it was last open here. Raises StorageError."""
        await self._close_former(row.key)
        levels, pages = max_priority(row), self._pages_of(row)
        if not row.durable:
            return self._opened(row, BackingQueue.in_memory(max_priority=levels, pages=pages))
        queue = await BackingQueue.recover(
            self._disk, self.directory(row.key), max_priority=levels, clock=self._clock, pages=pages
        )
        return self._opened(row, queue)

    def _pages_of(self, row: QueueRow) -> PageFiles:
        return self._pages.files_of(self.directory(row.key).rpartition("/")[2])

    def _opened(self, row: QueueRow, queue: BackingQueue) -> BackingQueue:
        queue.index.buggify = queue.pager.buggify = self._buggify
        queue.index.sync_after(self._sync_interval_ms)
        queue.ram.join(self._monitor, queue.pager)
        queue.pager.set_lazy(policy.is_lazy(row))
        self._open[row.key] = queue
        return queue

    def forget_all(self) -> None:
        """The broker has stopped: the node's memory is free of what its queues held."""
        for queue in self._open.values():
            queue.ram.forget()

    async def wipe(self, key: str) -> int:
        """Delete a queue's files; returns how many messages were in them."""
        await self._close_former(key)
        directory = self.directory(key)
        if not await self._disk.listdir(directory):
            return 0
        try:
            former = await BackingQueue.recover(self._disk, directory)
        except StorageError as error:
            log.warning("queue '%s': %s; it is discarded unread", key, error)
            await BackingQueue(self._disk, directory, None).wipe()
            return 0
        discarded = former.messages.depth
        await former.wipe()
        return discarded

    async def _close_former(self, key: str) -> None:
        former = self._open.pop(key, None)
        if former is not None:
            await former.abandon()


def max_priority(row: QueueRow) -> int | None:
    """None: the queue has no priorities. Not a matter of policies: it can't change."""
    value = row.arguments.get("x-max-priority")
    return value if isinstance(value, int) else None
