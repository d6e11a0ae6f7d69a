"""What a store finds of its former life: log, queues and checkpoint, made to agree.

Source: store/DefaultMessageStore.java (load, recover), store/config/BrokerPathConfigHelper.java.
The checkpoint says up to where log and queues were on the disk together. Behind that the log is
looked at message by message (commit_log.py) and the queues are built again. After an orderly stop
nothing lies behind it, so there is one way to recover, not upstream's two. The file ``abort`` is
there while a store runs; it only tells how the last one ended.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Env
from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.rocket.commitlog.api import MessageLog, Unit
from shalott.broker.rocket.commitlog.checkpoint import (
    CONFIRM_UNKNOWN,
    Checkpoint,
    read_checkpoint,
)
from shalott.broker.rocket.commitlog.codec import Dispatcher
from shalott.broker.rocket.commitlog.commit_log import CommitLog
from shalott.broker.rocket.commitlog.consume_queues import Key, QueueSet
from shalott.broker.rocket.commitlog.deleted_topics import DeletedTopics
from shalott.broker.rocket.commitlog.foreign_store import hide_unknown_topics, last_file_before
from shalott.broker.rocket.commitlog.key_index import KeyIndex
from shalott.broker.rocket.commitlog.log_reads import message_at
from shalott.broker.rocket.config import StoreConfig

log = logging.getLogger("shalott.broker.commitlog")

ABORT = "abort"


@dataclass(frozen=True, slots=True)
class FoundStore:
    """``checkpoint`` as it holds for what was found. ``confirm``: None if dispatch follows the log.
    ``tail_is_lost``: KB-DL-16, nothing behind the checkpoint is to be built again.
    """

    log: MessageLog
    queues: QueueSet
    index: KeyIndex
    deleted: DeletedTopics
    checkpoint: Checkpoint
    confirm: int | None
    tail_is_lost: bool


async def open_store_files(
    env: Env, config: StoreConfig, message_log: MessageLog | None, confirm_from_checkpoint: bool
) -> FoundStore:
    """Raises StorageError."""
    try:
        return await _open_store_files(env, config, message_log, confirm_from_checkpoint)
    except OSError as error:
        raise StorageError(f"the store does not open: {error.strerror or error}") from error


async def _open_store_files(
    env: Env, config: StoreConfig, message_log: MessageLog | None, confirm_from_checkpoint: bool
) -> FoundStore:
    disk = env.disk
    unclean = await read_file(disk, ABORT) is not None
    found = await read_checkpoint(disk)
    checkpoint = Checkpoint() if found is None else found
    if checkpoint.is_foreign and message_log is None:
        start = await last_file_before(disk, config.segment_bytes, checkpoint.store_ms)
        checkpoint = replace(checkpoint, dispatched=start)
    if message_log is None:
        message_log = await CommitLog.open(
            disk,
            config.segment_bytes,
            whole=checkpoint.dispatched,
            flushed=checkpoint.flushed,
            truncate_in_memory_only=env.has_bug("KB-RKT-23"),
            allocates=config.preallocate,
        )
    await replace_file(disk, ABORT, b"the store runs, or did not end orderly\n")
    deleted = await DeletedTopics.open(disk)
    await deleted.limit(message_log.max_offset)
    units, allocates = config.queue_segment_units, config.preallocate
    queues = await QueueSet.open(disk, units, deleted, allocates=allocates)
    position = max(checkpoint.dispatched, message_log.min_offset)
    if checkpoint.is_foreign and not unclean:
        position = message_log.max_offset
    if not any(queue.end for queue in queues.queues.values()) or position > message_log.max_offset:
        position = message_log.min_offset  # the queues are gone, or the log is another one
    with_queues = [topic for (topic, _), queue in queues.queues.items() if queue.end]
    position = await _recover_queues(message_log, queues, position)
    if checkpoint.is_foreign and with_queues:
        await hide_unknown_topics(disk, message_log, with_queues, deleted, position)
    min_offset, max_offset = message_log.min_offset, message_log.max_offset
    slots, entries = config.index_slots, config.index_entries
    index = await KeyIndex.open(disk, slots, entries, min_offset, max_offset)
    confirm: int | None = None
    if confirm_from_checkpoint:
        known = checkpoint.confirm != CONFIRM_UNKNOWN
        confirm = checkpoint.confirm if known else message_log.min_offset
    tail_is_lost = unclean and env.has_bug("KB-DL-16")
    log.info(
        "the store has [%d, %d), its queues are built from %d%s",
        min_offset,
        max_offset,
        position,
        "; the last one did not end orderly" if unclean else "",
    )
    checkpoint = Checkpoint(
        message_log.max_offset if tail_is_lost else position,
        min(checkpoint.flushed, message_log.flushed_offset),
        checkpoint.confirm,
        checkpoint.store_ms,
    )
    return FoundStore(message_log, queues, index, deleted, checkpoint, confirm, tail_is_lost)


async def mark_clean(disk: Disk) -> None:
    """The store ended orderly."""
    await disk.remove(ABORT)
    await disk.sync_dir("")


async def _recover_queues(message_log: MessageLog, queues: QueueSet, position: int) -> int:
    dispatcher = Dispatcher()

    async def is_unit_of(key: Key, queue_offset: int, unit: Unit) -> bool:
        message = await message_at(message_log, unit[0])
        if message is None or len(message) != unit[1]:
            return False
        return dispatcher.dispatch(message, 0)[:3] == (*key, queue_offset)

    return await queues.recover(position, message_log.min_offset, is_unit_of)
