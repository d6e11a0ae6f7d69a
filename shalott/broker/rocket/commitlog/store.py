"""MessageStore: a log, the consume queues on it, and what connects the two; implements Store.

Source: store/DefaultMessageStore.java. The log is a CommitLog, or any other MessageLog (api.py).
Messages go to the log at once; one task (upstream: ReputMessageService) reads what was appended and
adds it to the consume queues, up to the confirmed end of the log, so nobody reads further. A
checkpoint says from where on that has to be done again after a crash.

How a failed disk ends a node: the log tells ``failure_listener``; it must end the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.rocket.commitlog.api import FoundByKey, Got, Message, MessageLog, PutStage
from shalott.broker.rocket.commitlog.appending import append
from shalott.broker.rocket.commitlog.codec import Encoder
from shalott.broker.rocket.commitlog.commit_log import RECOVERY_BYTES, CommitLog
from shalott.broker.rocket.commitlog.consume_queues import Key, QueueSet
from shalott.broker.rocket.commitlog.key_index import KeyIndex
from shalott.broker.rocket.commitlog.reading import digest, get, message_at, queue_offset_at_ms
from shalott.broker.rocket.commitlog.recovery import (
    CONFIRM_UNKNOWN,
    Checkpoint,
    CheckpointKeeper,
    mark_clean,
    open_store_files,
)
from shalott.broker.rocket.commitlog.retention import Retention
from shalott.broker.rocket.commitlog.waiters import Waiters
from shalott.broker.rocket.config import StoreConfig

log = logging.getLogger("shalott.broker.commitlog")

NS_PER_MS = 1_000_000
DISPATCH_BYTES = 128 << 10  # between two of these other tasks have their turn
DISPATCH_RETRY_MS = 100


class MessageStore:
    """Made by ``open``; runs until ``close``."""

    def __init__(
        self,
        env: Env,
        config: StoreConfig,
        message_log: MessageLog,
        queues: QueueSet,
        index: KeyIndex,
        checkpoint: Checkpoint,
        *,
        confirm: int | None,
    ) -> None:
        """Use ``open``."""
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self._env = env
        self._config = config
        self._log = message_log
        self._queues = queues
        self._index = index
        self._checkpoints = CheckpointKeeper(env.disk, checkpoint)
        self._encoder = Encoder(config.max_message_bytes)
        self._confirm = confirm
        self._dispatched = checkpoint.dispatched
        self._dispatch_waiters = Waiters()
        self._go = asyncio.Event()
        self._held = asyncio.Lock()  # by dispatch for a stretch, by a truncation, by a checkpoint
        self._tasks: list[asyncio.Task[None]] = []
        self._flush_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        env: Env,
        config: StoreConfig,
        *,
        message_log: MessageLog | None = None,
        confirm_from_checkpoint: bool = False,
    ) -> MessageStore:
        """Recover and run. ``message_log``: another one than a CommitLog in the node's files.

        ``confirm_from_checkpoint``: until ``set_confirm_offset`` is called, nothing beyond the
        confirm offset of the last checkpoint is dispatched; else all that is in the log.
        Raises StorageError.
        """
        found = await open_store_files(env, config, message_log, confirm_from_checkpoint)
        store = cls(
            env,
            config,
            found.log,
            found.queues,
            found.index,
            found.checkpoint,
            confirm=found.confirm,
        )
        store._log.progress_listener = store._log_has_moved
        store._log.failure_listener = store._fail
        store._queues.failure_listener = store._fail
        store._index.failure_listener = store._fail
        if not found.tail_is_lost:
            if env.has_bug("KB-RKT-16"):
                store._confirm = None  # recovery builds the queues to the log's end
            await store._dispatch_now(RECOVERY_BYTES)
            store._confirm = found.confirm
            await store.recover_queue_offsets()
        store._start()
        return store

    def _start(self) -> None:
        for run, name in (
            (self._dispatch_forever, "dispatch"),
            (self._checkpoint_forever, "checkpoint"),
            (self._clean_forever, "clean"),
        ):
            self._tasks.append(asyncio.create_task(run(), name=f"store {name}"))
        self._index.start(self._log, lambda: self._dispatched)
        self._log_has_moved()

    async def close(self) -> None:
        """Flush everything and leave nothing to recover. Raises StorageError, closed all the
        same."""
        await self._stop()
        try:
            await self._dispatch_now()
            await self._log.flushed(self._log.max_offset)
            await self._queues.flush()
            await self._index.save()
            await self._checkpoints.write(self._checkpoint_of_now())
            await mark_clean(self._env.disk)
        finally:
            await self._queues.abandon()
            await self._log.close()

    async def abandon(self) -> None:
        """Close after a failure: what is not flushed is left to recovery."""
        await self._stop()
        await self._queues.abandon()
        with suppress(StorageError):
            await self._log.close()

    async def _stop(self) -> None:
        self._closed = True
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._index.stop()
        error = StorageError("the store was closed")
        self._queues.refuse(error)
        self._dispatch_waiters.refuse(error)

    def _fail(self, error: StorageError) -> None:
        self._queues.refuse(error)
        self._dispatch_waiters.refuse(error)
        self.failure_listener(error)

    # -- the log -----------------------------------------------------------------------------------

    @property
    def log(self) -> MessageLog:
        return self._log

    def append(self, messages: list[Message]) -> PutStage:
        """See Store."""
        store_ms = self._env.clock.wall_ns() // NS_PER_MS
        return append(self._log, self._queues, self._encoder, messages, store_ms)

    def append_raw(self, offset: int, data: bytes) -> None:
        """See Store."""
        assert isinstance(self._log, CommitLog)
        was_empty = self._log.max_offset == 0
        self._log.append_raw(offset, data)
        if was_empty:
            self._dispatched = max(self._dispatched, self._log.min_offset)

    async def truncate(self, offset: int) -> None:
        """See Store. The checkpoint goes first, then the queues, then the log: after a crash in
        between, what is missing in the queues is built again.
        """
        async with self._held:
            if offset < self._log.max_offset:
                await self._checkpoints.lower(offset)
                await self._cut_queues(offset)
                await self._log.truncate(offset)
                self._dispatched = max(self._dispatched, self._log.min_offset)
                self._dispatched = min(self._dispatched, self._log.max_offset)
                await self._recover_queue_offsets()
        self._go.set()

    async def cut_queues(self, offset: int) -> None:
        """Forget what the queues know of the log from ``offset`` on, for who cuts the log himself.

        To be awaited before the log is cut.
        """
        async with self._held:
            await self._checkpoints.lower(offset)
            await self._cut_queues(offset)

    async def _cut_queues(self, offset: int) -> None:
        lowest = await self._queues.cut(offset)
        self._dispatched = min(self._dispatched, lowest)
        await self._index.cut(offset)
        if self._confirm is not None:
            self._confirm = min(self._confirm, offset)
        gone = StorageError(f"the log is cut to {offset}")
        self._dispatch_waiters.refuse(gone, beyond=offset)

    async def remove_before(self, offset: int) -> None:
        """Remove the log's files that lie before ``offset``, and what the queues know of them.

        The queues are flushed first: what they know of those files can't be built again.
        """
        assert isinstance(self._log, CommitLog)
        async with self._held:
            offset = min(offset, self._dispatched)
            if offset < self._log.min_offset + self._log.segment_bytes:
                return
            await self._queues.flush()
            await self._log.remove_before(offset)
            await self._queues.forget_before(self._log.min_offset)
            await self._index.forget_before(self._log.min_offset)

    async def recover_queue_offsets(self, *, from_queues_only: bool = False) -> None:
        """Find the next queue offsets from the queues and the log (recoverTopicQueueTable): a
        slave's raw bytes do not tell, so whoever becomes the master must do it before it appends.

        ``from_queues_only``: what is not dispatched yet does not count (KB-RKT-20).
        """
        async with self._held:
            await self._recover_queue_offsets(from_queues_only=from_queues_only)

    async def _recover_queue_offsets(self, *, from_queues_only: bool = False) -> None:
        """What is found takes effect at once, and knows what was appended meanwhile."""
        found = self._queues.ends()
        position = self._dispatched
        if from_queues_only or self._env.has_bug("KB-RKT-15"):
            position = self._log.max_offset
        while position < self._log.max_offset:
            scanned = await self._log.scan(position, self._log.max_offset, DISPATCH_BYTES)
            if scanned.next == position:
                break  # the rest of a message is still to come
            self._queues.count(scanned, found)
            position = scanned.next
        self._queues.next_offsets = found

    async def digest(self, start: int, end: int) -> str:
        """A fingerprint of the log's bytes, to compare replicas with. Raises StorageError."""
        return await digest(self._log, start, end)

    async def message_at(self, offset: int) -> bytes | None:
        """See Store."""
        return await message_at(self._log, offset)

    # -- the confirmed end, and dispatch -----------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        end = self._log.written_offset
        return end if self._confirm is None else min(self._confirm, self._log.max_offset)

    def set_confirm_offset(self, offset: int | None) -> None:
        """See Store."""
        self._confirm = offset
        self._dispatch_soon()

    @property
    def dispatched_offset(self) -> int:
        return self._dispatched

    async def dispatched(self, offset: int) -> None:
        """See Store. Raises StorageError when the store fails or is closed."""
        if offset > self._dispatched:
            await self._dispatch_waiters.wait(offset)

    def _bound(self) -> int:
        bound = min(self.confirm_offset, self._log.written_offset)
        if self._config.read_flushed_only:
            bound = min(bound, self._log.flushed_offset)
        return bound

    def _dispatch_soon(self) -> None:
        if self._bound() > self._dispatched:
            self._go.set()

    async def _dispatch_forever(self) -> None:
        while True:
            self._go.clear()
            try:
                await self._dispatch_now()
            except DiskFull:
                await pause_ms(DISPATCH_RETRY_MS)
                continue
            except StorageError as error:
                self._fail(error)
                return
            await self._go.wait()

    async def _dispatch_now(self, stretch_bytes: int = DISPATCH_BYTES) -> None:
        """All that may be dispatched now."""
        while self._bound() > self._dispatched:
            async with self._held:
                position = self._dispatched
                scanned = await self._log.scan(position, self._bound(), stretch_bytes)
                if scanned.next == position:
                    return
                await self._queues.dispatch(scanned)
                self._dispatched = scanned.next
                self._index.dispatch(scanned)
            self._dispatch_waiters.wake(scanned.next)
            if self._bound() > scanned.next:
                await asyncio.sleep(0)

    # -- queues ------------------------------------------------------------------------------------

    async def get(
        self, topic: str, queue_id: int, offset: int, *, max_messages: int, max_bytes: int
    ) -> Got:
        """See Store. Raises StorageError if a message is damaged."""
        queue = self._queues.queues.get((topic, queue_id))
        return await get(self._log, queue, offset, max_messages, max_bytes)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """See Store."""
        queue = self._queues.queues.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.first, queue.end)

    def queue_end(self, topic: str, queue_id: int) -> int:
        """See Store."""
        return self._queues.next_offsets.get((topic, queue_id), 0)

    def queues(self) -> list[Key]:
        """See Store."""
        return sorted(self._queues.queues)

    async def arrived(self, topic: str, queue_id: int, offset: int) -> None:
        """See Store. Raises StorageError when the store fails or is closed."""
        await self._queues.arrived((topic, queue_id), offset)

    async def queue_offset_at_ms(self, topic: str, queue_id: int, store_ms: int) -> int:
        """See Store."""
        queue = self._queues.queues.get((topic, queue_id))
        return 0 if queue is None else await queue_offset_at_ms(self._log, queue, store_ms)

    async def find_by_key(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, max_messages: int
    ) -> FoundByKey:
        """See Store. Raises StorageError."""
        times_ms, end, most = (begin_ms, end_ms), self._dispatched, max_messages
        return await self._index.find(self._log, topic, key, times_ms, end=end, max_messages=most)

    async def indexed(self, offset: int) -> None:
        """Return when the index of keys knows everything before ``offset``."""
        await self._index.indexed(offset)

    # -- on the disk -------------------------------------------------------------------------------

    def _log_has_moved(self) -> None:
        """More of it is written or flushed."""
        self._dispatch_soon()
        timer = self._flush_timer
        if self._log.flushed_offset >= self._log.max_offset:
            if timer is not None:
                timer.cancel()
                self._flush_timer = None
        elif timer is None and not self._closed:
            self._flush_timer = asyncio.get_running_loop().call_later(
                self._config.flush_interval_ms / 1000, self._flush_is_due
            )

    def _flush_is_due(self) -> None:
        self._flush_timer = None
        self._log.request_flush()

    async def _clean_forever(self) -> None:
        """A ledger keeps all of its entries: no snapshot stands for them."""
        if isinstance(self._log, CommitLog):
            try:
                await Retention(self._env, self._config, self._log).run(self.remove_before)
            except StorageError as error:
                self._fail(error)

    async def _checkpoint_forever(self) -> None:
        while True:
            await pause_ms(self._config.checkpoint_interval_ms)
            try:
                async with self._held:
                    now = self._checkpoint_of_now()
                    await self._checkpoints.write_if_due(now, self._log, self._queues)
            except DiskFull:
                continue  # the one on the disk says less, and that is true
            except StorageError as error:
                self._fail(error)
                return

    def _checkpoint_of_now(self) -> Checkpoint:
        return Checkpoint(
            dispatched=self._dispatched,
            flushed=self._log.flushed_offset,
            confirm=CONFIRM_UNKNOWN if self._confirm is None else self.confirm_offset,
            store_ms=self._checkpoints.current.store_ms,
        )
