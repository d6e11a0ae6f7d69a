"""ConsumeQueue: where the messages of one (topic, queue) lie, in order (store/ConsumeQueue.java).

Units of twenty bytes: offset8 size4 tagsCode8; a unit's place is its queue offset. A queue that
begins later than its file does (on a slave that came late) is filled with zeros up to there, as
upstream does it: a unit of size 0 is no message.
"""

from __future__ import annotations

import struct

from shalott.broker.base.disk import Disk
from shalott.broker.rocket.commitlog.segments import SegmentedLog

DIRECTORY = "consumequeue"
UNIT = struct.Struct(">qiq")
UNIT_BYTES = UNIT.size
CACHE_BYTES = 64 << 10

Unit = tuple[int, int, int]  # (offset in the log, size, tags code)


class ConsumeQueue:
    """``first`` and ``end`` are queue offsets: of the first message, and after the last."""

    def __init__(self, segments: SegmentedLog) -> None:
        """Use ``open``."""
        self.segments = segments
        self.first = segments.min_offset // UNIT_BYTES
        self.end = segments.max_offset // UNIT_BYTES

    @classmethod
    async def open(cls, disk: Disk, topic: str, queue_id: int, segment_units: int) -> ConsumeQueue:
        """What a former life left, unchecked: see ``cut``."""
        path = f"{DIRECTORY}/{topic}/{queue_id}"
        segments = await SegmentedLog.open(
            disk, path, segment_units * UNIT_BYTES, cache_bytes=CACHE_BYTES
        )
        return cls(segments)

    def append(self, units: bytes, count: int) -> None:
        """Raises StorageError."""
        self.segments.append(units)
        self.end += count

    async def begin_at(self, queue_offset: int) -> None:
        """The first message that an empty queue gets has this offset."""
        position = queue_offset * UNIT_BYTES
        await self.segments.restart_at(self.segments.segment_start(position))
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
