"""Waiters: those who wait until a log has got as far as an offset."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from shalott.broker.base.errors import StorageError


class Waiters:
    """Woken in the order of their offsets."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._numbers = itertools.count()
        self._gone = 0  # of those in the heap, at most so many wait no longer

    @property
    def has_any(self) -> bool:
        return bool(self._waiting)

    async def wait(self, offset: int) -> None:
        """Return when ``wake`` was called with ``offset`` or more. Raises what ``refuse`` got."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._numbers), waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            self._gone += 1
            if self._gone * 2 > len(self._waiting):  # a long poll that ended, say
                self._waiting = [entry for entry in self._waiting if not entry[2].done()]
                heapq.heapify(self._waiting)
                self._gone = 0
            raise

    def wake(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            waiter = heapq.heappop(waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    def refuse(self, error: StorageError, *, beyond: int = -1) -> None:
        """Tell those who wait for more than ``beyond`` that it can't be."""
        keep = []
        for entry in self._waiting:
            if entry[0] <= beyond:
                keep.append(entry)
            elif not entry[2].done():
                entry[2].set_exception(error)
        heapq.heapify(keep)
        self._waiting = keep
