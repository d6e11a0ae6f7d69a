"""Slow, full, failing, short and rotting disks, one after another; rot stays within its bounds."""

from __future__ import annotations

import errno

import pytest

from shalott.cluster.corruption import FaultAtlas
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.disk.disk_runs import outcomes, simulate, stored

pytestmark = pytest.mark.unit


def test_a_slow_disk_takes_that_much_longer() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        file = await disk.open("f", create=True)
        disk.set_faults(DiskFaults(slow_ms=250))
        start_ns = loop.now_ns
        await file.pwrite(b"x", 0)
        await file.sync()
        assert 500_000_000 <= loop.now_ns - start_ns < 600_000_000
        disk.set_faults(None)
        start_ns = loop.now_ns
        await file.sync()
        assert loop.now_ns - start_ns < 100_000_000

    simulate(body)


def test_a_full_disk_takes_a_short_write_and_then_none_until_something_is_removed() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        file = await stored(disk, "f", b"x" * 10_000)
        other = await stored(disk, "other", b"y" * 20_000)
        disk.set_faults(DiskFaults(full=True))
        free = await disk.free_bytes()
        assert free < 4096
        assert await file.pwrite(b"z" * 5000, 10_000) == free
        with pytest.raises(OSError) as raised:
            await file.pwrite(b"z", 10_000 + free)
        assert raised.value.errno == errno.ENOSPC
        assert await file.pwrite(b"in place", 0) == 8, "what is overwritten needs no room"
        assert await file.pread(8, 0) == b"in place"
        await disk.remove("other")
        assert await disk.free_bytes() == 0, "a removed file that is open takes room still"
        await other.close()
        assert await file.pwrite(b"z" * 5000, 10_000 + free) == 5000
        await file.sync()
        disk.set_faults(None)
        assert await disk.free_bytes() > 1 << 30

    outcomes(body)


def test_a_disk_has_an_end() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        file = await disk.open("f", create=True)
        assert await file.pwrite(b"x" * 1500, 0) == 1000
        with pytest.raises(OSError) as raised:
            await file.pwrite(b"x", 1000)
        assert raised.value.errno == errno.ENOSPC
        await file.truncate(400)
        assert await disk.free_bytes() == 600

    simulate(body, knobs=DiskKnobs(capacity_bytes=1000))


def test_transfers_are_short_but_never_nothing() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        file = await stored(disk, "f", b"x" * 100)
        disk.set_faults(DiskFaults(short=True))
        reads = [len(await file.pread(100, 0)) for _ in range(60)]
        writes = [await file.pwrite(b"y" * 100, 0) for _ in range(60)]
        for sizes in (reads, writes):
            assert min(sizes) >= 1
            assert 10 < sum(size < 100 for size in sizes) < 50
        assert await file.pread(1, 0) == b"y"
        assert await file.pread(10, 100) == b""
        disk.set_faults(None)
        assert len(await file.pread(100, 0)) == 100

    simulate(body)


def test_the_atlas_keeps_rot_on_a_minority_of_nodes_and_copies() -> None:
    loop = SimLoop()
    atlas = FaultAtlas()
    disks = [SimDisk(loop, 1, f"n{number}", atlas=atlas) for number in range(5)]
    rot = DiskFaults(corrupt_bytes=50)

    async def body() -> None:
        for number, disk in enumerate(disks):
            await stored(disk, "metadata", bytes(500))
            if number < 2:
                await stored(disk, "two copies", bytes(5000))
        for disk in disks:
            disk.set_faults(rot)
        assert [disk.rot.has_rot() for disk in disks] == [True, True, False, False, False]
        assert [dict(disk.rotten_bytes) for disk in disks[:2]] == [{"metadata": 50}] * 2
        disks[0].wipe()  # and is sound again: another one may rot
        await stored(disks[0], "metadata", bytes(500))
        await stored(disks[0], "alone", bytes(5000))
        for disk in disks:
            disk.set_faults(None)
            disk.set_faults(rot)
        assert [disk.rot.has_rot() for disk in disks] == [True, True, False, False, False]
        # A rotten copy that was replaced is none.
        await disks[1].remove("metadata")
        disks[4].set_faults(None)
        disks[4].set_faults(rot)
        assert not disks[4].rot.has_rot(), "two of the four copies that are left would be too many"
        await stored(disks[1], "metadata", bytes(500))
        disks[4].set_faults(None)
        disks[4].set_faults(rot)
        assert disks[4].rot.has_rot()

    loop.run(body(), SimProcess("harness"))
