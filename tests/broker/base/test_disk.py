"""What every Disk does. Another implementation joins by adding itself to DISKS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shalott.broker.base.disk import Disk, OsDisk
from shalott.broker.base.errors import StorageError
from shalott.cluster.sim.disk.disk import SimDisk
from tests.world.clock.stock_loop import StockLoop
from tests.world.clock.turns import turns
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.disk.mounted_disk import MountedDisk, MountWorld

DISKS: dict[str, Callable[[Path], Disk]] = {
    "os": lambda root: OsDisk(root / "node"),
    "memory": lambda root: MemoryDisk(),
    "sim": lambda root: SimDisk(StockLoop(), 1, "n1"),
}


@pytest.fixture(scope="module")
def mount() -> Iterator[MountWorld]:
    world = MountWorld()
    yield world
    world.close()


@pytest.fixture(
    params=[
        *(pytest.param(name, marks=pytest.mark.unit) for name in DISKS),
        pytest.param("mounted", marks=pytest.mark.local),
    ]
)
def make_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Disk]:
    if request.param == "mounted":
        world: MountWorld = request.getfixturevalue("mount")
        return lambda: MountedDisk(world, seed=1)
    return lambda: DISKS[request.param](tmp_path)


async def write(disk: Disk, path: str, data: bytes) -> None:
    file = await disk.open(path, create=True)
    assert await file.pwrite(data, 0) == len(data)
    await file.close()


async def read(disk: Disk, path: str) -> bytes:
    file = await disk.open(path, create=False)
    try:
        return await file.pread(1 << 20, 0)
    finally:
        await file.close()


def test_what_is_written_is_read(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        disk = make_disk()
        file = await disk.open("a/b/c", create=True)
        assert await file.size() == 0
        assert await file.pread(10, 0) == b""
        assert await file.pwrite(b"hello world", 0) == 11
        assert await file.pwrite(b"W", 6) == 1
        await file.sync()
        await disk.sync_dir("a/b")
        await disk.sync_dir("a")
        await disk.sync_dir("")
        assert await file.pread(100, 0) == b"hello World"
        assert await file.pread(5, 6) == b"World"
        assert await file.pread(5, 11) == b""
        assert await file.size() == 11
        await file.close()

    asyncio.run(body())


def test_a_write_beyond_the_end_leaves_zeros_between(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        disk = make_disk()
        file = await disk.open("f", create=True)
        await file.pwrite(b"x", 3)
        assert await file.pread(9, 0) == b"\0\0\0x"
        await file.truncate(6)
        assert await file.pread(9, 0) == b"\0\0\0x\0\0"
        await file.truncate(2)
        assert await file.pread(9, 0) == b"\0\0"
        await file.close()

    asyncio.run(body())


def test_opening_keeps_what_is_there(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        disk = make_disk()
        await write(disk, "f", b"kept")
        file = await disk.open("f", create=True)
        assert await file.size() == 4
        await file.close()

    asyncio.run(body())


def test_an_absent_file_is_not_found(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        disk = make_disk()
        with pytest.raises(FileNotFoundError):
            await disk.open("absent", create=False)
        with pytest.raises(FileNotFoundError):
            await disk.remove("absent")
        with pytest.raises(FileNotFoundError):
            await disk.rename("absent", "other")
        assert await disk.listdir("absent") == []

    asyncio.run(body())


def test_rename_replaces_and_open_files_follow_their_bytes(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        disk = make_disk()
        await write(disk, "old", b"old")
        await write(disk, "new", b"new")
        held = await disk.open("old", create=False)
        await disk.rename("new", "old")
        assert await read(disk, "old") == b"new"
        assert await held.pread(9, 0) == b"old"
        await held.close()
        assert await disk.listdir("") == ["old"]

    asyncio.run(body())


def test_names_are_sorted_and_directories_are_names(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        disk = make_disk()
        for path in ("q/2/journal", "q/10/journal", "q/1", "events.jsonl"):
            await write(disk, path, b"")
        assert await disk.listdir("q") == ["1", "10", "2"]
        assert await disk.listdir("") == ["events.jsonl", "q"]
        await disk.remove("q/1")
        assert await disk.listdir("q") == ["10", "2"]

    asyncio.run(body())


@pytest.mark.parametrize("path", ["../outside", "a/../../outside", "/etc/hostname"])
def test_a_path_that_leads_out_is_refused(make_disk: Callable[[], Disk], path: str) -> None:
    async def body() -> None:
        disk = make_disk()
        with pytest.raises(StorageError):
            await disk.open(path, create=True)
        with pytest.raises(StorageError):
            await disk.remove(path)
        with pytest.raises(StorageError):
            await disk.listdir(path)

    asyncio.run(body())


def test_a_closed_file_takes_nothing_and_closing_twice_is_harmless(
    make_disk: Callable[[], Disk],
) -> None:
    async def body() -> None:
        disk = make_disk()
        file = await disk.open("f", create=True)
        await file.close()
        await file.close()
        with pytest.raises(OSError, match="closed"):
            await file.pwrite(b"x", 0)

    asyncio.run(body())


def test_calls_of_one_file_keep_their_order(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        disk = make_disk()
        file = await disk.open("f", create=True)
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(file.pwrite(number.to_bytes(1, "big"), 0))
        assert await file.pread(1, 0) == bytes([99])
        await file.close()

    asyncio.run(body())


def test_there_is_room(make_disk: Callable[[], Disk]) -> None:
    async def body() -> None:
        assert await make_disk().free_bytes() > 0

    asyncio.run(body())


# -- OsDisk alone ----------------------------------------------------------------------------------


@pytest.mark.unit
def test_a_symbolic_link_does_not_lead_out(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path / "node")
        (tmp_path / "node" / "link").symlink_to(tmp_path)
        with pytest.raises(StorageError):
            await disk.open("link/escaped", create=True)
        await disk.close()

    asyncio.run(body())
    assert not (tmp_path / "escaped").exists()


@pytest.mark.unit
def test_an_empty_directory_can_be_removed_a_full_one_not(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        await write(disk, "d/f", b"")
        with pytest.raises(OSError, match="not empty"):
            await disk.remove("d")
        await disk.remove("d/f")
        await disk.remove("d")
        assert await disk.listdir("") == []
        await disk.close()

    asyncio.run(body())


@pytest.mark.unit
def test_a_write_whose_caller_was_cancelled_happens_all_the_same(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        file = await disk.open("f", create=True)
        first = asyncio.create_task(file.pwrite(b"first", 0))
        second = asyncio.create_task(file.pwrite(b"second", 5))
        await turns()  # both are in the writer's line now
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await first
        assert await file.pread(100, 0) == b"firstsecond"
        await file.close()
        await disk.close()

    asyncio.run(body())
