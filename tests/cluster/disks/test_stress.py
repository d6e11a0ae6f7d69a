"""Processes that do random things to a mounted disk are killed, and the power is lost: the oracle
knows what may be found. And without any fault, the file system behaves as any other."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pytest

from shalott.cluster.disks.control import FaultDisk
from shalott.cluster.disks.mounting import DiskOptions, NamesRule
from shalott.core.rng import Stream
from tests.world.clock.turns import answered
from tests.world.disk.disk_process import Action
from tests.world.disk.legality import PATHS, Model, is_legal
from tests.world.disk.mounted_disk import MountWorld
from tests.world.disk.stressed import act_and_die, draw, models_of
from tests.world.waiting import until

pytestmark = pytest.mark.local

SEEDS = 220


def content(root: Path, path: str) -> bytes | None:
    return (root / path).read_bytes() if (root / path).is_file() else None


def is_seen(model: Model, found: dict[str, bytes | None]) -> bool:
    """Whether it is what a process would find without a power loss."""
    for path in PATHS:
        known = model.at(path)
        if found[path] != (None if known is None else known.content):
            return False
    return True


def found_in_a(content: bytes) -> dict[str, bytes | None]:
    return {path: content if path == "a" else None for path in PATHS}


def is_legal_after(actions: Sequence[Action], found: dict[str, bytes | None]) -> bool:
    models = models_of(actions, 1, found, journal=False)
    return any(is_seen(model, found) for model in models)


def test_a_write_killed_at_a_page_border_is_legal_and_half_a_page_is_not() -> None:
    actions = [("truncate", "a", "a", 10, 1), ("write", "a", "a", 4000, 1000)]
    written = bytes(4000) + bytes([2]) * 1000
    sizes = range(5001)
    legal = {size for size in sizes if is_legal_after(actions, found_in_a(written[:size]))}
    assert legal == {10, 4096, 5000}


def test_a_map_killed_anywhere_is_legal_and_a_byte_beside_it_is_not() -> None:
    """glibc copies what is aligned first, and the first and the last vector at its end."""
    actions = [("truncate", "a", "a", 5000, 1), ("map", "a", "a", 3437, 700)]
    half = bytes(3456) + bytes([2]) * 640 + bytes(904)
    assert is_legal_after(actions, found_in_a(half))
    for at, byte in ((3436, 2), (4137, 2), (3500, 3)):
        wrong = half[:at] + bytes([byte]) + half[at + 1 :]
        assert not is_legal_after(actions, found_in_a(wrong)), at
    assert not is_legal_after(actions, found_in_a(half[:-1]))


def after_a_kill(
    root: Path, actions: Sequence[Action], done: int, *, journal: bool
) -> tuple[dict[str, bytes | None], list[Model]]:
    """What is found once the call in which the process died has ended, and what it may be: the
    kernel may not have waited for it, and it may rename a file between our looks at two paths."""
    found: dict[str, bytes | None] = {}
    models: list[Model] = []

    def is_legal_now() -> bool:
        found.update({path: content(root, path) for path in PATHS})
        models[:] = models_of(actions, done, found, journal=journal)
        return any(is_seen(model, found) for model in models)

    try:
        until(is_legal_now, "a legal disk after a kill")
    except AssertionError:
        known = {path: models[0].at(path) for path in PATHS}
        last = {path: None if file is None else file.content for path, file in known.items()}
        pytest.fail(f"found {runs_in(found)} after {done} of {actions}, not {runs_in(last)}")
    return found, models


def runs_in(contents: Mapping[str, bytes | None]) -> dict[str, list[tuple[int, int]] | None]:
    """Of each file the byte values and how often each stands in a row: short enough to be read."""
    return {
        path: None if found is None else [(byte, len(list(run))) for byte, run in groupby(found)]
        for path, found in contents.items()
    }


def counts_room(mount: MountWorld, disk: FaultDisk) -> bool:
    """Whether every file's size is counted once; the kernel closes a dead process's files late."""
    files = {path.stat().st_ino: path.stat().st_size for path in files_of(mount.root)}

    async def agrees() -> bool:
        return (await disk.status()).used_bytes == sum(files.values())

    try:
        return mount.run(answered(agrees, within_s=2))
    except AssertionError:
        return False


def files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("names", ["posix", "journal"])
def test_whatever_a_process_did_a_power_loss_leaves_a_legal_disk(names: NamesRule) -> None:
    mount, losses = MountWorld(DiskOptions(names=names)), 0
    root = mount.root
    try:
        for seed in range(SEEDS if names == "posix" else SEEDS // 2):
            disk = mount.fresh(seed)
            (root / "d").mkdir()
            (root / "d" / "made").touch()
            actions = draw(seed)
            done = act_and_die(root, actions, 1 + Stream(seed, "die").below(len(actions)))
            before, models = after_a_kill(root, actions, done, journal=names == "journal")
            assert counts_room(mount, disk), f"seed {seed}: room"
            mount.run(disk.power())
            found = {path: content(root, path) for path in PATHS}
            legal = [all(is_legal(model, p, found[p]) for p in PATHS) for model in models]
            assert any(legal), f"seed {seed}: {done} of {actions}"
            losses += found != before
            mount.run(disk.power())
            assert {p: content(root, p) for p in PATHS} == found, f"seed {seed}: twice"
            assert {p: content(mount.backing, p) for p in PATHS} == found, f"seed {seed}: backing"
    finally:
        mount.close()
    assert losses > SEEDS // 5, "most of the runs left something unsynced"


# -- without faults --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mount() -> Iterator[MountWorld]:
    world = MountWorld(DiskOptions(dirty_limit_bytes=200_000))  # so that it writes back, too
    yield world
    world.close()


@pytest.mark.parametrize("seed", range(6))
def test_reads_writes_maps_and_truncations_are_those_of_a_plain_file(
    mount: MountWorld, seed: int
) -> None:
    """As fsx does it (Apple's and the Linux Test Project's)."""
    mount.fresh(seed)
    draws, path, largest = Stream(seed, "fsx"), mount.root / "f", 150_000
    expected, descriptor = bytearray(), os.open(path, os.O_RDWR | os.O_CREAT)
    for number in range(900):
        offset, length = draws.below(largest), 1 + draws.below(20_000)
        end, verb = offset + length, draws.below(10)
        data = bytes([number % 251 + 1]) * length
        if verb <= 2:
            assert os.pwrite(descriptor, data, offset) == length
            expected.extend(bytes(max(0, end - len(expected))))
            expected[offset:end] = data
        elif verb == 3 and offset < len(expected):
            with mmap.mmap(descriptor, len(expected)) as mapped:
                part = min(length, len(expected) - offset)
                mapped[offset : offset + part] = data[:part]
                expected[offset : offset + part] = data[:part]
        elif verb == 4:
            os.ftruncate(descriptor, offset)
            del expected[offset:]
            expected.extend(bytes(offset - len(expected)))
        elif verb == 5:
            os.fsync(descriptor)
        elif verb == 6 and number % 3 == 0:
            os.posix_fallocate(descriptor, offset, length)
            expected.extend(bytes(max(0, end - len(expected))))
        elif verb == 7 and number % 5 == 0:
            os.close(descriptor)
            descriptor = os.open(path, os.O_RDWR)
        elif verb == 8 and expected:
            with mmap.mmap(descriptor, len(expected), access=mmap.ACCESS_READ) as mapped:
                assert mapped[:] == expected
        else:
            assert os.pread(descriptor, length, offset) == expected[offset:end]
        assert os.fstat(descriptor).st_size == len(expected)
    os.close(descriptor)
    assert path.read_bytes() == expected
    mount.unmount()
    assert (mount.backing / "f").read_bytes() == expected, "an orderly end writes everything back"
    mount.mount()
    assert path.read_bytes() == expected
