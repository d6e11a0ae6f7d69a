"""What is told of a queue's messages on disk and in memory is so, also after they went."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from tests.world.disk.memory_disk import MemoryDisk

pytestmark = pytest.mark.unit


def content(number: int, *, persistent: bool) -> Content:
    return Content(number, "", "q", b"\0\0", b"x" * number, persistent)


def test_persistent_messages_and_writes_are_counted() -> None:
    async def body() -> None:
        queue = await BackingQueue.create(MemoryDisk(), "q")
        for number in (1, 2, 3, 4):
            queue.publish(content(number, persistent=number != 2))
        counted = queue.index
        assert (counted.live, counted.live_body_bytes, counted.written) == (3, 8, 3)
        assert queue.fetch(no_ack=True) is not None
        assert (counted.live, counted.live_body_bytes, counted.written) == (2, 7, 3)
        assert queue.fetch() is not None
        assert queue.fetch() is not None
        queue.ack([3])
        assert (counted.live, counted.live_body_bytes) == (1, 4)
        queue.purge()
        assert (counted.live, counted.live_body_bytes, counted.live_bytes) == (0, 0, 0)
        await queue.close()

    asyncio.run(body())
