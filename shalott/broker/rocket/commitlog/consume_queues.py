"""QueueSet: all consume queues of a store, and the next queue offset of each.

Sources: store/queue/ConsumeQueueStore.java, store/DefaultMessageStore.java (recoverTopicQueueTable,
truncateDirtyLogicFiles). ``next_offsets`` counts messages that were appended, dispatched or not.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Witness, unseen
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.api import Scanned, Unit
from shalott.broker.rocket.commitlog.codec import Dispatcher
from shalott.broker.rocket.commitlog.deleted_topics import DeletedTopics
from shalott.broker.rocket.commitlog.segments import SegmentedLog
from shalott.broker.rocket.commitlog.waiters import Waiters

log = logging.getLogger("shalott.broker.commitlog")

LOOKED_AT_UNITS = 4096
LAZY_BYTES = 16 << 10
Key = tuple[str, int]  # (topic, queue id)


class QueueSet:
    """Made by ``open``."""

    def __init__(self, disk: Disk, segment_units: int, deleted: DeletedTopics) -> None:
        """Use ``open``."""
        self._deleted = deleted
        self.queues: dict[Key, ConsumeQueue] = {}
        self.next_offsets: dict[Key, int] = {}
        self.witness: Witness = unseen
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self._disk = disk
        self._segment_units = segment_units
        self._allocates = False
        self._dispatcher = Dispatcher()
        self._arrivals: dict[Key, Waiters] = {}

    @classmethod
    async def open(
        cls, disk: Disk, segment_units: int, deleted: DeletedTopics, *, allocates: bool = False
    ) -> QueueSet:
        """What a former life left, unchecked: see ``recover``."""
        queues = cls(disk, segment_units, deleted)
        queues._allocates = allocates
        for topic in await disk.listdir(DIRECTORY):
            for name in await disk.listdir(f"{DIRECTORY}/{topic}"):
                if name.isdigit():
                    await queues._open_queue((topic, int(name)))
        return queues

    async def recover(
        self,
        position: int,
        min_offset: int,
        is_unit_of: Callable[[Key, int, Unit], Awaitable[bool]],
    ) -> int:
        """Keep the units of messages before ``position``: those were flushed. What lies behind
        them may be torn, or not be what the log has.

        A kept tail is compared with the log (``is_unit_of``), because a torn unit may look as if it
        were of an earlier message; if the last is right, all before it were flushed. Returns from
        where on the queues are to be built: earlier than ``position`` if a unit was in doubt.
        """
        build_from = position
        for key, queue in self.queues.items():
            end, kept, in_doubt = queue.end if position > 0 else queue.first, min_offset, False
            while (found := await _last_before(queue, end, position)) is not None:
                index, unit = found
                if unit[0] < min_offset and await _is_in_order(queue, index, unit):
                    end = index + 1  # its message is removed, and the queue was flushed before that
                    break
                if await is_unit_of(key, index, unit):
                    kept, end = unit[0], index + 1
                    break
                in_doubt, end = True, index
            else:
                end = queue.first
            if in_doubt:
                build_from = min(build_from, kept)
            await queue.cut(end)
            await queue.segments.settle(queue.segments.max_offset)
            await queue.forget_before(min_offset)
        for topic, end in self._deleted.ends.items():
            await self.drop(topic, end)
        self.next_offsets = self.ends()
        return build_from

    # -- dispatch ----------------------------------------------------------------------------------

    async def dispatch(self, scanned: Scanned) -> None:
        """Add a unit for each message. Raises StorageError; nothing or all of a queue's units were
        added then, and those that were are skipped when the same stretch comes again.
        """
        gathered: dict[Key, list[tuple[int, Unit]]] = {}
        dispatch, data, base = self._dispatcher.dispatch, scanned.data, scanned.base
        deleted = self._deleted.covers if self._deleted.ends else None
        for start, size in scanned.spans:
            topic, queue_id, queue_offset, code = dispatch(data, start)
            if deleted is not None and deleted(topic, base + start):
                continue
            unit = (queue_offset, (base + start, size, code))
            try:
                gathered[topic, queue_id].append(unit)
            except KeyError:
                gathered[topic, queue_id] = [unit]
        for key, units in gathered.items():
            self.witness("queue offset", *key, units[0][0], "")
            queue = self.queues.get(key) or await self._open_queue(key)
            await self._add(key, queue, units)
            arrivals = self._arrivals.get(key)
            if arrivals is not None:
                arrivals.wake(queue.end)

    async def _add(self, key: Key, queue: ConsumeQueue, units: list[tuple[int, Unit]]) -> None:
        added = bytearray()
        end = queue.end
        for queue_offset, unit in units:
            if queue_offset < end and (queue.end > queue.first or end > queue.end):
                # Upstream: "build consume queue repeatedly". The unit that is there stays.
                if end == queue.end:
                    await self._check_repeated(key, queue, queue_offset, unit)
                continue
            if queue_offset != end:
                if end != queue.end or queue.end > queue.first:
                    log.error("%s: offsets %d to %d are of no message", key, end, queue_offset)
                    self.witness("queue offset", *key, end, "is of no message")
                    added += bytes((queue_offset - end) * UNIT.size)
                else:
                    await queue.begin_at(queue_offset)
                end = queue_offset
            added += UNIT.pack(*unit)
            end += 1
        queue.append(bytes(added), end - queue.end)
        if end > self.next_offsets.get(key, 0):
            self.next_offsets[key] = end

    async def _check_repeated(
        self, key: Key, queue: ConsumeQueue, queue_offset: int, unit: Unit
    ) -> None:
        there = await queue.unit(queue_offset) if queue_offset >= queue.first else None
        if there is not None and there != unit:
            log.error("%s: two messages have the queue offset %d", key, queue_offset)
            self.witness("queue offset", *key, queue_offset, "is of two messages")

    # -- next queue offsets ------------------------------------------------------------------------

    def ends(self) -> dict[Key, int]:
        """Next queue offsets as far as the consume queues know (KB-RKT-15: upstream left it at
        that)."""
        return {key: queue.end for key, queue in self.queues.items()}

    def count(self, scanned: Scanned, next_offsets: dict[Key, int]) -> None:
        """Messages that are in the log, and not in the consume queues."""
        for start, _ in scanned.spans:
            topic, queue_id, offset, _ = self._dispatcher.dispatch(scanned.data, start)
            if self._deleted.covers(topic, scanned.base + start):
                continue
            key = (topic, queue_id)
            next_offsets[key] = max(next_offsets.get(key, 0), offset + 1)

    # -- the rest ----------------------------------------------------------------------------------

    async def arrived(self, key: Key, offset: int) -> None:
        queue = self.queues.get(key)
        if queue is None or queue.end <= offset:
            waiters = self._arrivals.setdefault(key, Waiters())
            await waiters.wait(offset + 1)

    async def cut(self, offset: int) -> int:
        """Cut all units of messages that do not lie before ``offset`` as a whole, durably; returns
        where the first of these messages lies, ``offset`` if there is none.
        """
        lowest = offset
        for queue in self.queues.values():
            end = await queue.first_from(offset)
            if end < queue.end:
                unit = await queue.unit(end)
                lowest = min(lowest, unit[0] if unit is not None else offset)
                await queue.cut(end)
        return lowest

    async def drop(self, topic: str, end: int) -> None:
        """Remove a deleted topic's queues, durably, unless they begin behind ``end``: then they are
        those of a topic that was made again. Raises StorageError."""
        for key, queue in list(self.queues.items()):
            if key[0] != topic:
                continue
            kept = await queue.first_from(end)
            before = await queue.unit(kept - 1) if kept > queue.first else None
            if kept == queue.end or (before is not None and before[1] > 0):
                self.next_offsets.pop(key, None)
                del self.queues[key]
                await queue.segments.remove_all()

    async def forget_before(self, offset: int) -> None:
        for queue in list(self.queues.values()):
            await queue.forget_before(offset)

    async def flush(self) -> None:
        """All units so far. Raises StorageError."""
        for queue in list(self.queues.values()):
            await queue.segments.flushed(queue.segments.max_offset)

    def places(self) -> list[tuple[str, int, int]]:
        """Of each queue: directory, bytes a file, and where it ends."""
        return [
            (path_of(*key), queue.segments.segment_bytes, queue.segments.max_offset)
            for key, queue in self.queues.items()
        ]

    async def close(self) -> None:
        for queue in self.queues.values():
            await queue.segments.close()

    async def abandon(self) -> None:
        for queue in self.queues.values():
            await queue.segments.abandon()

    def refuse(self, error: StorageError) -> None:
        """Nothing will arrive any more."""
        for waiters in self._arrivals.values():
            waiters.refuse(error)

    async def _open_queue(self, key: Key) -> ConsumeQueue:
        units, allocates = self._segment_units, self._allocates
        queue = await ConsumeQueue.open(self._disk, *key, units, allocates=allocates)
        # A checkpoint flushes them before it covers them, and what is lost is built again.
        queue.segments.writer.lazy_bytes = LAZY_BYTES
        queue.segments.writer.failure_listener = lambda error: self.failure_listener(error)
        self.queues[key] = queue
        return queue


async def _last_before(queue: ConsumeQueue, end: int, position: int) -> tuple[int, Unit] | None:
    """The last unit before ``end`` of a message before ``position``, with its queue offset."""
    while end > queue.first:
        first = max(queue.first, end - LOOKED_AT_UNITS)
        units = await queue.units(first, end - first)
        for index in range(len(units) - 1, -1, -1):
            unit = units[index]
            if unit[1] > 0 and unit[0] < position:
                return first + index, unit
        end = first
    return None


async def _is_in_order(queue: ConsumeQueue, index: int, unit: Unit) -> bool:
    """Whether its message lies behind that of the unit before, which a torn one's hardly does."""
    before = await _last_before(queue, index, unit[0])
    previous = await _last_before(queue, index, (1 << 63) - 1)
    return before == previous


# -- one queue -------------------------------------------------------------------------------------
# ConsumeQueue: where the messages of one (topic, queue) lie, in order (store/ConsumeQueue.java).
#
# Units of twenty bytes: offset8 size4 tagsCode8; a unit's place is its queue offset. A queue that
# begins later than its file does (on a slave that came late) is filled with zeros up to there, as
# upstream does it: a unit of size 0 is no message.


DIRECTORY = "consumequeue"
UNIT = struct.Struct(">qiq")
UNIT_BYTES = UNIT.size
CACHE_BYTES = 64 << 10


def path_of(topic: str, queue_id: int) -> str:
    """The directory of its files."""
    return f"{DIRECTORY}/{topic}/{queue_id}"


class ConsumeQueue:
    """``first`` and ``end`` are queue offsets: of the first message, and after the last."""

    def __init__(self, segments: SegmentedLog) -> None:
        """Use ``open``."""
        self.segments = segments
        self.first = segments.min_offset // UNIT_BYTES
        self.end = segments.max_offset // UNIT_BYTES

    @classmethod
    async def open(
        cls, disk: Disk, topic: str, queue_id: int, segment_units: int, *, allocates: bool
    ) -> ConsumeQueue:
        """What a former life left, unchecked: see ``cut``."""
        segments = await SegmentedLog.open(
            disk,
            path_of(topic, queue_id),
            segment_units * UNIT_BYTES,
            cache_bytes=CACHE_BYTES,
            allocates=allocates,
        )
        return cls(segments)

    def append(self, units: bytes, count: int) -> None:
        """Raises StorageError."""
        self.segments.append(units)
        self.end += count

    async def begin_at(self, queue_offset: int) -> None:
        """The first message that an empty queue gets has this offset."""
        position = queue_offset * UNIT_BYTES
        await self.segments.restart_at(position - position % self.segments.segment_bytes)
        self.segments.append(bytes(position - self.segments.max_offset))
        self.first = self.end = queue_offset

    async def units(self, first: int, count: int) -> list[Unit]:
        """``count`` units from ``first``, fewer at the queue's end."""
        start, end = first * UNIT_BYTES, (first + count) * UNIT_BYTES
        data = await self.segments.read(start, end - start)
        while more := await self.segments.read(start + len(data), end - start - len(data)):
            data += more  # in the next file
        whole = len(data) - len(data) % UNIT_BYTES
        return list(UNIT.iter_unpack(data[:whole]))

    async def unit(self, index: int) -> Unit | None:
        found = await self.units(index, 1)
        return found[0] if found else None

    async def first_from(self, offset: int) -> int:
        """The first unit whose message does not lie before ``offset`` as a whole."""
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            unit = await self.unit(middle)
            if unit is None or unit[0] + unit[1] <= offset:  # zeros too: no message
                low = middle + 1
            else:
                high = middle
        return low

    async def cut(self, end: int) -> None:
        """Cut the units from ``end`` on, durably."""
        await self.segments.truncate(end * UNIT_BYTES)
        self.end = self.segments.max_offset // UNIT_BYTES
        self.first = min(self.first, self.end)

    async def forget_before(self, offset: int) -> None:
        """The log begins at ``offset``: so the queue's earlier units are nothing."""
        self.first = await self.first_from(offset) if self.end > self.first else self.end
        await self.segments.remove_before(self.first * UNIT_BYTES)
