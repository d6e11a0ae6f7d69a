"""Files of one size: what is written, flushed, read, cut and found again, on a disk with faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from shalott.broker.base.disk import OsDisk
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.rocket.commitlog.segments import SegmentedLog
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from tests.world.clock.turns import passes, turns
from tests.world.disk.disk_runs import outcomes, simulate

pytestmark = pytest.mark.unit

PATH = "store/commitlog"
SEGMENT = 64


async def opened(disk: SimDisk | OsDisk, *, cache_bytes: int = 0) -> SegmentedLog:
    log = await SegmentedLog.open(disk, PATH, SEGMENT, cache_bytes=cache_bytes)
    await log.settle(0)
    return log


async def content(log: SegmentedLog) -> bytes:
    parts, offset = [], log.min_offset
    while part := await log.read(offset, 1000):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def on_simulated_disk(body: Callable[[SimLoop, SimDisk], Coroutine[Any, Any, None]]) -> None:
    simulate(body)


def test_bytes_are_readable_at_once_and_found_again_after_a_close(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        log = await opened(disk)
        data = bytes(range(200))
        assert [log.append(data[:50]), log.append(data[50:])] == [0, 50]
        assert await content(log) == data
        assert log.flushed_offset == 0
        await log.written(200)
        assert log.written_offset == 200
        assert await content(log) == data
        await log.close()
        assert log.flushed_offset == 200
        names = sorted(path.name for path in (tmp_path / PATH).iterdir())
        assert names == [f"{start:020d}" for start in (0, 64, 128, 192)]
        again = await opened(disk)
        assert (again.min_offset, again.max_offset, again.flushed_offset) == (0, 200, 200)
        assert await content(again) == data
        await again.close()
        await disk.close()

    asyncio.run(body())


def test_a_read_ends_at_the_end_of_a_file() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(bytes(100))
        assert len(await log.read(10, 1000)) == SEGMENT - 10
        assert len(await log.read(SEGMENT, 1000)) == 100 - SEGMENT
        assert await log.read(100, 1000) == b""
        assert await log.read(10, 3) == bytes(3)
        await log.close()

    on_simulated_disk(body)


def test_all_who_wait_for_the_disk_share_a_sync() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(b"x")
        await log.flushed(1)
        before = disk.syncs
        waits = []
        for _ in range(30):
            waits.append(asyncio.create_task(log.flushed(log.append(b"y") + 1)))
        await asyncio.gather(*waits)
        assert disk.syncs - before <= 2
        await log.close()

    on_simulated_disk(body)


def test_short_writes_and_short_reads_are_completed() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        disk.set_faults(DiskFaults(short=True))
        log = await opened(disk)
        data = bytes(range(150))
        log.append(data)
        await log.flushed(150)
        assert await content(log) == data
        await log.close()

    on_simulated_disk(body)


def test_a_failed_sync_is_told_once_and_ends_everything() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        failures: list[StorageError] = []
        log.writer.failure_listener = failures.append
        log.append(b"x")
        await log.written(1)
        disk.set_faults(DiskFaults(fail_sync=True))
        with pytest.raises(StorageError):
            await log.flushed(1)
        disk.set_faults(None)
        assert len(failures) == 1
        for attempt in (log.flushed(1), log.written(2), log.truncate(0)):
            with pytest.raises(StorageError):
                await attempt
        with pytest.raises(StorageError):
            log.append(b"y")
        await log.abandon()

    on_simulated_disk(body)


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        disk.set_faults(DiskFaults(full=True))
        log.append(bytes(9000))
        wait = asyncio.create_task(log.flushed(9000))
        await passes(1)
        with pytest.raises(DiskFull):
            log.append(b"y")
        disk.set_faults(None)
        await wait
        assert log.append(b"y") == 9000
        await log.close()

    on_simulated_disk(body)


@pytest.mark.parametrize("known", [True, False])
def test_a_full_disk_is_not_waited_for_at_the_end(known: bool) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        disk.set_faults(DiskFaults(full=True))
        log.append(bytes(9000))
        if known:
            await passes(1)
        async with asyncio.timeout(1):
            with pytest.raises(StorageError):
                await log.close()

    on_simulated_disk(body)


def test_what_was_cut_does_not_come_back_after_a_power_loss() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> bytes:
        log = await opened(disk)
        log.append(b"a" * 200)
        await log.flushed(200)
        await log.truncate(70)
        assert (log.max_offset, log.written_offset, log.flushed_offset) == (70, 70, 70)
        disk.power_loss()
        found = await content(await opened(disk))
        disk.wipe()
        return found

    assert outcomes(body) == [b"a" * 70] * 60


def test_kb_rkt_23_a_tail_cut_in_memory_only_comes_back() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.truncate_in_memory_only = True
        log.append(b"a" * 60)
        await log.flushed(60)
        await log.truncate(20)
        assert await content(log) == b"a" * 20
        disk.kill()
        assert await content(await opened(disk)) == b"a" * 60

    on_simulated_disk(body)


@pytest.mark.parametrize("offset", [0, 1, 63, 64, 65, 128, 150, 199, 200])
def test_a_log_goes_on_where_it_was_cut(offset: int) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(b"a" * 150)
        await log.written(150)
        log.append(b"a" * 50)
        await log.truncate(offset)
        log.append(b"b" * 150)
        wanted = b"a" * offset + b"b" * 150
        assert await content(log) == wanted
        await log.close()
        assert await content(await opened(disk)) == wanted

    on_simulated_disk(body)


def test_those_who_wait_for_what_is_cut_are_told() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(b"a" * 50)
        low = asyncio.create_task(log.flushed(10))
        high = asyncio.create_task(log.flushed(50))
        await turns()
        await log.truncate(20)
        await low
        with pytest.raises(StorageError, match="truncated to 20"):
            await high
        await log.close()

    on_simulated_disk(body)


def test_the_oldest_files_can_be_removed() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(bytes(range(200)))
        await log.remove_before(150)  # nothing is flushed: nothing may go
        assert log.min_offset == 0
        await log.flushed(200)
        await log.remove_before(150)
        assert log.min_offset == 128
        assert await log.read(127, 10) == b""
        await log.close()
        again = await opened(disk)
        assert (again.min_offset, await content(again)) == (128, bytes(range(128, 200)))

    on_simulated_disk(body)


def test_a_log_can_begin_elsewhere() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(bytes(200))
        await log.restart_at(640)
        assert (log.min_offset, log.max_offset) == (640, 640)
        disk.power_loss()
        log = await opened(disk)
        assert (log.min_offset, log.max_offset) == (640, 640)
        assert log.append(b"z") == 640
        await log.close()

    on_simulated_disk(body)


def test_files_beyond_a_gap_are_not_the_log() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(bytes(200))
        await log.close()
        await disk.remove(f"{PATH}/{64:020d}")
        log = await opened(disk)
        assert log.max_offset == 64
        assert disk.files() == [f"{PATH}/{0:020d}"]
        await log.close()

    on_simulated_disk(body)


def test_what_was_found_survives_a_sync_that_failed_in_a_former_life() -> None:
    """Its pages are called clean: a sync alone would save nothing of them."""

    async def body(loop: SimLoop, disk: SimDisk) -> None:
        log = await opened(disk)
        log.append(b"a" * 100)
        disk.set_faults(DiskFaults(fail_sync=True))
        with pytest.raises(StorageError):
            await log.flushed(100)
        disk.set_faults(None)
        disk.kill()
        assert (await opened(disk)).flushed_offset == 100
        disk.power_loss()
        assert await content(await opened(disk)) == b"a" * 100

    on_simulated_disk(body)
