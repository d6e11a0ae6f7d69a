"""What was read ahead is given back when memory gets short: it is on a page already."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.memory import MemoryMonitor
from shalott.broker.rabbit.storage.pages import PageStore
from tests.world.clock.turns import turns
from tests.world.disk.memory_disk import MemoryDisk

pytestmark = pytest.mark.unit

BODY_BYTES = 1000
WEIGHT = BODY_BYTES + 600  # of a message that is in memory
COUNT = 40


class StillClock:
    def monotonic_ns(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0


def in_a_loop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(scenario)
    def test() -> None:
        asyncio.run(scenario())

    return test


def message(number: int) -> Content:
    return Content(number, "", "orders", b"", bytes(BODY_BYTES), False, 0)


async def paged_out(queue: BackingQueue) -> None:
    while queue.pager.is_working:  # a turn of the loop is a step of the disk
        await turns()


async def lazy_queue(monitor: MemoryMonitor, store: PageStore | None = None) -> BackingQueue:
    """With ``COUNT`` messages on pages."""
    queue = BackingQueue.in_memory(pages=(store or PageStore(MemoryDisk())).files_of("q"))
    queue.ram.join(monitor, queue.pager)
    queue.pager.set_lazy(True)
    for number in range(COUNT):
        queue.publish(message(number))
    await paged_out(queue)
    return queue


@contextmanager
def monitored(limit_bytes: int | None) -> Iterator[MemoryMonitor]:
    monitor = MemoryMonitor(StillClock(), limit_bytes)
    try:
        yield monitor
    finally:
        monitor.stop()


@in_a_loop
async def test_it_is_in_memory_while_there_is_room() -> None:
    with monitored(None) as monitor:
        queue = await lazy_queue(monitor)
        await queue.ahead.read()
        assert monitor.used == COUNT * WEIGHT
        await queue.abandon()


@in_a_loop
async def test_reading_ahead_sets_no_alarm() -> None:
    """What waits is on pages, and below the limit: a consumer that takes one is no reason to stop
    publishers."""
    limit_bytes = COUNT * 300 + 10 * WEIGHT
    with monitored(None) as monitor:
        queue = await lazy_queue(monitor)
        monitor.set_limit(limit_bytes)
        await queue.ahead.read()
        assert queue.fetch() is not None
        assert not monitor.is_alarmed
        assert monitor.used <= limit_bytes
        await queue.abandon()


@in_a_loop
async def test_what_several_queues_read_ahead_is_given_back_to_end_an_alarm() -> None:
    with monitored(None) as monitor:
        store = PageStore(MemoryDisk())
        queues = [await lazy_queue(monitor, store) for _ in range(3)]
        for queue in queues:
            await queue.ahead.read()
        assert monitor.used == 3 * COUNT * WEIGHT
        monitor.set_limit(3 * COUNT * 300 + 5 * WEIGHT)
        assert not monitor.is_alarmed
        assert all(queue.messages.peek() is not None for queue in queues)
        for queue in queues:
            await queue.abandon()


@in_a_loop
async def test_the_head_stays_and_the_rest_comes_out_in_order() -> None:
    """However short memory is: else nothing would ever come out."""
    with monitored(None) as monitor:
        queue = await lazy_queue(monitor)
        await queue.ahead.read()
        monitor.set_limit(1)
        assert monitor.is_alarmed
        assert not queue.messages.is_head_away
        taken: list[int] = []
        while queue.messages.ready:
            await queue.ahead.read()
            fetched = queue.fetch(no_ack=True)
            assert fetched is not None
            assert fetched.content.body == bytes(BODY_BYTES)
            taken.append(fetched.content.id)
            assert monitor.used <= COUNT * 300 + WEIGHT
        assert taken == list(range(COUNT))
        assert monitor.used == 0
        await queue.abandon()


@in_a_loop
async def test_a_segment_that_is_brought_back_keeps_its_contents_on_their_pages() -> None:
    with monitored(None) as monitor:
        queue = BackingQueue.in_memory(pages=PageStore(MemoryDisk()).files_of("q"))
        queue.ram.join(monitor, queue.pager)
        queue.pager.buggify = lambda site: site == "storage.small_segments"
        queue.pager.set_lazy(True)
        for number in range(COUNT):
            queue.publish(message(number))
        await paged_out(queue)
        assert queue.messages.in_delta > 0
        monitor.set_limit(8 * 300 + 2 * BODY_BYTES)  # of a segment's three contents, one at a time
        for number in range(COUNT):
            await queue.ahead.read()
            fetched = queue.fetch(no_ack=True)
            assert fetched is not None
            assert fetched.content.id == number
            assert not monitor.is_alarmed
        await queue.abandon()
