"""Epochs and their file: appending, truncation, consistent points, crashes."""

from __future__ import annotations

import zlib

import pytest

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.autoswitch import epochs
from shalott.broker.rocket.autoswitch.epochs import (
    NO_POINT,
    PATH,
    EpochFileCache,
    EpochRange,
    decode,
    encode,
)
from shalott.broker.rocket.autoswitch.packets import EpochStart
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.clock.latency import sim
from tests.world.clock.turns import passes
from tests.world.env import Events, LoopClock
from tests.world.rabbit.queues import run

pytestmark = pytest.mark.unit

Pairs = tuple[tuple[int, int], ...]
THREE: Pairs = ((1, 100), (2, 300), (3, 500))


def entries(*pairs: tuple[int, int]) -> epochs.Entries:
    return tuple(EpochStart(epoch, start) for epoch, start in pairs)


def point(mine: Pairs, end: int, theirs: Pairs, their_end: int) -> int:
    return epochs.consistent_point(
        epochs.ranges(entries(*mine), end), epochs.ranges(entries(*theirs), their_end)
    )


# -- the four samples of EpochFileCacheTest --------------------------------------------------------


def test_an_epoch_with_another_start_is_none_in_common() -> None:
    theirs = ((1, 100), (2, 300), (3, 450))
    assert point(THREE, epochs.ENDLESS, theirs, epochs.ENDLESS) == 450


def test_the_shorter_end_of_the_last_common_epoch_counts() -> None:
    assert point(THREE, 700, THREE, 600) == 600
    assert point(THREE, 600, THREE, 700) == 600


def test_without_a_common_entry_there_is_no_point() -> None:
    assert point(THREE, 700, ((1, 200), (2, 500)), epochs.ENDLESS) == NO_POINT


def test_an_epoch_that_the_other_lacks_is_cut() -> None:
    theirs = (*THREE, (4, 800))
    assert point(theirs, epochs.ENDLESS, THREE, 700) == 700
    assert point(THREE, 700, theirs, 900) == 700


# -- entries ---------------------------------------------------------------------------------------


def test_an_entry_ends_where_the_next_begins() -> None:
    assert epochs.of_epoch(entries(*THREE), 2) == EpochRange(2, 300, 500)
    assert epochs.of_epoch(entries(*THREE), 3) == EpochRange(3, 500, epochs.ENDLESS)
    assert epochs.of_epoch(entries(*THREE), 4) is None


def test_a_byte_is_of_the_last_entry_that_begins_before_it() -> None:
    assert epochs.at_offset(entries(*THREE), 350) == EpochRange(2, 300, 500)
    assert epochs.at_offset(entries(*THREE), 499) == EpochRange(2, 300, 500)
    assert epochs.at_offset(entries(*THREE), 500) == EpochRange(3, 500, epochs.ENDLESS)
    assert epochs.at_offset(entries(*THREE), 99) is None


def test_suffixes() -> None:
    assert epochs.without_suffix(entries(*THREE), 150) == entries((1, 100))
    assert epochs.without_suffix(entries(*THREE), 500) == entries((1, 100), (2, 300))
    assert epochs.without_suffix(entries(*THREE), 501) == entries(*THREE)
    assert epochs.without_epochs(entries(*THREE), 2) == entries((1, 100))


def test_an_epoch_must_be_newer_and_begin_no_earlier() -> None:
    assert epochs.appended((), EpochStart(1, 100)) == entries((1, 100))
    assert epochs.appended(entries(*THREE), EpochStart(4, 501)) == entries(*THREE, (4, 501))
    assert epochs.appended(entries(*THREE), EpochStart(3, 600)) is None
    assert epochs.appended(entries(*THREE), EpochStart(4, 499)) is None


def test_a_new_epoch_takes_the_place_of_an_empty_one() -> None:
    added = epochs.appended(entries(*THREE), EpochStart(4, 500))
    assert added == entries((1, 100), (2, 300), (4, 500))


def test_upstream_refuses_an_epoch_that_begins_where_the_last_one_does() -> None:
    assert epochs.appended(entries(*THREE), EpochStart(4, 500), keeps_empty=True) is None


# -- the file --------------------------------------------------------------------------------------


def test_the_file_is_text_with_count_and_crc() -> None:
    lines = b"1-100\n2-300\n3-500\n"
    crc = zlib.crc32(lines) & 0x7FFFFFFF
    assert encode(entries(*THREE)) == b"3\n%d\n" % crc + lines
    assert decode(encode(entries(*THREE))) == entries(*THREE)
    assert decode(encode(())) == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-4],
        lambda data: data.replace(b"2-300", b"2-301"),
        lambda data: data.replace(b"3\n", b"2\n", 1),
        lambda data: b"",
        lambda data: b"\0" * len(data),
    ],
)
def test_a_damaged_file_is_noticed(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(StorageError):
        decode(damage(encode(entries(*THREE))))


def env_of(disk: SimDisk, *bugs: str) -> Env:
    return Env("a", 1, LoopClock(), seeded_rng(1, 1), disk, Events("a", []), bugs=bugs)


async def write_over(disk: SimDisk, path: str, data: bytes) -> None:
    file = await disk.open(path, create=True)
    await file.truncate(0)
    await file.pwrite(data, 0)
    await file.sync()
    await file.close()


def test_the_copy_is_used_when_the_file_is_damaged() -> None:
    async def scenario() -> None:
        disk = SimDisk(sim(), 1, "a")
        cache = await EpochFileCache.open(env_of(disk))
        assert await cache.append(EpochStart(1, 0))
        assert await cache.append(EpochStart(2, 50))
        await write_over(disk, PATH, b"nonsense")
        cache = await EpochFileCache.open(env_of(disk))
        assert cache.entries == entries((1, 0), (2, 50))
        assert decode(disk.read_all(PATH)) == cache.entries  # and the file is whole again
        await write_over(disk, PATH, b"nonsense")
        await write_over(disk, PATH + ".bak", b"nonsense")
        with pytest.raises(StorageError):
            await EpochFileCache.open(env_of(disk))

    run(scenario())


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(40))
def test_a_crash_leaves_the_old_epochs_or_the_new(seed: int) -> None:
    """What returned is there; what was under way is there or not."""

    async def scenario() -> None:
        disk = SimDisk(loop, seed, "a")
        done: list[int] = []

        async def live() -> None:
            cache = await EpochFileCache.open(env_of(disk))
            for epoch in range(1, 100):
                await cache.append(EpochStart(epoch, epoch * 10))
                done.append(epoch)

        process = SimProcess("a")
        loop.add_process(process)
        loop.create_task(live(), context=process.context)
        await passes(0.005 + seed * 0.0037)
        process.freeze()
        (disk.power_loss if seed % 2 else disk.kill)()
        cache = await EpochFileCache.open(env_of(disk))
        found = [each.epoch for each in cache.entries]
        assert found == list(range(1, len(found) + 1))
        assert len(found) - len(done) in (0, 1)

    loop = SimLoop()
    loop.run(scenario(), SimProcess("test", fenced=False))
