"""Retention: which files of the commit log have had their time (DefaultMessageStore's
CleanCommitLogService, MappedFileQueue.deleteExpiredFileByTime).

A file is as old as the message that follows it, by the time at which that was stored: upstream asks
the file system, which a copy or a restart of a container deceives. Nothing waits for an hour of the
day (upstream's deleteWhen), so upstream's 75 % of the disk, from where on it does not wait, has no
meaning here. What a full disk costs is counted in what the log could have: its own bytes and those
that are free; other people's files are not ours to make room for.

The file that is being filled never goes, nor what is not dispatched yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.rocket.commitlog.codec import store_ms_at
from shalott.broker.rocket.commitlog.commit_log import CommitLog
from shalott.broker.rocket.commitlog.log_reads import message_at
from shalott.broker.rocket.config import StoreConfig

NS_PER_MS = 1_000_000


class Retention:
    """Of one commit log."""

    def __init__(self, env: Env, config: StoreConfig, commit_log: CommitLog) -> None:
        self._env = env
        self._config = config
        self._log = commit_log
        self._stored: tuple[int, int] = (-1, 0)  # (a file's start, when its first was stored)

    async def run(self, remove_before: Callable[[int], Awaitable[None]]) -> None:
        """Look every so often, until cancelled. Raises StorageError."""
        while True:
            await pause_ms(self._config.clean_interval_ms)
            due = await self.due_before(self._env.clock.wall_ns() // NS_PER_MS)
            if due > self._log.min_offset:
                with suppress(DiskFull):  # a queue can't be flushed: later
                    await remove_before(due)

    async def due_before(self, now_ms: int) -> int:
        """The position before which everything may go; the log's beginning if nothing may.

        Raises StorageError.
        """
        return max(await self._expired_before(now_ms), await self._too_much_before())

    async def _expired_before(self, now_ms: int) -> int:
        log = self._log
        due = log.min_offset
        while (following := self._next_file(due)) < log.max_offset:
            stored_ms = await self._stored_ms(following)
            if stored_ms is None or now_ms - stored_ms < self._config.file_reserved_ms:
                break
            due = following
        return due

    async def _stored_ms(self, start: int) -> int | None:
        """When the first message of a file was stored; None if it is not whole yet."""
        if self._stored[0] != start:
            message = await message_at(self._log, start)
            if message is None:
                return None
            self._stored = start, store_ms_at(message, 0)
        return self._stored[1]

    async def _too_much_before(self) -> int:
        log = self._log
        due = log.min_offset
        if self._config.disk_used_percent_max == 100 or self._next_file(due) >= log.max_offset:
            return due
        try:
            free = await self._env.disk.free_bytes()
        except OSError as error:
            raise StorageError(f"the disk: {error.strerror or error}") from error
        used = log.written_offset - due
        room_max = (used + free) * self._config.disk_used_percent_max // 100
        while used > room_max and (following := self._next_file(due)) < log.max_offset:
            used -= following - due
            due = following
        return due

    def _next_file(self, offset: int) -> int:
        size = self._log.segment_bytes
        return offset - offset % size + size
