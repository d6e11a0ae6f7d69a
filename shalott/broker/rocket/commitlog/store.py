"""MessageStore: a log, the consume queues on it, and what connects the two; implements Store.

Source: store/DefaultMessageStore.java. The log is a CommitLog, or any other MessageLog (api.py).
Messages go to the log at once; Dispatch reads what was appended and adds it to the consume queues,
up to the confirmed end of the log. A checkpoint says from where on that has to be done again after
a crash. MessageReader answers from the queues and the log.

How a failed disk ends a node: the log tells ``failure_listener``; it must end the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from shalott.broker.base.env import Env
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.api import (
    Appended,
    Message,
    MessageLog,
    PartlyAppended,
    PutStage,
)
from shalott.broker.rocket.commitlog.checkpoint import (
    CONFIRM_UNKNOWN,
    Checkpoint,
    CheckpointKeeper,
)
from shalott.broker.rocket.commitlog.codec import Encoder
from shalott.broker.rocket.commitlog.commit_log import RECOVERY_BYTES, CommitLog
from shalott.broker.rocket.commitlog.consume_queues import QueueSet
from shalott.broker.rocket.commitlog.dispatch import Dispatch
from shalott.broker.rocket.commitlog.message_reader import MessageReader
from shalott.broker.rocket.commitlog.recovery import FoundStore, mark_clean, open_store_files
from shalott.broker.rocket.commitlog.retention import Retention
from shalott.broker.rocket.config import StoreConfig

NS_PER_MS = 1_000_000


class MessageStore:
    """Made by ``open``; runs until ``close``."""

    def __init__(self, env: Env, config: StoreConfig, found: FoundStore) -> None:
        """Use ``open``."""
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self.log: MessageLog = found.log
        self.deleted = found.deleted
        self._env = env
        self._config = config
        self._queues = found.queues
        self._index = found.index
        self._checkpoints = CheckpointKeeper(env.disk, found.checkpoint)
        self._encoder = Encoder(config.max_message_bytes)
        self._dispatch = Dispatch(
            env,
            found.log,
            found.queues,
            found.index,
            position=found.checkpoint.dispatched,
            store_ms=found.checkpoint.store_ms,
            confirm=found.confirm,
            read_flushed_only=config.read_flushed_only,
        )
        self.deleted.held = self._dispatch.held
        self.deleted.drop = partial(_drop, self._checkpoints, self._dispatch)
        self.reader = MessageReader(found.log, found.queues, found.index, self._dispatch)
        self._tasks: list[asyncio.Task[None]] = []
        self._flush_timer = FlushTimer(found.log, config.flush_interval_ms)

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
        store = cls(env, config, found)
        store.log.progress_listener = store._log_has_moved
        store.log.failure_listener = store._fail
        store._queues.failure_listener = store._fail
        store._index.failure_listener = store._fail
        if not found.tail_is_lost:
            dispatch = store._dispatch
            if env.has_bug("KB-RKT-16"):
                dispatch.confirm = None  # recovery builds the queues to the log's end
            await dispatch.now(RECOVERY_BYTES)
            dispatch.confirm = found.confirm
            await store.recover_queue_offsets()
        store._start()
        return store

    def _start(self) -> None:
        write_checkpoints = partial(
            self._checkpoints.run,
            self._config.checkpoint_interval_ms,
            self._checkpoint_of_now,
            self._dispatch.held,
            self.log,
            self._queues,
        )
        for run, name in (
            (self._dispatch.run, "dispatch"),
            (write_checkpoints, "checkpoint"),
            (self._clean, "clean"),
        ):
            task = asyncio.create_task(self._until_failure(run), name=f"store {name}")
            self._tasks.append(task)
        self._index.start(self.log, lambda: self._dispatch.position)
        self._log_has_moved()

    async def close(self) -> None:
        """Flush everything and leave nothing to recover. Raises StorageError, closed all the
        same."""
        await self._stop()
        try:
            await self._dispatch.now()
            await self.log.flushed(self.log.max_offset)
            await self._queues.flush()
            await self._index.save()
            await self._checkpoints.write(self._checkpoint_of_now())
            await mark_clean(self._env.disk)
        finally:
            await self._queues.abandon()
            await self.log.close()

    async def abandon(self) -> None:
        """Close after a failure: what is not flushed is left to recovery."""
        await self._stop()
        await self._queues.abandon()
        with suppress(StorageError):
            await self.log.close()

    async def _stop(self) -> None:
        self._flush_timer.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._index.stop()
        self._refuse(StorageError("the store was closed"))

    def _fail(self, error: StorageError) -> None:
        self._refuse(error)
        self.failure_listener(error)

    def _refuse(self, error: StorageError) -> None:
        self._queues.refuse(error)
        self._dispatch.refuse(error)

    # -- the log -----------------------------------------------------------------------------------

    def append(self, messages: list[Message]) -> PutStage:
        store_ms = self._env.clock.wall_ns() // NS_PER_MS
        return _append(self.log, self._queues, self._encoder, messages, store_ms)

    def append_raw(self, offset: int, data: bytes) -> None:
        assert isinstance(self.log, CommitLog)
        was_empty = self.log.max_offset == 0
        self.log.append_raw(offset, data)
        if was_empty:
            self._dispatch.position = max(self._dispatch.position, self.log.min_offset)

    async def truncate(self, offset: int) -> None:
        """See Store. The checkpoint goes first, then the queues, then the log: after a crash in
        between, what is missing in the queues is built again.
        """
        dispatch = self._dispatch
        async with dispatch.held:
            if offset < self.log.max_offset:
                await self._checkpoints.lower(offset)
                await self.deleted.limit(offset)
                await dispatch.cut(offset)
                await self.log.truncate(offset)
                dispatch.position = max(dispatch.position, self.log.min_offset)
                dispatch.position = min(dispatch.position, self.log.max_offset)
                await dispatch.recover_queue_offsets()
                ends = self.log.directory, self.log.segment_bytes, self.log.max_offset
                self._env.witness("ends", *ends)
        dispatch.wake()

    async def cut_queues(self, offset: int) -> None:
        """Forget what the queues know of the log from ``offset`` on, for a log that cuts itself.

        To be awaited before the log is cut.
        """
        async with self._dispatch.held:
            await self._checkpoints.lower(offset)
            await self.deleted.limit(offset)
            await self._dispatch.cut(offset)

    async def remove_before(self, offset: int) -> None:
        """Remove the log's files that lie before ``offset``, and what the queues know of them.

        The queues are flushed first: what they know of those files can't be built again.
        """
        assert isinstance(self.log, CommitLog)
        async with self._dispatch.held:
            offset = min(offset, self._dispatch.position)
            if offset < self.log.min_offset + self.log.segment_bytes:
                return
            await self._queues.flush()
            await self.log.remove_before(offset)
            await self._queues.forget_before(self.log.min_offset)
            await self._index.forget_before(self.log.min_offset)

    async def recover_queue_offsets(self, *, from_queues_only: bool = False) -> None:
        """Find the next queue offsets from the queues and the log (recoverTopicQueueTable): a
        slave's raw bytes do not tell, so a broker that becomes the master must do it before it
        appends.

        ``from_queues_only``: what is not dispatched yet does not count (KB-RKT-20).
        """
        async with self._dispatch.held:
            await self._dispatch.recover_queue_offsets(from_queues_only=from_queues_only)

    # -- the confirmed end -------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        return self._dispatch.confirm_offset

    def set_confirm_offset(self, offset: int | None) -> None:
        self._dispatch.confirm = offset
        self._dispatch.soon()

    @property
    def dispatched_offset(self) -> int:
        return self._dispatch.position

    async def dispatched(self, offset: int) -> None:
        """See Store. Raises StorageError when the store fails or is closed."""
        await self._dispatch.reached(offset)

    # -- in the background -------------------------------------------------------------------------

    def _log_has_moved(self) -> None:
        """More of it is written or flushed."""
        self._dispatch.soon()
        self._flush_timer.log_has_moved()

    async def _until_failure(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except StorageError as error:
            self._fail(error)

    async def _clean(self) -> None:
        """A ledger keeps all of its entries: no snapshot stands for them."""
        if isinstance(self.log, CommitLog):
            await Retention(self._env, self._config, self.log).run(self.remove_before)

    def _checkpoint_of_now(self) -> Checkpoint:
        unknown = self._dispatch.confirm is None
        return Checkpoint(
            dispatched=self._dispatch.position,
            flushed=self.log.flushed_offset,
            confirm=CONFIRM_UNKNOWN if unknown else self.confirm_offset,
            store_ms=self._dispatch.store_ms,
        )


class FlushTimer:
    """Asks for a flush some time after the log has grown."""

    def __init__(self, message_log: MessageLog, interval_ms: int) -> None:
        self._log = message_log
        self._interval_ms = interval_ms
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def log_has_moved(self) -> None:
        timer = self._timer
        if self._log.flushed_offset >= self._log.max_offset:
            if timer is not None:
                timer.cancel()
                self._timer = None
        elif timer is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(
                self._interval_ms / 1000, self._is_due
            )

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _is_due(self) -> None:
        self._timer = None
        self._log.request_flush()


async def _drop(checkpoints: CheckpointKeeper, dispatch: Dispatch, topic: str, end: int) -> None:
    """A topic was deleted. What came behind ``end`` since it was made again is dispatched again."""
    await checkpoints.lower(end)
    await dispatch.drop(topic, end)


def _append(
    message_log: MessageLog,
    queues: QueueSet,
    encoder: Encoder,
    messages: list[Message],
    store_ms: int,
) -> PutStage:
    """Messages of one queue get their places in the log and in the queue: all or none, at once, but
    for PartlyAppended."""
    first = messages[0]
    key = (first.topic, first.queue_id)
    queue_offset = queues.next_offsets.get(key, 0)
    prepared = [encoder.prepare(message) for message in messages]
    offsets = message_log.place([parts[0] for parts in prepared])
    encoded = [
        encoder.encode_prepared(message, parts, offset, queue_offset + number, store_ms)
        for number, (message, parts, offset) in enumerate(
            zip(messages, prepared, offsets, strict=True)
        )
    ]
    try:
        ends = message_log.append_placed(encoded)
    except PartlyAppended as error:
        queues.next_offsets[key] = queue_offset + error.count
        raise
    queues.next_offsets[key] = queue_offset + len(messages)
    message_id = encoder.message_id
    appended = [
        Appended(
            offset,
            ends[number],
            queue_offset + number,
            message_id(messages[number].store_host, offset),
            store_ms,
        )
        for number, offset in enumerate(offsets)
    ]
    return PutStage(tuple(appended))
