"""What a store finds of its former life: log, queues and checkpoint, made to agree.

Source: store/DefaultMessageStore.java (load, recover), store/config/BrokerPathConfigHelper.java.
The checkpoint says up to where log and queues were on the disk together. Behind that the log is
looked at message by message (commit_log.py) and the queues are built again. After an orderly stop
nothing lies behind it, so there is one way to recover, not upstream's two. The file ``abort`` is
there while a store runs; it only tells how the last one ended.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.commitlog.api import Log, MessageLog, Unit
from shalott.broker.rocket.commitlog.codec import Dispatcher
from shalott.broker.rocket.commitlog.commit_log import CommitLog
from shalott.broker.rocket.commitlog.consume_queues import Key, QueueSet
from shalott.broker.rocket.commitlog.deleted_topics import DeletedTopics
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
    if message_log is None:
        message_log = await CommitLog.open(
            disk,
            config.segment_bytes,
            whole=checkpoint.dispatched,
            flushed=checkpoint.flushed,
            truncate_in_memory_only=env.has_bug("KB-RKT-23"),
        )
    await replace_file(disk, ABORT, b"the store runs, or did not end orderly\n")
    deleted = await DeletedTopics.open(disk)
    deleted.limit(message_log.max_offset)
    queues = await QueueSet.open(disk, config.queue_segment_units, deleted)
    position = max(checkpoint.dispatched, message_log.min_offset)
    if not any(queue.end for queue in queues.queues.values()) or position > message_log.max_offset:
        position = message_log.min_offset  # the queues are gone, or the log is another one
    position = await _recover_queues(message_log, queues, position)
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


# -- the checkpoint --------------------------------------------------------------------------------
# The checkpoint: how far a store was on the disk; replaced atomically (StoreCheckpoint.java).
#
# Everything before ``dispatched`` was whole, flushed, and in consume queues that were flushed
# too, so a recovery begins there. A checkpoint may say too little, never too much: it is lowered
# before anything is cut.


PATH = "checkpoint"
CONFIRM_UNKNOWN = -1

_LAYOUT = struct.Struct(">4sqqqq")  # magic, dispatched, flushed, confirm, store ms
_MAGIC = b"CKP1"
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``flushed``: the log's. ``confirm``: CONFIRM_UNKNOWN where dispatch follows the log's end."""

    dispatched: int = 0
    flushed: int = 0
    confirm: int = CONFIRM_UNKNOWN
    store_ms: int = 0

    def lowered(self, offset: int) -> Checkpoint:
        return Checkpoint(
            min(self.dispatched, offset),
            min(self.flushed, offset),
            min(self.confirm, offset),
            self.store_ms,
        )


async def read_checkpoint(disk: Disk) -> Checkpoint | None:
    """None if there is none. Raises StorageError if it is damaged: it was replaced atomically."""
    data = await read_file(disk, PATH)
    if data is None:
        return None
    body, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if len(body) != _LAYOUT.size or crc32(body).to_bytes(_CRC_BYTES, "big") != crc:
        raise StorageError("the store's checkpoint is damaged")
    magic, *numbers = _LAYOUT.unpack(body)
    if magic != _MAGIC:
        raise StorageError("the store's checkpoint is of another version")
    return Checkpoint(*numbers)


async def write_checkpoint(disk: Disk, checkpoint: Checkpoint) -> None:
    """Durable when it returns. Raises OSError."""
    body = _LAYOUT.pack(
        _MAGIC, checkpoint.dispatched, checkpoint.flushed, checkpoint.confirm, checkpoint.store_ms
    )
    await replace_file(disk, PATH, body + crc32(body).to_bytes(_CRC_BYTES, "big"))


class CheckpointKeeper:
    """The checkpoint on the disk, and the one that follows it. Every method raises StorageError;
    DiskFull: what is on the disk says less, and that is true.
    """

    def __init__(self, disk: Disk, current: Checkpoint) -> None:
        self.current = current
        self._disk = disk
        self._due: Checkpoint | None = None  # the next, when the log is flushed as far

    async def run(
        self,
        interval_ms: int,
        of_now: Callable[[], Checkpoint],
        held: asyncio.Lock,
        message_log: Log,
        queues: QueueSet,
    ) -> None:
        """Write one every so often, until cancelled. Raises StorageError."""
        while True:
            await pause_ms(interval_ms)
            try:
                async with held:
                    await self.write_if_due(of_now(), message_log, queues)
            except DiskFull:
                continue  # the one on the disk says less, and that is true

    async def lower(self, offset: int) -> None:
        """What lies behind ``offset`` is about to be cut."""
        self._due = None
        if max(self.current.dispatched, self.current.flushed) > offset:
            await self.write(self.current.lowered(offset))

    async def write_if_due(self, now: Checkpoint, message_log: Log, queues: QueueSet) -> None:
        """A checkpoint asks for no flush: how often that is done is the configuration's business.

        So it waits for the log, and is not replaced by a newer one (``now``) meanwhile.
        """
        if self._due is None:
            self._due = now
        if message_log.flushed_offset < self._due.dispatched:
            return
        await queues.flush()
        due, self._due = self._due, None
        flushed = max(due.flushed, message_log.flushed_offset)
        due = Checkpoint(due.dispatched, flushed, due.confirm, due.store_ms)
        if due.lowered(flushed) != self.current:
            await self.write(due)
            places = [(message_log.directory, message_log.segment_bytes, due.dispatched)]
            queues.witness("checkpoint", [*places, *queues.places()])

    async def write(self, checkpoint: Checkpoint) -> None:
        try:
            await write_checkpoint(self._disk, checkpoint)
        except OSError as error:
            kind = DiskFull if error.errno in NO_ROOM else StorageError
            raise kind(f"checkpoint: {error.strerror or error}") from error
        self.current = checkpoint
