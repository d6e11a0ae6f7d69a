"""What a queue process sees of its backing queue."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from pathlib import Path

import pytest

from shalott.broker.base.disk import OsDisk
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage import flusher as flusher_module
from shalott.broker.rabbit.storage import queue_index as queue_index_module
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from tests.world.disk.memory_disk import MemoryDisk

pytestmark = pytest.mark.unit

DIRECTORY = "queues/orders"
JOURNAL = f"{DIRECTORY}/journal"


def message(number: int, *, persistent: bool = True, size: int = 4, priority: int = 0) -> Content:
    body = bytes([number % 256]) * size
    return Content(number, "", "orders", b"", body, persistent, priority)


def filled(numbers: Iterable[int]) -> BackingQueue:
    queue = BackingQueue.in_memory()
    for number in numbers:
        queue.publish(message(number))
    return queue


def ready_order(queue: BackingQueue) -> list[int]:
    return [held.content.id for held in queue.messages.contents() if not held.unacked]


def fetch_all(queue: BackingQueue) -> list[tuple[int, bool]]:
    taken = []
    while (fetched := queue.fetch()) is not None:
        taken.append((fetched.content.id, fetched.redelivered))
    return taken


# -- order and places ------------------------------------------------------------------------------


def test_messages_are_fetched_in_order_of_publishing() -> None:
    queue = filled(range(3))
    assert queue.messages.peek() is not None
    first = queue.fetch()
    assert first is not None
    assert (first.content.id, first.redelivered, first.remaining) == (0, False, 2)
    assert fetch_all(queue) == [(1, False), (2, False)]
    assert queue.fetch() is None
    assert queue.messages.peek() is None
    assert (queue.messages.ready, queue.messages.unacked, queue.messages.depth) == (0, 3, 3)


def test_requeued_messages_go_back_to_their_place_redelivered() -> None:
    queue = filled(range(6))
    for _ in range(4):
        queue.fetch()
    assert queue.requeue([3, 0, 2, 77]) == [3, 0, 2]
    assert ready_order(queue) == [0, 2, 3, 4, 5]
    assert fetch_all(queue) == [(0, True), (2, True), (3, True), (4, False), (5, False)]


def test_a_message_published_as_delivered_keeps_its_place_too() -> None:
    queue = filled([0])
    queue.publish_delivered(message(1))
    queue.publish(message(2))
    assert (queue.messages.ready, queue.messages.unacked) == (2, 1)
    queue.fetch()
    queue.requeue([1])
    assert fetch_all(queue) == [(1, True), (2, False)]


def test_ack_forgets_unacknowledged_messages_only() -> None:
    queue = filled(range(3))
    queue.fetch()
    assert queue.ack([0, 1, 99, 0]) == [0]
    assert queue.ack([0]) == []
    assert ready_order(queue) == [1, 2]
    assert queue.messages.depth == 2


def test_fetch_without_ack_forgets_at_once() -> None:
    queue = filled(range(2))
    fetched = queue.fetch(no_ack=True)
    assert fetched is not None
    assert fetched.content.id == 0
    assert (queue.messages.depth, queue.messages.unacked, 0 in queue.messages) == (1, 0, False)


def test_drop_takes_from_the_head() -> None:
    queue = filled(range(5))
    queue.fetch()
    queue.requeue([0])
    assert [entry.id for entry in queue.drop(2)] == [0, 1]
    assert [entry.id for entry in queue.drop(1, ack_required=True)] == [2]
    assert queue.messages.unacked_ids() == [2]
    assert [entry.id for entry in queue.drop(9)] == [3, 4]
    assert queue.requeue([2]) == [2]
    assert fetch_all(queue) == [(2, True)]


def test_purge_spares_the_unacknowledged_and_clear_spares_nothing() -> None:
    queue = filled(range(4))
    queue.fetch()
    assert queue.purge() == 3
    assert [(held.content.id, held.unacked) for held in queue.messages.contents()] == [(0, True)]
    queue.publish(message(9))
    assert queue.clear() == 2
    assert (
        queue.messages.depth,
        queue.messages.ready,
        queue.messages.bytes,
        queue.messages.ready_bytes,
    ) == (0, 0, 0, 0)
    assert queue.fetch() is None


def prioritised(max_priority: int, *priorities: int) -> BackingQueue:
    """Messages 0, 1, ... of these priorities."""
    queue = BackingQueue.in_memory(max_priority=max_priority)
    for number, priority in enumerate(priorities):
        queue.publish(message(number, priority=priority))
    return queue


def test_higher_priorities_go_first_and_equals_as_they_came() -> None:
    queue = prioritised(9, 1, 5, 0, 5, 1, 9)
    assert [taken for taken, _ in fetch_all(queue)] == [5, 1, 3, 0, 4, 2]


def test_a_priority_above_the_maximum_counts_as_the_maximum() -> None:
    queue = prioritised(2, 2, 200, 1, 2)
    assert [taken for taken, _ in fetch_all(queue)] == [0, 1, 3, 2]
    assert [taken for taken, _ in fetch_all(prioritised(0, 0, 7, 3))] == [0, 1, 2]


def test_a_queue_without_priorities_ignores_them() -> None:
    queue = BackingQueue.in_memory()
    for number, priority in enumerate((0, 9, 4)):
        queue.publish(message(number, priority=priority))
    assert [taken for taken, _ in fetch_all(queue)] == [0, 1, 2]


def test_requeued_messages_go_back_to_their_place_within_their_priority() -> None:
    queue = prioritised(5, 0, 5, 5, 0)
    assert [taken for taken, _ in fetch_all(queue)] == [1, 2, 0, 3]
    queue.publish(message(4, priority=5))
    queue.publish(message(5))
    queue.requeue([3, 0, 2])
    assert fetch_all(queue) == [(2, True), (4, False), (0, True), (3, True), (5, False)]


def test_what_takes_from_the_head_takes_of_the_highest_priority() -> None:
    """As RabbitMQ documents it of length limits: higher ones may go to make way for lower ones."""
    queue = prioritised(5, 0, 1, 5)
    assert [entry.id for entry in queue.drop(2)] == [2, 1]
    queue.publish(message(3, priority=3))
    head = queue.messages.peek()
    assert head is not None and head.content.id == 3


def test_contents_are_in_order_whatever_happened() -> None:
    queue = filled(range(5))
    for _ in range(3):
        queue.fetch()
    queue.requeue([1])
    held = [(each.content.id, each.redelivered, each.unacked) for each in queue.messages.contents()]
    assert held == [
        (0, True, True),
        (1, True, False),
        (2, True, True),
        (3, False, False),
        (4, False, False),
    ]
    assert queue.messages.get(1) == queue.messages.contents()[1]
    assert queue.messages.get(42) is None


def test_bytes_count_bodies() -> None:
    queue = BackingQueue.in_memory()
    queue.publish(message(0, size=10))
    queue.publish(message(1, size=100))
    queue.fetch()
    assert (queue.messages.bytes, queue.messages.ready_bytes) == (110, 100)
    queue.requeue([0])
    assert (queue.messages.bytes, queue.messages.ready_bytes) == (110, 110)


def test_a_message_enters_once() -> None:
    queue = filled([1])
    with pytest.raises(AssertionError, match="here already"):
        queue.publish(message(1))


def test_without_a_journal_everything_is_durable_at_once() -> None:
    async def body() -> None:
        queue = BackingQueue.in_memory()
        assert queue.publish(message(1)) == 0
        assert queue.index.mark == queue.index.durable_mark == 0
        await queue.index.wait_durable(queue.index.mark)
        await queue.close()
        await queue.wipe()

    asyncio.run(body())


# -- durability ------------------------------------------------------------------------------------


def test_publishes_survive_and_transient_ones_do_not(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        queue = await BackingQueue.create(disk, DIRECTORY)
        marks = [queue.publish(message(number)) for number in range(4)]
        assert marks == [1, 2, 3, 4]
        assert queue.publish(message(4, persistent=False)) == 0
        queue.fetch()
        queue.ack([0])
        await queue.index.wait_durable(queue.index.mark)
        assert queue.index.durable_mark == 5
        await queue.abandon()

        again = await BackingQueue.recover(disk, DIRECTORY)
        assert fetch_all(again) == [(1, True), (2, True), (3, True)]
        assert again.messages.get(3) is not None
        await again.abandon()
        await disk.close()

    asyncio.run(body())


def test_a_clean_close_keeps_the_redelivered_flags() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(disk, DIRECTORY)
        for number in range(4):
            queue.publish(message(number, persistent=number != 3))
        queue.publish_delivered(message(5))
        queue.publish(message(6), redelivered=True)
        queue.fetch()
        queue.fetch()
        queue.requeue([1])
        await queue.close()
        again = await BackingQueue.recover(disk, DIRECTORY)
        expected = [(0, True), (1, True), (2, False), (5, True), (6, True)]
        assert [(h.content.id, h.redelivered) for h in again.messages.contents()] == expected
        # Killed in this life: what the last one knew of deliveries does not hold any more.
        third = await BackingQueue.recover(disk.after_kill(), DIRECTORY)
        assert all(held.redelivered for held in third.messages.contents())
        assert third.messages.depth == 5
        await third.abandon()
        await again.abandon()

    asyncio.run(body())


def test_serials_go_on_after_recovery() -> None:
    """Else a message of this life would take the place of one of the last."""

    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(disk, DIRECTORY)
        queue.publish(message(1))
        queue.publish(message(2))
        queue.fetch(no_ack=True)
        await queue.close()
        queue = await BackingQueue.recover(disk, DIRECTORY)
        queue.publish(message(3))
        queue.publish(message(4))
        await queue.close()
        queue = await BackingQueue.recover(disk, DIRECTORY)
        assert [held.content.id for held in queue.messages.contents()] == [2, 3, 4]
        await queue.abandon()

    asyncio.run(body())


def test_listeners_hear_of_each_growth_and_waiters_of_their_mark() -> None:
    async def body() -> None:
        queue = await BackingQueue.create(MemoryDisk(), DIRECTORY)
        heard: list[int] = []
        queue.index.on_durable(heard.append)
        first = queue.publish(message(1))
        second = queue.publish(message(2))
        await queue.index.wait_durable(first)
        assert heard == [second], "both were in one flush"
        third = queue.publish(message(3))
        await queue.index.wait_durable(third)
        assert heard == [second, third]
        await queue.index.wait_durable(first)
        await queue.close()

    asyncio.run(body())


def test_removals_are_flushed_though_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_module, "LAZY_FLUSH_MS", 1)

    async def body() -> None:
        queue = await BackingQueue.create(MemoryDisk(), DIRECTORY)
        await queue.index.wait_durable(queue.publish(message(1)))
        durable = asyncio.Event()
        queue.index.on_durable(lambda mark: durable.set())
        queue.fetch(no_ack=True)
        async with asyncio.timeout(5):
            await durable.wait()
        assert queue.index.durable_mark == queue.index.mark == 2
        await queue.abandon()

    asyncio.run(body())


def test_create_and_wipe_leave_nothing_of_before() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(disk, DIRECTORY)
        await queue.index.wait_durable(queue.publish(message(1)))
        await queue.abandon()
        queue = await BackingQueue.create(disk, DIRECTORY)
        assert queue.messages.depth == 0
        queue.publish(message(2))
        await queue.wipe()
        assert await disk.listdir("queues") == []
        queue = await BackingQueue.recover(disk, DIRECTORY)
        assert queue.messages.depth == 0
        await queue.abandon()

    asyncio.run(body())


def test_the_journal_shrinks_when_most_of_it_is_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_index_module, "COMPACT_MIN_GARBAGE_BYTES", 4000)

    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(disk, DIRECTORY)
        for number in range(200):
            queue.publish(message(number, size=100))
        queue.drop(190)
        await queue.index.wait_durable(queue.index.mark)
        last = queue.publish(message(1000))  # a flush after the compaction
        await queue.index.wait_durable(last)
        assert len(disk.names[JOURNAL].cached) < 3000
        await queue.close()
        again = await BackingQueue.recover(disk, DIRECTORY)
        assert ready_order(again) == [*range(190, 200), 1000]
        await again.abandon()

    asyncio.run(body())


# -- faults ----------------------------------------------------------------------------------------


def test_a_failed_sync_is_told_and_nothing_is_durable_after_it() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(disk, DIRECTORY)
        failures: list[StorageError] = []
        queue.on_failure(failures.append)

        def fault(operation: str, path: str) -> None:
            if operation == "sync":
                raise OSError(errno.EIO, "injected")

        disk.fault = fault
        mark = queue.publish(message(1))
        with pytest.raises(StorageError, match="injected"):
            await queue.index.wait_durable(mark)
        assert len(failures) == 1
        # The queue process may handle a few more messages before the node is gone.
        later = queue.publish(message(2))
        assert later > queue.index.durable_mark
        assert queue.index.mark > queue.index.durable_mark
        with pytest.raises(StorageError):
            await queue.index.wait_durable(later)
        assert len(failures) == 1
        with pytest.raises(StorageError):
            await queue.close()

    asyncio.run(body())


def test_a_full_disk_withholds_confirms_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flusher_module, "DISK_FULL_RETRY_MS", 1)

    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(disk, DIRECTORY)
        failures: list[StorageError] = []
        queue.on_failure(failures.append)
        disk.room = 10
        refused = asyncio.Event()
        disk.fault = lambda operation, path: refused.set() if operation == "truncate" else None
        mark = queue.publish(message(1, size=100))
        waiting = asyncio.create_task(queue.index.wait_durable(mark))
        await refused.wait()
        refused.clear()
        await refused.wait()  # it was tried again
        assert not waiting.done()
        disk.room = None
        async with asyncio.timeout(5):
            await waiting
        assert failures == []
        await queue.close()
        again = await BackingQueue.recover(disk, DIRECTORY)
        assert ready_order(again) == [1]
        await again.abandon()

    asyncio.run(body())


def test_recovery_tells_corruption_and_a_full_disk() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        queue = await BackingQueue.create(disk, DIRECTORY)
        await queue.index.wait_durable(queue.publish(message(1)))
        await queue.close()
        disk.room = 0
        with pytest.raises(DiskFull):
            await BackingQueue.recover(disk, DIRECTORY)
        disk.room = None
        disk.names[JOURNAL].cached[30] ^= 1
        with pytest.raises(StorageError, match="corrupted"):
            await BackingQueue.recover(disk, DIRECTORY)

    asyncio.run(body())
