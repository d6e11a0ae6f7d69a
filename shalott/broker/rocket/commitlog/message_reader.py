"""MessageReader: what a store answers from its queues and its log; implements Reader."""

from __future__ import annotations

from shalott.broker.rocket.commitlog.api import FoundByKey, Got, MessageLog
from shalott.broker.rocket.commitlog.consume_queues import Key, QueueSet
from shalott.broker.rocket.commitlog.dispatch import Dispatch
from shalott.broker.rocket.commitlog.key_index import KeyIndex
from shalott.broker.rocket.commitlog.log_reads import digest, get, message_at, queue_offset_at_ms


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
        """See Reader."""
        queue = self._queues.queues.get((topic, queue_id))
        return await get(self._log, queue, offset, max_messages, max_bytes)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """See Reader."""
        queue = self._queues.queues.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.first, queue.end)

    def queue_end(self, topic: str, queue_id: int) -> int:
        """See Reader."""
        return self._queues.next_offsets.get((topic, queue_id), 0)

    def queues(self) -> list[Key]:
        """See Reader."""
        return sorted(self._queues.queues)

    async def arrived(self, topic: str, queue_id: int, offset: int) -> None:
        """See Reader. Raises StorageError when the store fails or is closed."""
        await self._queues.arrived((topic, queue_id), offset)

    async def queue_offset_at_ms(self, topic: str, queue_id: int, store_ms: int) -> int:
        """See Reader."""
        queue = self._queues.queues.get((topic, queue_id))
        return 0 if queue is None else await queue_offset_at_ms(self._log, queue, store_ms)

    async def message_at(self, offset: int) -> bytes | None:
        """See Reader."""
        return await message_at(self._log, offset)

    async def find_by_key(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, max_messages: int
    ) -> FoundByKey:
        """See Reader."""
        times_ms, end, most = (begin_ms, end_ms), self._dispatch.position, max_messages
        return await self._index.find(self._log, topic, key, times_ms, end=end, max_messages=most)

    async def indexed(self, offset: int) -> None:
        """Return when the index of keys knows everything before ``offset``."""
        await self._index.indexed(offset)

    async def digest(self, start: int, end: int) -> str:
        """A fingerprint of the log's bytes, to compare replicas with. Raises StorageError."""
        return await digest(self._log, start, end)
