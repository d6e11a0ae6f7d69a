"""What goes when its time is over: files of the log, what queues and index know of them; and what
never goes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.api import GetStatus
from shalott.broker.rocket.commitlog.consume_queues import UNIT, ConsumeQueue, Key, QueueSet, Unit
from shalott.broker.rocket.commitlog.deleted_topics import DeletedTopics
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import StoreConfig
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.rng import Stream
from tests.world.clock.turns import passes, until
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.rocket.stores import (
    bodies,
    env_of,
    in_sim,
    message,
    opened,
    this_loop,
)

pytestmark = pytest.mark.unit

KEPT_MS = 5000
CONFIG = StoreConfig(
    segment_bytes=1024,
    queue_segment_units=4,
    checkpoint_interval_ms=20,
    flush_interval_ms=20,
    index_slots=3,
    index_entries=6,
    file_reserved_ms=KEPT_MS,
    clean_interval_ms=100,
)
QUEUES = 3


async def send(store: MessageStore, body: str, queue: int = 0) -> int:
    stage = store.append([message(body, queue, properties="KEYS\x01k\x02")])
    await store.dispatched(stage.end)
    return stage.messages[0].queue_offset


async def found(store: MessageStore) -> int:
    await store.reader.indexed(store.dispatched_offset)
    answer = await store.reader.find_by_key("t", "k", begin_ms=0, end_ms=1 << 62, max_messages=1000)
    return len(answer.messages)


def test_files_go_when_all_of_their_messages_are_too_old() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=CONFIG)
        times = []
        for number in range(60):
            times.append(this_loop().time())
            await send(store, f"m{number}")
            await passes(0.2)
            first, _ = store.reader.queue_range("t", 0)
            now = this_loop().time()
            due = sum(at < now - KEPT_MS / 1000 - 0.2 for at in times)
            assert due - 16 <= first <= due, "a file holds 8 messages, the next is looked at"
        first, end = store.reader.queue_range("t", 0)
        assert first >= 20 and end == 60 and store.log.min_offset > 0
        assert await bodies(store) == [f"m{number}" for number in range(first, 60)]
        got = await store.reader.get("t", 0, 0, max_messages=8, max_bytes=1 << 20)
        assert (got.status, got.next_offset) == (GetStatus.TOO_SMALL, first)
        assert await found(store) == 60 - first
        assert 0 < int((await disk.listdir("keyindex"))[0]) <= store.log.min_offset
        await store.close()

    in_sim(body())


def test_the_file_that_is_filled_never_goes_and_queues_go_on_counting() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=CONFIG)
        for number in range(9):
            await send(store, f"old{number}", 1)
        while store.log.max_offset < 4096:
            await send(store, "m")
        await until(
            lambda: store.log.min_offset == store.log.max_offset - store.log.max_offset % 1024
        )
        assert store.reader.queue_range("t", 1) == (9, 9)
        for _ in range(2):
            await store.close()
            store = await opened(this_loop(), disk, config=CONFIG)
            assert store.reader.queue_range("t", 1) == (9, 9)
        assert await send(store, "new", 1) == 9
        assert await bodies(store, 1) == ["new"]
        await store.close()

    in_sim(body())


def test_a_queue_whose_messages_have_gone_is_known_after_a_crash() -> None:
    """Nothing in the log tells any more where it went on."""

    async def body() -> None:
        disk = SimDisk(this_loop(), 1, "n1", DiskKnobs(power_loss="drop"))
        config = msgspec.structs.replace(CONFIG, checkpoint_interval_ms=1_000_000)
        store = await opened(this_loop(), disk, config=config)
        for number in range(9):
            await send(store, f"old{number}", 1)
        while store.log.max_offset < 4096:
            await send(store, "m")
        await store.log.flushed(store.log.max_offset)
        await until(lambda: store.log.min_offset > 0)
        disk.power_loss()
        again = await opened(this_loop(), disk, config=config)
        assert again.reader.queue_range("t", 1) == (9, 9)
        await again.close()
        await store.abandon()

    in_sim(body())


def test_nothing_goes_that_is_not_dispatched() -> None:
    async def body() -> None:
        store = await opened(this_loop(), MemoryDisk(), config=CONFIG)
        store.set_confirm_offset(0)
        for number in range(40):
            store.append([message(f"m{number}")])
        await passes(60)
        assert store.log.min_offset == 0
        store.set_confirm_offset(None)
        await store.dispatched(store.log.max_offset)
        await until(lambda: store.log.min_offset > 0)
        await store.close()

    in_sim(body())


def test_a_full_disk_costs_the_oldest_files_only_if_that_is_wanted() -> None:
    async def body(percent: int) -> int:
        disk = MemoryDisk()
        disk.room = 20_000
        config = msgspec.structs.replace(
            CONFIG, file_reserved_ms=1 << 40, disk_used_percent_max=percent
        )
        store = await opened(this_loop(), disk, config=config)
        for number in range(60):
            await send(store, f"m{number}")
        await passes(1)
        first, _ = store.reader.queue_range("t", 0)
        assert await bodies(store) == [f"m{number}" for number in range(first, 60)]
        await store.close()
        return first

    assert in_sim(body(100)) == 0
    assert in_sim(body(90)) == 0
    assert 0 < in_sim(body(30)) < in_sim(body(10)) < 60


def test_a_disk_that_removes_nothing_ends_the_store() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = await opened(this_loop(), disk, config=CONFIG)
        told: list[StorageError] = []
        store.failure_listener = told.append

        def broken(operation: str, path: str) -> None:
            if operation == "remove" and path.startswith("commitlog/"):
                raise OSError(5, "broken")

        disk.fault = broken
        for number in range(20):
            await send(store, f"m{number}")
        await until(lambda: told)
        await store.abandon()

    in_sim(body())


def test_a_torn_unit_is_not_taken_for_one_of_a_removed_message() -> None:
    """Such units can't be compared with the log, but a queue's messages lie in order."""

    async def body() -> None:
        disk = MemoryDisk()
        queues = await QueueSet.open(disk, 4, DeletedTopics(disk, {}))
        spans = [(0, 1000, 100), (1, 1900, 100), (2, 2100, 100), (3, 5, 100)]  # the last is torn
        log = b"".join(UNIT.pack(offset, size, 0) for _, offset, size in spans)
        queue = await ConsumeQueue.open(disk, "t", 0, 4, allocates=False)
        queue.append(log, 4)
        await queue.segments.flushed(queue.segments.max_offset)
        await queue.segments.close()
        queues = await QueueSet.open(disk, 4, DeletedTopics(disk, {}))

        async def is_unit_of(key: Key, index: int, unit: Unit) -> bool:
            return unit == (2100, 100, 0)

        assert await queues.recover(3000, 2048, is_unit_of) <= 2200
        assert queues.queues["t", 0].end == 3
        assert await queues.recover(3000, 4096, is_unit_of) == 3000
        assert queues.queues["t", 0].end == 3  # all of it is removed: it goes on counting
        await queues.close()

    in_sim(body())


# -- lives that end in kills and power losses ------------------------------------------------------


class Sent:
    """What was flushed and dispatched, by queue; of each queue the highest end that was seen."""

    def __init__(self) -> None:
        self.bodies: list[dict[int, str]] = [{} for _ in range(QUEUES)]


async def life(store: MessageStore, sent: Sent, seed: int, number: int) -> None:
    draws = Stream(seed, "retention life", number)
    await check(store, sent)
    count = 0
    while True:
        batch: list[tuple[int, int, str]] = []
        for _ in range(1 + draws.below(6)):
            count += 1
            queue, body = draws.below(QUEUES), f"{number}/{count}"
            stage = store.append([message(body, queue, properties="KEYS\x01k\x02")])
            batch.append((queue, stage.messages[0].queue_offset, body))
        await store.log.flushed(stage.end)
        for queue, offset, body in batch:
            assert offset not in sent.bodies[queue], "a queue offset twice"
            sent.bodies[queue][offset] = body
        await passes(draws.below(40) / 1000)
        if draws.below(4) == 0:
            await check(store, sent)


async def check(store: MessageStore, sent: Sent) -> None:
    """What was flushed is there from each queue's first on, and nothing has gone too early."""
    await store.dispatched(store.log.max_offset)
    async with store._dispatch.held:  # nothing goes meanwhile
        total = 0
        for queue in range(QUEUES):
            first, end = store.reader.queue_range("t", queue)
            there = await bodies(store, queue)
            total += len(there)
            wanted = {at: body for at, body in sent.bodies[queue].items() if at >= first}
            assert max(sent.bodies[queue], default=-1) < end, "the queue has gone back"
            assert {at: there[at - first] for at in wanted} == wanted
            # What was not known to be flushed may be there too, and is from now on.
            sent.bodies[queue].update({first + at: body for at, body in enumerate(there)})
        assert await found(store) == total


@pytest.mark.explore
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_crash_while_files_go_breaks_nothing(power: bool) -> None:
    loop = SimLoop()
    config = msgspec.structs.replace(CONFIG, file_reserved_ms=150, clean_interval_ms=10)
    removed = 0

    async def one(seed: int) -> None:
        nonlocal removed
        disk = SimDisk(loop, seed, f"n{seed}", DiskKnobs(sync_us=(200, 6000), power_loss="torn"))
        disk.set_faults(DiskFaults(short=seed % 2 == 0))
        draws, sent = Stream(seed, "retention crashes"), Sent()
        for number in range(6):
            process = SimProcess("n1", number)
            loop.add_process(process)

            async def live(number: int = number) -> None:
                interval_ms = 20 if seed % 3 else 1_000_000
                settings = msgspec.structs.replace(config, checkpoint_interval_ms=interval_ms)
                store = await MessageStore.open(env_of(loop, disk), settings)
                await life(store, sent, seed, number)

            task = loop.create_task(live(), context=process.context)
            await asyncio.wait([task], timeout=draws.between(0.05, 0.6))
            process.freeze()
            if task.done():
                await task
            if power:
                disk.power_loss()
            else:
                disk.kill()
        names = await disk.listdir("commitlog")
        removed += int(names[0]) // 1024

    async def main() -> None:
        for seed in range(6):
            await one(seed)

    loop.run(main(), SimProcess("harness"))
    assert removed > 6, "hardly anything was removed"
