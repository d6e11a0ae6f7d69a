"""Queues, locks and their like behave the same on asyncio's own loop and on the simulated one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.world.clock.both_loops import agree

pytestmark = pytest.mark.unit

SHORT_S = 0.01


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (asyncio.Queue, [2, 3, 1]),
        (asyncio.PriorityQueue, [1, 2, 3]),
        (asyncio.LifoQueue, [1, 3, 2]),
    ],
)
def test_queues_order_their_items(kind: type[asyncio.Queue[int]], expected: list[int]) -> None:
    async def program() -> Any:
        queue = kind()
        for number in (2, 3, 1):
            queue.put_nowait(number)
        return [await queue.get() for _ in range(3)]

    assert agree(program) == expected


def test_a_full_queue_holds_its_producers_up() -> None:
    async def program() -> Any:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        seen: list[Any] = []

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)
                seen.append(f"put {number}")

        producing = asyncio.create_task(produce())
        await asyncio.sleep(SHORT_S)
        seen.append((queue.full(), queue.qsize()))
        try:
            queue.put_nowait(9)
        except asyncio.QueueFull:
            seen.append("full")
        for _ in range(5):
            seen.append(await queue.get())
            queue.task_done()
        await asyncio.gather(producing, queue.join())
        try:
            queue.get_nowait()
        except asyncio.QueueEmpty:
            seen.append("empty")
        return seen

    assert agree(program) == [
        "put 0", "put 1", (True, 2), "full", 0, 1, "put 2", "put 3", 2, 3, "put 4", 4, "empty",
    ]  # fmt: skip


def test_a_cancelled_getter_takes_nothing_from_the_queue() -> None:
    async def program() -> Any:
        queue: asyncio.Queue[str] = asyncio.Queue()
        getters = [asyncio.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(0)
        queue.put_nowait("item")
        getters[0].cancel()
        await asyncio.wait([getters[0]])
        return getters[0].cancelled(), await getters[1], queue.qsize()

    assert agree(program) == (True, "item", 0)


def test_a_lock_is_fair() -> None:
    async def program() -> Any:
        lock, seen = asyncio.Lock(), list[Any]()

        async def hold(number: int) -> None:
            async with lock:
                seen.append(number)
                await asyncio.sleep(0)
                seen.append(lock.locked())

        tasks = [asyncio.create_task(hold(number)) for number in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            lock.release()
        except RuntimeError:
            seen.append("not held")
        return seen

    assert agree(program) == [0, True, 2, True, 3, True, "not held"]


def test_a_condition_wakes_as_many_as_it_is_told() -> None:
    async def program() -> Any:
        condition, seen, level = asyncio.Condition(), list[Any](), [0]

        async def wait(number: int) -> None:
            async with condition:
                await condition.wait()
                seen.append(number)

        async def wait_for_level() -> None:
            async with condition:
                await condition.wait_for(lambda: level[0] > 1)
                seen.append("level")

        tasks = [asyncio.create_task(wait(number)) for number in range(3)]
        tasks.append(asyncio.create_task(wait_for_level()))
        await asyncio.sleep(SHORT_S)
        async with condition:
            condition.notify(2)
        await asyncio.sleep(SHORT_S)
        seen.append("two woken")
        level[0] = 2
        async with condition:
            condition.notify_all()
        await asyncio.gather(*tasks)
        return seen

    assert agree(program) == [0, 1, "two woken", 2, "level"]


def test_a_semaphore_lets_so_many_in() -> None:
    async def program() -> Any:
        semaphore, inside, most, order = asyncio.Semaphore(2), [0], [0], list[int]()

        async def enter(number: int) -> None:
            async with semaphore:
                order.append(number)
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                await asyncio.sleep(0.001)
                inside[0] -= 1

        await asyncio.gather(*(enter(number) for number in range(6)))
        bounded = asyncio.BoundedSemaphore(1)
        try:
            bounded.release()
        except ValueError:
            return most[0], order, "bounded"

    assert agree(program) == (2, [0, 1, 2, 3, 4, 5], "bounded")


def test_a_barrier_opens_when_all_are_there() -> None:
    async def program() -> Any:
        barrier, seen = asyncio.Barrier(3), list[Any]()

        async def arrive(number: int) -> int:
            await asyncio.sleep(0.001 * number)
            seen.append(("arrived", number))
            position = await barrier.wait()
            seen.append("passed")
            return position

        positions = await asyncio.gather(*(arrive(number) for number in range(3)))
        waiting = asyncio.create_task(barrier.wait())
        await asyncio.sleep(0)
        await barrier.abort()
        await asyncio.wait([waiting])
        return seen, positions, type(waiting.exception()).__name__, barrier.broken

    assert agree(program) == (
        [("arrived", 0), ("arrived", 1), ("arrived", 2), "passed", "passed", "passed"],
        [0, 1, 2],
        "BrokenBarrierError",
        True,
    )


def test_an_event_wakes_all_who_wait() -> None:
    async def program() -> Any:
        event, seen = asyncio.Event(), list[Any]()

        async def wait(number: int) -> None:
            await event.wait()
            seen.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(3)]
        await asyncio.sleep(0)
        event.set()
        event.clear()  # they were woken all the same
        await asyncio.gather(*tasks)
        seen.append(event.is_set())
        return seen

    assert agree(program) == [0, 1, 2, False]
