"""Calls of a simulated disk, what a kill leaves of those under way, and that seeds repeat.

What kills, power losses, and faults leave of files and names is the contract of
tests/cluster/disks/test_crash_contract.py.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pytest

from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.clock.turns import passes, turns
from tests.world.disk.disk_runs import outcomes, simulate, stored

pytestmark = pytest.mark.unit


# -- calls -----------------------------------------------------------------------------------------


def test_calls_take_their_time_one_after_another() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> list[int]:
        file = await disk.open("f", create=True)
        start_ns = loop.now_ns
        await file.pwrite(b"x", 0)
        written_ns = loop.now_ns
        await asyncio.gather(file.sync(), file.sync())
        return [written_ns - start_ns, loop.now_ns - written_ns]

    knobs = DiskKnobs(call_us=(10, 20), sync_us=(1000, 1500), tail_per_1024=0)
    for write_ns, syncs_ns in outcomes(body, knobs):
        assert 10_000 <= write_ns < 20_000
        assert 2_000_000 <= syncs_ns < 3_000_000


def test_a_few_calls_are_much_slower() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> list[int]:
        file = await disk.open("f", create=True)
        took_ns = []
        for _ in range(400):
            start_ns = loop.now_ns
            await file.sync()
            took_ns.append(loop.now_ns - start_ns)
        return took_ns

    took_ns = simulate(body, knobs=DiskKnobs(sync_us=(100, 200), tail_per_1024=50, tail_factor=20))
    assert 5 < sum(each >= 2_000_000 for each in took_ns) < 60


def test_a_write_whose_caller_was_cancelled_happens_all_the_same_in_its_place() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> bytes:
        file = await disk.open("f", create=True)
        first = asyncio.create_task(file.pwrite(b"first", 0))
        second = asyncio.create_task(file.pwrite(b"second", 5))
        third = asyncio.create_task(file.pwrite(b"S", 5))
        await turns()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await asyncio.gather(first, third)
        return disk.read_all("f")

    assert simulate(body) == b"firstSecond"


def test_directories_behave_as_the_operating_systems() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await stored(disk, "d/e/f", b"f")
        await stored(disk, "g", b"g")
        for call, code in (
            (lambda: disk.remove("d"), errno.ENOTEMPTY),
            (lambda: disk.open("d", create=True), errno.EISDIR),
            (lambda: disk.open("g/x", create=True), errno.ENOTDIR),
            (lambda: disk.listdir("g"), errno.ENOTDIR),
            (lambda: disk.sync_dir("absent"), errno.ENOENT),
            (lambda: disk.rename("g", "d"), errno.EISDIR),
            (lambda: disk.rename("g", "absent/g"), errno.ENOENT),
            (lambda: disk.rename("d", "d/e/d"), errno.EINVAL),
            (lambda: disk.remove(""), errno.EBUSY),
        ):
            with pytest.raises(OSError) as raised:
                await call()
            assert raised.value.errno == code
        await disk.rename("g", "g")
        await disk.rename("d/e", "moved")
        assert disk.files() == ["g", "moved/f"]
        await disk.remove("d")
        assert await disk.listdir("") == ["g", "moved"]

    simulate(body)


def test_a_paused_programs_calls_wait_for_it_in_order() -> None:
    loop = SimLoop()
    disk = SimDisk(loop, 1, "n1")
    node = SimProcess("n1")

    async def program() -> None:
        file = await disk.open("f", create=True)
        for number in range(100):
            await file.pwrite(bytes([number]), number)

    async def harness() -> None:
        loop.add_process(node)
        task = loop.create_task(program(), context=node.context)
        await passes(0.001)
        node.state = "paused"
        before = disk.read_all("f")
        await passes(5)
        assert disk.read_all("f") == before
        assert len(before) < 100
        loop.resume(node)
        await asyncio.wait([task])
        assert disk.read_all("f") == bytes(range(100))

    loop.run(harness(), SimProcess("harness"))


# -- kill ------------------------------------------------------------------------------------------


def test_calls_under_way_at_a_kill_happened_up_to_some_point() -> None:
    """The first few, perhaps some pages of the next, and nothing after that."""
    size = 3 * 4096

    async def body(loop: SimLoop, disk: SimDisk) -> bytes:
        file = await disk.open("f", create=True)
        for number in range(4):
            asyncio.ensure_future(
                file.pwrite(bytes([number + 1]) * size, number * size)
            ).add_done_callback(lambda done: pytest.fail("the dead are told nothing"))
        await turns()
        disk.kill()
        await passes(1)
        return disk.read_all("f")

    whole = b"".join(bytes([number + 1]) * size for number in range(4))
    found = outcomes(body)
    for content in found:
        assert content == whole[: len(content)]
        assert len(content) % 4096 == 0
    lengths = [len(content) for content in found]
    assert 0 in lengths, "sometimes nothing happened"
    assert any(length % size for length in lengths), "sometimes a write is cut off"
    assert any(length >= size for length in lengths), "sometimes a call was done"


# -- inspection and repetition ---------------------------------------------------------------------


def test_wiping_leaves_an_empty_disk_with_the_same_faults() -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> None:
        await stored(disk, "d/f", b"x")
        disk.set_faults(DiskFaults(slow_ms=1))
        disk.wipe()
        assert (disk.files(), disk.used_bytes) == ([], 0)
        disk.power_loss()
        assert disk.files() == []
        assert disk.faults.slow_ms == 1
        with pytest.raises(FileNotFoundError):
            disk.read_all("d/f")

    simulate(body)


def _busy_life(loop: SimLoop, disk: SimDisk) -> Coroutine[Any, Any, list[tuple[str, bytes]]]:
    async def body() -> list[tuple[str, bytes]]:
        start_ns = loop.now_ns
        for number in range(6):
            file = await disk.open(f"d{number % 2}/f{number}", create=True)
            await file.pwrite(bytes([number]) * 3000, 0)
            if number % 3:
                await file.sync()
        await disk.sync_dir("d0")
        disk.set_faults(DiskFaults(short=True, slow_ms=0.1))
        await file.pwrite(b"z" * 9000, 100)
        disk.set_faults(None)
        disk.power_loss()
        disk.set_faults(DiskFaults(corrupt_bytes=3))
        took_ns = loop.now_ns - start_ns
        return [("t", b"%d" % took_ns), *((p, disk.read_all(p)) for p in disk.files())]

    return body()


def test_the_same_seed_leaves_the_same_and_another_one_something_else() -> None:
    first = outcomes(_busy_life)
    assert outcomes(_busy_life) == first
    assert len({str(each) for each in first}) > len(first) // 2


def test_what_one_file_suffers_does_not_depend_on_another() -> None:
    def with_other(other: bool) -> list[bytes]:
        async def body(loop: SimLoop, disk: SimDisk) -> bytes:
            file = await stored(disk, "f", b"a" * 2048)
            if other:
                await (await stored(disk, "e", b"e" * 99)).pwrite(b"E" * 99, 0)
            await file.pwrite(b"b" * 2048, 0)
            disk.power_loss()
            return disk.read_all("f")

        return outcomes(body)

    assert with_other(True) == with_other(False)


@pytest.mark.parametrize("synced", (False, True))
def test_what_was_cut_may_return_until_the_cut_is_synced(synced: bool) -> None:
    async def body(loop: SimLoop, disk: SimDisk) -> list[bool]:
        file = await stored(disk, "f", b"keptcut")
        before = disk.survival.may_return("f", 4)
        await file.truncate(4)
        if synced:
            await file.sync()
        return [before, disk.survival.may_return("f", 4), disk.survival.may_return("f", 3)]

    assert simulate(body) == [True, not synced, True]
