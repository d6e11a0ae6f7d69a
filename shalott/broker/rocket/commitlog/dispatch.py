"""Dispatch: adds what the log has to the consume queues and the index of keys, up to the confirmed
end (upstream: ReputMessageService).

No reader sees more than the queues have, so nothing beyond the confirmed end is read.
"""

from __future__ import annotations

import asyncio

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.rocket.commitlog.api import MessageLog
from shalott.broker.rocket.commitlog.codec import store_ms_at
from shalott.broker.rocket.commitlog.consume_queues import QueueSet
from shalott.broker.rocket.commitlog.key_index import KeyIndex
from shalott.broker.rocket.commitlog.waiters import Waiters

DISPATCH_BYTES = 128 << 10  # between two of these other tasks have their turn
DISPATCH_RETRY_MS = 100


class Dispatch:
    """Of one store. ``position`` is how far the queues are built; ``confirm`` is where dispatch
    ends, None: at the written end.

    ``store_ms``: when the last message before ``position`` was stored, 0 if that is not known.

    ``held`` is held by dispatch for a stretch, by a truncation and by a checkpoint.
    """

    def __init__(
        self,
        env: Env,
        message_log: MessageLog,
        queues: QueueSet,
        index: KeyIndex,
        *,
        position: int,
        store_ms: int,
        confirm: int | None,
        read_flushed_only: bool,
    ) -> None:
        self.position = position
        self.store_ms = store_ms
        self.confirm = confirm
        self.held = asyncio.Lock()
        self._env = env
        self._log = message_log
        self._queues = queues
        queues.witness = env.witness
        self._index = index
        self._read_flushed_only = read_flushed_only
        self._waiters = Waiters()
        self._go = asyncio.Event()

    @property
    def confirm_offset(self) -> int:
        if self.confirm is None:
            return self._log.written_offset
        return min(self.confirm, self._log.max_offset)

    async def reached(self, offset: int) -> None:
        """Return when everything before ``offset`` is in the queues. Raises StorageError when the
        store fails or is closed."""
        if offset > self.position:
            await self._waiters.wait(offset)

    def refuse(self, error: StorageError) -> None:
        """Nothing is dispatched any more."""
        self._waiters.refuse(error)

    def _bound(self) -> int:
        bound = self._log.written_offset
        if self.confirm is not None:
            bound = min(bound, self.confirm, self._log.max_offset)
        if self._read_flushed_only:
            bound = min(bound, self._log.flushed_offset)
        return bound

    def soon(self) -> None:
        """There may be more to dispatch."""
        if not self._go.is_set() and self._bound() > self.position:
            self._go.set()

    def wake(self) -> None:
        self._go.set()

    async def run(self) -> None:
        """Until cancelled. Raises StorageError."""
        while True:
            self._go.clear()
            try:
                await self.now()
            except DiskFull:
                await pause_ms(DISPATCH_RETRY_MS)
                continue
            await self._go.wait()

    async def now(self, stretch_bytes: int = DISPATCH_BYTES) -> None:
        """All that may be dispatched now."""
        while self._bound() > self.position:
            async with self.held:
                position = self.position
                scanned = await self._log.scan(position, self._bound(), stretch_bytes)
                if scanned.next == position:
                    return
                await self._queues.dispatch(scanned)
                self._env.witness(
                    "dispatched", self._log.directory, self._log.segment_bytes, position,
                    scanned.next,
                )  # fmt: skip
                self.position = scanned.next
                if scanned.spans:
                    self.store_ms = store_ms_at(scanned.data, scanned.spans[-1][0])
                self._index.dispatch(scanned)
            self._waiters.wake(scanned.next)
            if self._bound() <= scanned.next:
                return
            await asyncio.sleep(0)

    # -- while ``held`` is held --------------------------------------------------------------------

    async def cut(self, offset: int) -> None:
        """Forget what the queues and the index know of the log from ``offset`` on."""
        lowest = await self._queues.cut(offset)
        self.position = min(self.position, lowest)
        await self._index.cut(offset)
        if self.confirm is not None:
            self.confirm = min(self.confirm, offset)
        gone = StorageError(f"the log is cut to {offset}")
        self._waiters.refuse(gone, beyond=offset)

    async def drop(self, topic: str, end: int) -> None:
        """Remove a topic's queues, and dispatch again what lies behind ``end``."""
        await self._queues.drop(topic, end)
        self.position = min(self.position, max(end, self._log.min_offset))
        self.wake()

    async def recover_queue_offsets(self, *, from_queues_only: bool = False) -> None:
        """What is found takes effect at once, and knows what was appended meanwhile."""
        found = self._queues.ends()
        position = self.position
        if from_queues_only or self._env.has_bug("KB-RKT-15"):
            position = self._log.max_offset
        while position < self._log.max_offset:
            scanned = await self._log.scan(position, self._log.max_offset, DISPATCH_BYTES)
            if scanned.next == position:
                break  # the rest of a message is still to come
            self._queues.count(scanned, found)
            position = scanned.next
        self._queues.next_offsets = found
