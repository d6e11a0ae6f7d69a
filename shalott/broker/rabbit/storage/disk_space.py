"""DiskMonitor: whether a node's own disk has room, after rabbit_disk_monitor.

Below the limit (``disk_free_limit``) there is an alarm, which stops publishers. The fuller the
disk, the more often it is asked: as often as it could be filled, at ``FASTEST_BYTES_A_MS``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.broker.base.disk import Disk

log = logging.getLogger("shalott.broker.disk")

FASTEST_BYTES_A_MS = 250_000
SHORTEST_MS, LONGEST_MS = 100, 10_000


class DiskMonitor:
    """Of one node. A limit of 0: none, and the disk is never asked."""

    def __init__(self, disk: Disk, limit_bytes: int, on_alarm: Callable[[bool], None]) -> None:
        self.limit_bytes = limit_bytes
        self.is_alarmed = False
        self._disk = disk
        self._on_alarm = on_alarm
        self._task: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="disk space")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def set_limit(self, limit_bytes: int) -> None:
        """The operator's: it holds at once."""
        self.limit_bytes = limit_bytes
        self._look_now.set()

    async def _watch(self) -> None:
        while True:
            wait_ms: float | None = None
            if self.limit_bytes:
                wait_ms = await self._look()
            else:
                self._judge(self.limit_bytes)
            self._look_now.clear()
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._look_now.wait()
            except TimeoutError:
                pass

    async def _look(self) -> float:
        """Returns when to look again, in milliseconds."""
        try:
            free = await self._disk.free_bytes()
        except OSError as error:
            log.warning("the disk does not say how much is free: %s", error)
            return LONGEST_MS
        self._judge(free)
        room = free - self.limit_bytes
        return min(max(SHORTEST_MS, room / FASTEST_BYTES_A_MS), LONGEST_MS)

    def _judge(self, free: int) -> None:
        is_low = free < self.limit_bytes
        if is_low == self.is_alarmed:
            return
        self.is_alarmed = is_low
        word = "insufficient" if is_low else "sufficient"
        log.warning("free disk space is %s: %d bytes, limit %d", word, free, self.limit_bytes)
        self._on_alarm(is_low)
