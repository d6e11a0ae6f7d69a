"""A store in one life: what producers, consumers and replication see of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shalott.broker.base.errors import DiskFull, MessageIllegal, StorageError
from shalott.broker.rocket.commitlog.api import GetStatus
from shalott.broker.rocket.config import StoreConfig
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from tests.world.clock.turns import passes, until
from tests.world.disk.disk_runs import simulate
from tests.world.rocket.stores import SMALL, bodies, message, opened, put

pytestmark = pytest.mark.unit


def test_messages_are_read_in_the_order_of_their_queue() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        stage = store.append([message("a"), message("b")])
        assert [appended.queue_offset for appended in stage.messages] == [0, 1]
        assert store.append([message("c", 1)]).messages[0].queue_offset == 0
        end = put(store, *(f"d{number}" for number in range(100)))
        assert end == store.log.max_offset
        await store.dispatched(end)
        assert await bodies(store) == ["a", "b", *(f"d{number}" for number in range(100))]
        assert await bodies(store, 1) == ["c"]
        assert store.reader.queues() == [("t", 0), ("t", 1)]
        assert store.reader.queue_range("t", 0) == (0, 102)
        await store.close()

    simulate(body)


def test_a_message_lies_where_it_was_said_to_and_in_one_file() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        stages = [store.append([message("x" * (number * 37 % 700))]) for number in range(60)]
        for stage in stages:
            appended = stage.messages[0]
            assert appended.offset // 1024 == (appended.end - 1) // 1024
            stored = await store.reader.message_at(appended.offset)
            assert stored is not None
            assert len(stored) == appended.end - appended.offset
            assert appended.message_id == "7F00000100000000" + f"{appended.offset:016X}"
        assert await store.reader.message_at(stages[1].messages[0].offset + 1) is None
        await store.close()

    simulate(body)


def test_every_case_of_a_pull() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        await store.dispatched(put(store, "a", "b", "c"))

        async def status(offset: int, topic: str = "t") -> tuple[GetStatus, int]:
            got = await store.reader.get(topic, 0, offset, max_messages=32, max_bytes=1 << 20)
            return got.status, got.next_offset

        assert await status(0, "nowhere") == (GetStatus.NO_QUEUE, 0)
        assert await status(1) == (GetStatus.FOUND, 3)
        assert await status(3) == (GetStatus.NO_NEW, 3)
        assert await status(4) == (GetStatus.TOO_FAR, 3)
        few = await store.reader.get("t", 0, 0, max_messages=2, max_bytes=1 << 20)
        assert (len(few.messages), few.next_offset) == (2, 2)
        small = await store.reader.get("t", 0, 0, max_messages=32, max_bytes=1)
        assert (len(small.messages), small.next_offset) == (1, 1)
        await store.close()

    simulate(body)


def test_nothing_is_read_beyond_the_confirmed_end() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        store.set_confirm_offset(0)
        first = put(store, "a")
        end = put(store, "b", "c")
        await store.log.flushed(end)
        await passes(1)
        assert store.reader.queue_range("t", 0) == (0, 0)
        store.set_confirm_offset(first + 1)
        await store.dispatched(first)
        await passes(1)
        assert (store.dispatched_offset, await bodies(store)) == (first, ["a"])
        store.set_confirm_offset(1 << 40)
        await store.dispatched(end)
        assert await bodies(store) == ["a", "b", "c"]
        await store.close()

    simulate(body)


@pytest.mark.parametrize("flushed_only", [True, False])
def test_kb_rkt_09_what_is_not_flushed_is_read_only_if_that_is_configured(
    flushed_only: bool,
) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        config = StoreConfig(read_flushed_only=flushed_only, flush_interval_ms=10_000)
        store = await opened(loop, disk, config=config)
        end = put(store, "a")
        await store.log.written(end)
        await passes(1)
        assert await bodies(store) == ([] if flushed_only else ["a"])
        await store.log.flushed(end)
        await store.dispatched(end)
        assert await bodies(store) == ["a"]
        await store.close()

    simulate(body)


def test_a_long_poll_ends_when_a_message_arrives() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        for _ in range(50):  # those that end by their time leave nothing behind
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await store.reader.arrived("t", 0, 0)
        poll = asyncio.create_task(store.reader.arrived("t", 0, 1))
        await store.dispatched(put(store, "a"))
        await passes(1)
        assert not poll.done()
        put(store, "b")
        await poll
        await store.reader.arrived("t", 0, 1)
        await store.close()

    simulate(body)


def test_a_slave_has_the_same_bytes_and_the_same_queues() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        master = await opened(loop, disk)
        slave = await opened(loop, SimDisk(loop, 2, "n2"))
        end = put(master, *(f"message {number}" for number in range(40)))
        position = 0
        while position < end:  # frames that know nothing of messages
            data = await master.log.read(position, 100)
            slave.append_raw(position, data)
            position += len(data)
        await asyncio.gather(slave.dispatched(end), master.dispatched(end))
        assert await bodies(slave) == await bodies(master)
        assert await slave.reader.digest(0, end) == await master.reader.digest(0, end)
        put(master, "more")
        assert await slave.reader.digest(0, end) == await master.reader.digest(0, end)
        assert await master.reader.digest(0, end) != await master.reader.digest(0, end + 1)
        with pytest.raises(StorageError):
            await slave.reader.digest(0, end + 1)
        with pytest.raises(StorageError):
            slave.append_raw(end + 1, b"x")
        await slave.close()
        await master.close()

    simulate(body)


def test_an_empty_slave_may_begin_in_its_masters_last_file() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        master = await opened(loop, disk)
        other = SimDisk(loop, 2, "n2")
        slave = await opened(loop, other)
        end = put(master, *(f"message {number}" for number in range(40)))
        start = end - end % 1024
        slave.append_raw(start, await master.log.read(start, 2000))
        await slave.dispatched(end)
        first, last = slave.reader.queue_range("t", 0)
        assert last == 40
        wanted = [f"message {number}" for number in range(first, 40)]
        assert 0 < first < 40
        assert await bodies(slave) == wanted
        got = await slave.reader.get("t", 0, 0, max_messages=1, max_bytes=1)
        assert (got.status, got.next_offset) == (GetStatus.TOO_SMALL, first)
        await slave.close()
        slave = await opened(loop, other)
        assert (slave.log.min_offset, slave.reader.queue_range("t", 0)) == (start, (first, 40))
        assert await bodies(slave) == wanted
        await slave.close()
        await master.close()

    simulate(body)


def test_a_new_master_goes_on_with_the_queue_offsets_of_the_old_one() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        master = await opened(loop, disk)
        slave = await opened(loop, SimDisk(loop, 2, "n2"))
        slave.set_confirm_offset(0)
        end = put(master, "a", "b", "c")
        slave.append_raw(0, await master.log.read(0, end))
        await slave.recover_queue_offsets()
        assert slave.append([message("d")]).messages[0].queue_offset == 3
        await slave.close()
        await master.close()

    simulate(body)


def test_a_cut_log_takes_its_queues_with_it() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        ends = [put(store, f"m{number}", queue_id=number % 3) for number in range(60)]
        await store.dispatched(ends[-1])
        await until(lambda: store._checkpoints.current.dispatched == ends[-1])
        await store.truncate(ends[30])
        assert store.log.max_offset == store.dispatched_offset == ends[30]
        assert [store.reader.queue_range("t", queue)[1] for queue in range(3)] == [11, 10, 10]
        appended = store.append([message("new", 1)])
        assert appended.messages[0].queue_offset == 10
        await store.dispatched(appended.end)
        assert (await bodies(store, 1))[-2:] == ["m28", "new"]
        await store.close()
        store = await opened(loop, disk)
        assert (await bodies(store, 1))[-2:] == ["m28", "new"]
        await store.close()

    simulate(body)


@pytest.mark.parametrize("cuts", ["truncate", "cut_queues"])
def test_what_is_sent_behind_a_cut_outlives_what_was_deleted_there(cuts: str) -> None:
    """Of a topic that was deleted further on: also when all is built again from the log."""

    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        first, second = put(store, "a"), put(store, "b")
        await store.dispatched(second)
        await store.deleted.add({"t": second})
        await getattr(store, cuts)(first)
        await store.truncate(first)
        await store.dispatched(put(store, "new"))
        await store.close()
        await disk.remove("checkpoint")
        store = await opened(loop, disk)
        assert (await bodies(store))[-1:] == ["new"]
        await store.close()

    simulate(body)


def test_a_cut_in_the_middle_of_a_message_takes_all_of_it() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        first, second = put(store, "a"), put(store, "b")
        await store.dispatched(second)
        await store.truncate(second - 1)
        assert (store.log.max_offset, store.dispatched_offset) == (second - 1, first)
        assert await bodies(store) == ["a"]
        await store.truncate(first)
        await store.dispatched(put(store, "c"))
        assert await bodies(store) == ["a", "c"]
        await store.close()

    simulate(body)


def test_a_log_that_is_cut_to_nothing_begins_again() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        await store.dispatched(put(store, *map(str, range(30))))
        await store.truncate(0)
        assert (store.log.max_offset, store.reader.queue_range("t", 0)[1]) == (0, 0)
        await store.dispatched(put(store, "again"))
        assert await bodies(store) == ["again"]
        await store.close()

    simulate(body)


def test_files_that_are_removed_take_their_messages_with_them() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        end = put(store, *(f"m{number}" for number in range(60)))
        await store.dispatched(end)
        await store.log.flushed(end)
        await store.remove_before(3000)
        assert store.log.min_offset == 2048
        first, last = store.reader.queue_range("t", 0)
        assert last == 60
        wanted = [f"m{number}" for number in range(first, 60)]
        assert await bodies(store) == wanted
        await store.close()
        store = await opened(loop, disk)
        assert await bodies(store) == wanted
        await store.close()

    simulate(body)


def test_a_queue_can_be_searched_by_time() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        times = []
        for number in range(20):
            times.append(store.append([message(str(number))]).messages[0].store_ms)
            await passes(1)
        await store.dispatched(store.log.max_offset)
        assert [await store.reader.queue_offset_at_ms("t", 0, at) for at in times] == list(
            range(20)
        )
        assert await store.reader.queue_offset_at_ms("t", 0, times[-1] + 1) == 20
        assert await store.reader.queue_offset_at_ms("nowhere", 0, 0) == 0
        await store.close()

    simulate(body)


def test_illegal_messages_leave_nothing_behind() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        put(store, "a")
        end = store.log.max_offset
        for wrong in (replace(message("b"), topic="x/y"), message("x" * 1000)):
            with pytest.raises(MessageIllegal):
                store.append([message("a"), wrong])
        assert store.log.max_offset == end
        assert store.append([message("b")]).messages[0].queue_offset == 1
        await store.close()

    simulate(body)


def test_a_damaged_message_is_handed_to_nobody() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        await store.dispatched(put(store, "a"))
        await store.close()
        file = await disk.open(f"commitlog/{0:020d}", create=False)
        await file.pwrite(b"X", 88)
        store = await opened(loop, disk)
        with pytest.raises(StorageError, match="damaged"):
            await store.reader.get("t", 0, 0, max_messages=1, max_bytes=1)
        await store.close()

    simulate(body)


def test_a_disk_that_fails_ends_the_node() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk)
        failures: list[StorageError] = []
        store.failure_listener = failures.append
        poll = asyncio.create_task(store.reader.arrived("t", 1, 0))
        disk.set_faults(DiskFaults(fail_sync=True))
        end = put(store, "a")
        with pytest.raises(StorageError):
            await store.log.flushed(end)
        with pytest.raises(StorageError):
            await poll
        with pytest.raises(StorageError):
            put(store, "b")
        assert failures
        await store.abandon()

    simulate(body)


def test_a_full_disk_is_waited_for() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        store = await opened(loop, disk, config=replace_small(segment_bytes=1 << 20))
        failures: list[StorageError] = []
        store.failure_listener = failures.append
        disk.set_faults(DiskFaults(full=True))
        end = put(store, *("x" * 500 for _ in range(30)))
        await passes(2)
        with pytest.raises(DiskFull):
            put(store, "more")
        disk.set_faults(None)
        await store.log.flushed(end)
        await store.dispatched(end)
        assert len(await bodies(store)) == 30
        assert failures == []
        await store.close()

    simulate(body)


def replace_small(*, segment_bytes: int) -> StoreConfig:
    return StoreConfig(
        segment_bytes=segment_bytes,
        queue_segment_units=SMALL.queue_segment_units,
        checkpoint_interval_ms=SMALL.checkpoint_interval_ms,
    )
