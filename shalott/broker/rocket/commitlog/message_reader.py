"""MessageReader: what a store answers from its queues and its log (DefaultMessageStore.getMessage);
implements Reader. A message is checked before it is handed out: rather an error than other bytes
than those that were sent.
"""

from __future__ import annotations

import hashlib

from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.api import FoundByKey, GetStatus, Got, MessageLog, Unit
from shalott.broker.rocket.commitlog.codec import is_message, store_ms_at
from shalott.broker.rocket.commitlog.consume_queues import Key, QueueSet
from shalott.broker.rocket.commitlog.dispatch import Dispatch
from shalott.broker.rocket.commitlog.key_index import KeyIndex
from shalott.broker.rocket.commitlog.log_reads import READ_AHEAD_BYTES, message_at, read_fully

DIGEST_BYTES = 1 << 20


class MessageReader:
    """Of one store. Raises StorageError where a message is damaged."""

    def __init__(
        self, message_log: MessageLog, queues: QueueSet, index: KeyIndex, dispatch: Dispatch
    ) -> None:
        self._log = message_log
        self._queues = queues
        self._index = index
        self._dispatch = dispatch

    async def get(
        self, topic: str, queue_id: int, offset: int, *, max_messages: int, max_bytes: int
    ) -> Got:
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return Got(GetStatus.NO_QUEUE, 0, 0, 0)
        first, end = queue.first, queue.end
        if offset < first:
            return Got(GetStatus.TOO_SMALL, first, first, end)
        if offset >= end:
            status = GetStatus.NO_NEW if offset == end else GetStatus.TOO_FAR
            return Got(status, end, first, end)
        units = await queue.units(offset, min(max_messages, end - offset))
        messages: list[bytes] = []
        window, base, taken = b"", 0, 0
        for place, size, _ in units:
            if size == 0:  # a hole: no message ever had this offset
                offset += 1
                continue
            if messages and taken + size > max_bytes:
                break
            if not base <= place <= base + len(window) - size:
                base, ahead = place, max(size, READ_AHEAD_BYTES)
                window = await read_fully(self._log, base, ahead)
                if len(window) < size:
                    break  # cut off or removed meanwhile
            message = window[place - base : place - base + size]
            if not is_message(message, place):
                raise StorageError(f"the message at {place} in the log is damaged")
            messages.append(message)
            taken += size
            offset += 1
        status = GetStatus.FOUND if messages else GetStatus.RETRY
        return Got(status, offset, first, end, tuple(messages))

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self._queues.queues.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.first, queue.end)

    def queue_end(self, topic: str, queue_id: int) -> int:
        return self._queues.next_offsets.get((topic, queue_id), 0)

    def tell_next_offsets(self) -> None:
        known, found = self._log, dict(self._queues.next_offsets)
        ends = known.min_offset, known.max_offset
        self._queues.witness("appends", known.directory, known.segment_bytes, *ends, found)

    async def units(self, topic: str, queue_id: int, first: int, count: int) -> list[Unit]:
        queue = self._queues.queues.get((topic, queue_id))
        return [] if queue is None else await queue.units(first, count)

    def queues(self) -> list[Key]:
        return sorted(self._queues.queues)

    async def arrived(self, topic: str, queue_id: int, offset: int) -> None:
        """Raises StorageError when the store fails or is closed."""
        await self._queues.arrived((topic, queue_id), offset)

    async def queue_offset_at_ms(self, topic: str, queue_id: int, store_ms: int) -> int:
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return 0
        low, high = queue.first, queue.end
        while low < high:
            middle = (low + high) // 2
            unit = await queue.unit(middle)
            message = None if unit is None else await message_at(self._log, unit[0])
            if message is None or store_ms_at(message, 0) < store_ms:
                low = middle + 1
            else:
                high = middle
        return low

    async def message_at(self, offset: int) -> bytes | None:
        return await message_at(self._log, offset)

    async def find_by_key(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, max_messages: int
    ) -> FoundByKey:
        times_ms, end, most = (begin_ms, end_ms), self._dispatch.position, max_messages
        return await self._index.find(self._log, topic, key, times_ms, end=end, max_messages=most)

    async def indexed(self, offset: int) -> None:
        """Return when the index of keys knows everything before ``offset``."""
        await self._index.indexed(offset)

    async def digest(self, start: int, end: int) -> str:
        """A fingerprint of the log's bytes, to compare replicas with. Raises StorageError if they
        are not all there."""
        made = hashlib.blake2b(digest_size=16)
        while start < end:
            part = await self._log.read(start, min(DIGEST_BYTES, end - start))
            if not part:
                raise StorageError(f"there is nothing at {start} in the log")
            made.update(part)
            start += len(part)
        return made.hexdigest()
