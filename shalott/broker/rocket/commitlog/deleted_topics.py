"""DeletedTopics: which topics were deleted, and where the log ended then.

The messages of a deleted topic stay in the log until their file goes (upstream: deleteTopics). When
queues are built again, they must not bring the topic back; what is stored under the same name
later lies behind that end, and counts. The file is written before a queue is removed; slaves hear
of it with their master's topics, and note it as far as their log goes. A log that is cut goes on
with messages that were not deleted: no end is behind the log's, not on the disk either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import read_file, replace_file

PATH = "config/deletedTopics.json"


class DeletedTopics:
    """Made by ``open``. ``ends``: by topic, where the log ended. ``held`` and ``drop`` are those of
    the store that runs: what dispatch waits for, and how a topic's queues are removed."""

    def __init__(self, disk: Disk, ends: dict[str, int]) -> None:
        """Use ``open``."""
        self.ends = ends
        self.held = asyncio.Lock()
        self.drop: Callable[[str, int], Awaitable[None]] | None = None
        self._disk = disk

    @classmethod
    async def open(cls, disk: Disk) -> DeletedTopics:
        """Raises OSError and StorageError."""
        data = await read_file(disk, PATH)
        try:
            ends = {} if data is None else msgspec.json.decode(data, type=dict[str, int])
        except ValueError as error:
            raise StorageError(f"{PATH} can't be understood: {error}") from error
        return cls(disk, ends)

    def covers(self, topic: str, offset: int) -> bool:
        """Whether a message of that topic, which lies there, was deleted with it."""
        return offset < self.ends.get(topic, 0)

    async def limit(self, end: int) -> None:
        """What will follow ``end`` is another master's, or a new message. Durable when it
        returns. Raises StorageError."""
        if any(known > end for known in self.ends.values()):
            await self._replace({topic: min(known, end) for topic, known in self.ends.items()})

    async def add(self, ends: Mapping[str, int]) -> None:
        """These topics are deleted, up to there. Durable when it returns. Raises StorageError."""
        news = {topic: end for topic, end in ends.items() if self.ends.get(topic) != end}
        if not news:
            return
        async with self.held:
            await self._replace(self.ends | news)
            for topic, end in news.items():
                if self.drop is not None:
                    await self.drop(topic, end)

    async def _replace(self, ends: dict[str, int]) -> None:
        try:
            await replace_file(self._disk, PATH, msgspec.json.encode(ends))
        except OSError as error:
            raise StorageError(f"{PATH}: {error.strerror or error}") from error
        self.ends = ends
