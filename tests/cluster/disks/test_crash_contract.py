"""What a kill, a power loss, and a fault leave of a disk: the same of a simulated one and of a
mounted one, through system calls.

A file system that syncs nothing, and one that keeps everything, fail this contract
(test_planted.py).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from shalott.cluster.nodes import DiskFaults
from tests.world.disk.disk_worlds import CrashDisk, DiskWorld, MountedWorld, SimWorld, stored
from tests.world.disk.mounted_disk import MountWorld


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sim", marks=pytest.mark.unit),
        pytest.param("mounted", marks=pytest.mark.local),
    ],
)
def world(request: pytest.FixtureRequest) -> Iterator[DiskWorld]:
    if request.param == "sim":
        yield SimWorld()
        return
    mount = MountWorld()
    yield MountedWorld(mount)
    mount.close()


# -- kill ------------------------------------------------------------------------------------------


def test_a_kill_keeps_everything_that_was_done_and_voids_handles(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> None:
        file = await disk.open("d/f", create=True)
        await file.pwrite(b"never synced", 0)
        disk.kill()
        assert disk.read_all("d/f") == b"never synced"
        with pytest.raises(OSError, match="closed"):
            await file.pwrite(b"from beyond", 0)
        await file.close()
        again = await disk.open("d/f", create=False)
        assert await again.pread(100, 0) == b"never synced"

    world.outcomes(body, seeds=(1,))


# -- power loss ------------------------------------------------------------------------------------


def test_what_was_synced_survives_every_power_loss(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> None:
        await stored(disk, "a/b/f", b"synced" * 500)
        for _ in range(3):
            disk.power_loss()
            assert disk.files() == ["a/b/f"]
            assert disk.read_all("a/b/f") == b"synced" * 500

    world.outcomes(body)


def test_unsynced_writes_are_lost_kept_or_torn_at_sectors(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> bytes:
        file = await stored(disk, "f", b"a" * 4096)
        await file.pwrite(b"b" * 4096, 0)
        disk.power_loss()
        return disk.read_all("f")

    found = world.outcomes(body)
    for content in found:
        assert len(content) == 4096
        for start in range(0, 4096, 512):
            assert content[start : start + 512] in (b"a" * 512, b"b" * 512), "a torn sector"
    assert b"a" * 4096 in found
    assert b"b" * 4096 in found
    # Sectors reach the platter in any order, not only the first ones first.
    assert any(b"ab" in content and content[0] == ord("a") for content in found)
    assert any(b"ba" in content for content in found)


def test_a_grown_file_may_be_too_short_or_hold_zeros(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> bytes:
        file = await stored(disk, "f", b"")
        await file.pwrite(b"x" * 3000, 0)
        disk.power_loss()
        return disk.read_all("f")

    found = world.outcomes(body)
    assert {len(content) for content in found} > {0, 3000}
    assert any(0 < len(content) < 3000 for content in found)
    assert any(b"\0" in content for content in found)


def test_a_later_write_to_a_sector_never_survives_without_the_earlier_one(
    world: DiskWorld,
) -> None:
    async def body(disk: CrashDisk) -> bytes:
        file = await stored(disk, "f", b"." * 512)
        await file.pwrite(b"1", 0)
        await file.pwrite(b"2", 1)
        disk.power_loss()
        return disk.read_all("f")[:2]

    assert set(world.outcomes(body)) == {b"..", b"1.", b"12"}


def test_a_lost_truncation_takes_what_came_after_with_it(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> bytes:
        file = await stored(disk, "f", b"old" * 300)
        await file.truncate(0)
        await file.pwrite(b"new", 0)
        disk.power_loss()
        return disk.read_all("f")

    assert set(world.outcomes(body)) == {b"old" * 300, b"", b"new", b"\0\0\0"}


def test_drop_only_disks_lose_whole_operations_from_the_end(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> bytes:
        file = await stored(disk, "f", b"")
        for number in range(4):
            await file.pwrite(bytes([65 + number]) * 700, number * 700)
        disk.power_loss()
        return disk.read_all("f")

    whole = b"".join(bytes([65 + number]) * 700 for number in range(4))
    found = world.outcomes(body, loss="drop")
    assert set(found) == {whole[:size] for size in range(0, 2801, 700)}
    assert set(world.outcomes(body, loss="keep")) == {whole}


# -- names -----------------------------------------------------------------------------------------


def test_syncing_a_file_does_not_make_its_name_durable(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> tuple[str, ...]:
        file = await disk.open("d/f", create=True)
        await file.pwrite(b"synced", 0)
        await file.sync()
        await disk.sync_dir("d")  # but not the root: d itself may go
        disk.power_loss()
        for path in disk.files():
            assert disk.read_all(path) == b"synced"
        return tuple(disk.files())

    assert set(world.outcomes(body)) == {(), ("d/f",)}


def test_a_rename_is_done_or_undone_never_half_also_between_directories(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> tuple[tuple[str, bytes], ...]:
        await stored(disk, "a/f", b"old")
        await stored(disk, "b/g", b"replaced")
        await disk.rename("a/f", "b/g")
        disk.power_loss()
        return tuple((path, disk.read_all(path)) for path in disk.files())

    undone = (("a/f", b"old"), ("b/g", b"replaced"))
    assert set(world.outcomes(body)) == {undone, (("b/g", b"old"),)}


@pytest.mark.parametrize("synced", ["a", "b"])
def test_syncing_either_directory_makes_a_rename_between_them_durable(
    world: DiskWorld, synced: str
) -> None:
    async def body(disk: CrashDisk) -> list[str]:
        await stored(disk, "a/f", b"")
        await stored(disk, "b/g", b"")
        await disk.rename("a/f", "a/h")
        await disk.rename("a/h", "b/i")
        await disk.sync_dir(synced)
        disk.power_loss()
        return disk.files()

    assert all(found == ["b/g", "b/i"] for found in world.outcomes(body))


def test_what_took_a_freed_name_never_survives_without_the_rename_that_freed_it(
    world: DiskWorld,
) -> None:
    async def body(disk: CrashDisk) -> tuple[tuple[str, bytes], ...]:
        await stored(disk, "f", b"old")
        await disk.rename("f", "g")
        file = await disk.open("f", create=True)
        await file.pwrite(b"new", 0)
        await file.sync()
        disk.power_loss()
        return tuple((path, disk.read_all(path)) for path in disk.files())

    undone, renamed = (("f", b"old"),), (("g", b"old"),)
    assert set(world.outcomes(body)) == {undone, renamed, (("f", b"new"), ("g", b"old"))}


def test_a_removed_file_may_come_back_and_then_has_its_bytes(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> tuple[str, ...]:
        file = await stored(disk, "f", b"bytes")
        await file.close()
        await disk.remove("f")
        disk.power_loss()
        assert all(disk.read_all(path) == b"bytes" for path in disk.files())
        return tuple(disk.files())

    assert set(world.outcomes(body)) == {(), ("f",)}


def test_a_rename_over_a_file_before_its_sync_may_leave_an_empty_file(world: DiskWorld) -> None:
    """The classic mistake: the new name is durable and the new bytes are not."""

    async def body(disk: CrashDisk) -> bytes:
        await stored(disk, "f", b"old")
        file = await disk.open("f.new", create=True)
        await file.pwrite(b"new", 0)
        await disk.rename("f.new", "f")
        await disk.sync_dir("")
        disk.power_loss()
        return disk.read_all("f")

    found = world.outcomes(body)
    assert b"" in found
    assert b"old" not in found


# -- faults ----------------------------------------------------------------------------------------


def test_a_full_disk_takes_a_short_write_and_then_none_until_something_is_removed(
    world: DiskWorld,
) -> None:
    async def body(disk: CrashDisk) -> None:
        file = await stored(disk, "f", b"x" * 10_000)
        other = await stored(disk, "other", b"y" * 20_000)
        disk.set_faults(DiskFaults(full=True))
        free = await disk.free_bytes()
        took = await file.pwrite(b"z" * 5000, 10_000)
        assert free <= took < 4096
        with pytest.raises(OSError) as raised:
            await file.pwrite(b"z", 10_000 + took)
        assert raised.value.errno == errno.ENOSPC
        assert await file.pwrite(b"in place", 0) == 8, "what is overwritten needs no room"
        assert await file.pread(8, 0) == b"in place"
        await disk.remove("other")
        assert await disk.free_bytes() == 0, "a removed file that is open takes room still"
        await other.close()
        assert await file.pwrite(b"z" * 5000, 10_000 + took) == 5000
        await file.sync()
        disk.set_faults(None)
        assert await disk.free_bytes() > 1 << 28

    world.outcomes(body)


def test_a_failed_sync_leaves_pages_clean_that_no_later_sync_writes(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> None:
        file = await stored(disk, "f", b"old")
        await file.pwrite(b"new", 0)
        disk.set_faults(DiskFaults(fail_sync=True))
        for call in (file.sync, lambda: disk.sync_dir("")):
            with pytest.raises(OSError) as raised:
                await call()
            assert raised.value.errno == errno.EIO
        disk.set_faults(None)
        await file.sync()  # and this promises nothing about what the failed one should have saved
        assert disk.read_all("f") == b"new", "readers see it still"
        disk.kill()
        assert disk.read_all("f") == b"new"
        disk.power_loss()
        assert disk.read_all("f") == b"old"

    world.outcomes(body)


def test_transfers_are_short_but_never_nothing(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> None:
        await stored(disk, "f", b"x" * 100)
        disk.set_faults(DiskFaults(short=True))
        file = await disk.open("f", create=False)
        reads = [len(await file.pread(100, 0)) for _ in range(60)]
        writes = [await file.pwrite(b"y" * 100, 0) for _ in range(60)]
        for sizes in (reads, writes):
            assert min(sizes) >= 1
            assert 10 < sum(size < 100 for size in sizes) < 50
        assert await file.pread(1, 0) == b"y"
        assert await file.pread(10, 100) == b""
        disk.set_faults(None)
        assert len(await file.pread(100, 0)) == 100

    world.outcomes(body, seeds=(1,))


def test_rot_flips_bits_of_synced_bytes_and_no_heal_undoes_it(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> None:
        await stored(disk, "f", bytes(2000))
        unsynced = await disk.open("g", create=True)
        await unsynced.pwrite(bytes(2000), 0)
        disk.set_faults(DiskFaults(corrupt_bytes=5))
        damaged = disk.read_all("f")
        assert 1 <= sum(byte != 0 for byte in damaged) <= 5
        assert all(byte.bit_count() <= 5 for byte in damaged)
        assert disk.rotten_bytes == {"f": 5}
        assert disk.read_all("g") == bytes(2000), "what is not on the platter does not rot there"
        disk.set_faults(DiskFaults(corrupt_bytes=5))
        assert disk.read_all("f") == damaged, "only a raise rots more"
        disk.set_faults(None)
        disk.power_loss()
        assert disk.read_all("f") == damaged
        disk.set_faults(DiskFaults(corrupt_bytes=1))
        assert sum(disk.rotten_bytes.values()) == 6

    world.outcomes(body)


def test_an_unsynced_write_hides_the_rot_below_it(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> None:
        file = await stored(disk, "f", bytes(100))
        await file.pwrite(b"x" * 100, 0)
        disk.set_faults(DiskFaults(corrupt_bytes=20))
        assert disk.read_all("f") == b"x" * 100
        await file.sync()
        disk.power_loss()
        assert disk.read_all("f") == b"x" * 100

    world.outcomes(body, seeds=(1,))


def test_the_same_seed_leaves_the_same_and_another_one_something_else(world: DiskWorld) -> None:
    async def body(disk: CrashDisk) -> list[tuple[str, bytes]]:
        for number in range(6):
            file = await disk.open(f"d{number % 2}/f{number}", create=True)
            await file.pwrite(bytes([number]) * 3000, 0)
            if number % 3:
                await file.sync()
        await disk.sync_dir("d0")
        await disk.sync_dir("")
        disk.power_loss()
        disk.set_faults(DiskFaults(corrupt_bytes=3))
        return [(path, disk.read_all(path)) for path in disk.files()]

    first = world.outcomes(body)
    assert world.outcomes(body) == first
    assert len({str(each) for each in first}) > len(first) // 2
