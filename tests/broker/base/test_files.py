"""Small files that are read and replaced as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shalott.broker.base.disk import OsDisk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.files import read_number, write_number
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import SimDisk
from tests.world.clock.stock_loop import StockLoop
from tests.world.clock.turns import turns

pytestmark = pytest.mark.unit


def test_a_number_is_kept_and_an_absent_one_is_zero(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        assert await read_number(disk, "incarnation") == 0
        await write_number(disk, "incarnation", 100)
        await write_number(disk, "incarnation", 7)
        assert await read_number(disk, "incarnation") == 7
        (tmp_path / "incarnation").write_text("rubbish")
        with pytest.raises(StorageError):
            await read_number(disk, "incarnation")
        await disk.close()

    asyncio.run(body())


def test_short_transfers_make_no_other_number_of_it() -> None:
    async def body() -> None:
        for seed in range(20):
            disk = SimDisk(StockLoop(), seed, "n1")
            disk.set_faults(DiskFaults(short=True))
            await write_number(disk, "incarnation", 1234567)
            assert await read_number(disk, "incarnation") == 1234567

    asyncio.run(body())


def test_a_power_loss_leaves_the_old_number_or_the_new_one() -> None:
    async def body() -> dict[int, None]:
        found: dict[int, None] = {}
        for seed in range(200):
            loop = StockLoop()
            disk = SimDisk(loop, seed, "n1")
            await write_number(disk, "incarnation", 1)
            writing = asyncio.create_task(write_number(disk, "incarnation", 2))
            await turns(seed % 25)
            promised = writing.done()
            disk.power_loss()
            writing.cancel()
            number = await read_number(disk, "incarnation")
            assert number == 2 or (number == 1 and not promised)
            found[number] = None
        return found

    assert sorted(asyncio.run(body())) == [1, 2]


def test_what_was_read_after_a_kill_outlives_a_power_loss() -> None:
    async def body() -> dict[int, None]:
        found: dict[int, None] = {}
        for seed in range(200):
            disk = SimDisk(StockLoop(), seed, "n1")
            await write_number(disk, "raft/term", 1)
            writing = asyncio.create_task(write_number(disk, "raft/term", 2))
            await turns(seed % 25)
            disk.kill()
            writing.cancel()
            number = await read_number(disk, "raft/term")
            disk.power_loss()
            assert await read_number(disk, "raft/term") == number
            found[number] = None
        return found

    assert sorted(asyncio.run(body())) == [1, 2]
