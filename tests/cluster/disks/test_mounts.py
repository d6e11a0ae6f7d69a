"""Mounts come and go: in order, with a server that dies or hangs, and with a harness that is
killed."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shalott.cluster.disks.build import SOURCES, why_not
from shalott.cluster.disks.mounting import (
    FoundMount,
    find_mounts,
    find_places,
    make_place,
    remove_mount,
    sweep_disks,
)
from shalott.cluster.owner import Owner, this_process
from shalott.core.errors import HarnessError
from tests.world.disk.mounted_disk import MountWorld

WITHIN_S = 20.0


def eventually(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.01)
    return False


def is_mounted(path: Path) -> bool:
    return any(mount.mountpoint == path for mount in find_mounts())


@pytest.mark.unit
def test_ours_are_found_in_the_table_of_mounts() -> None:
    owner = Owner(12, 34, "boot", "56", "machine")
    table = (
        "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        f"90 23 0:44 / /data/a\\040b rw - fuse.shalott shalott:{owner} rw,user_id=0\n"
        "91 23 0:45 / /other rw - fuse.sshfs host: rw\n"
        "92 23 0:46 / /data/c rw shared:7 - fuse.shalott somebody rw\n"
    )
    assert find_mounts(table) == [
        FoundMount(Path("/data/c"), None),
        FoundMount(Path("/data/a b"), owner),
    ]


@pytest.mark.unit
def test_the_program_is_built_from_every_source_and_named_after_them() -> None:
    assert len(list(SOURCES.glob("*.c"))) > 10
    assert why_not() is None or isinstance(why_not(), str)


@pytest.mark.local
def test_an_orderly_end_keeps_everything_and_leaves_no_mount() -> None:
    world = MountWorld()
    (world.root / "d").mkdir()
    (world.root / "d" / "f").write_bytes(b"never synced")
    assert is_mounted(world.root)
    world.unmount()
    assert not is_mounted(world.root)
    assert (world.backing / "d" / "f").read_bytes() == b"never synced"
    assert not any(str(world.root) in said for said in world.run(sweep_disks()))
    world.mount()
    assert (world.root / "d" / "f").read_bytes() == b"never synced"
    world.close()


@pytest.mark.local
def test_a_disk_may_be_mounted_over_its_own_backing_directory() -> None:
    world = MountWorld()
    world.unmount()
    world.root = world.backing
    (world.backing / "f").write_bytes(b"from before")
    world.mount()
    assert (world.root / "f").read_bytes() == b"from before"
    (world.root / "g").write_bytes(b"and after")
    world.unmount()
    assert (world.backing / "g").read_bytes() == b"and after"
    world.close()


@pytest.mark.local
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_dies_or_hangs_leaves_errors_and_no_mount(how: signal.Signals) -> None:
    world = MountWorld()
    file = os.open(world.root / "f", os.O_RDWR | os.O_CREAT)
    world.mounted.server.send_signal(how)
    if how == signal.SIGKILL:
        world.run(world.mounted.server.wait())
    else:
        mount = next(m for m in find_mounts() if m.mountpoint == world.root)
        world.run(remove_mount(mount))
    for call in (lambda: os.write(file, b"x"), lambda: os.close(file)):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.ENOTCONN
    world.run(world.mounted.abandon())
    assert not is_mounted(world.root)
    world.close()


@pytest.mark.local
def test_what_a_killed_harness_leaves_goes_with_it(tmp_path: Path) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    for name in ("backing", "mount"):
        (tmp_path / name).mkdir()
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    with harness:
        assert harness.stdout.readline() == "mounted\n"
        assert is_mounted(tmp_path / "mount")
        (tmp_path / "mount" / "f").write_bytes(b"x")
        harness.kill()
    assert eventually(lambda: not is_mounted(tmp_path / "mount"))
    assert (tmp_path / "backing" / "f").read_bytes() == b"x"


HARNESS = """
import asyncio, sys
from pathlib import Path
from shalott.cluster.disks.mounting import mount_disk
from shalott.cluster.owner import this_process
async def main(at):
    mounted = await mount_disk(at / "backing", at / "mount", at / "control", node="n1", seed=1,
                               owner=this_process())
    print("mounted", flush=True)
    await asyncio.sleep(600)
asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.local
def test_mounts_of_dead_harnesses_are_swept_and_of_live_ones_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MountWorld()
    try:
        assert not any(str(world.root) in said for said in world.run(sweep_disks()))
        dead = Owner(1, 1, "another", this_process().pid_namespace, this_process().machine)
        of_the_dead = [FoundMount(m.mountpoint, dead) for m in find_mounts()]
        answers = iter([of_the_dead])
        monkeypatch.setattr(
            "shalott.cluster.disks.mounting.find_mounts",
            lambda table=None: next(answers, find_mounts(table)),
        )
        mine = [m for m in of_the_dead if m.mountpoint == world.root]
        answers = iter([mine])
        assert world.run(sweep_disks()) == [
            f"unmounted {world.root}, a disk that a dead harness had left behind"
        ]
        assert not is_mounted(world.root)
    finally:
        world.close()


@pytest.mark.unit
def test_directories_of_dead_harnesses_are_swept_and_of_live_ones_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = this_process()
    live, dead = make_place(own), make_place(replace(own, start_ticks=own.start_ticks + 1))
    assert [place for place, _ in find_places()] == sorted([live, dead])
    asyncio.run(sweep_disks())
    assert live.is_dir() and not dead.exists()


@pytest.mark.local
def test_a_directory_that_is_not_there_is_one_sentence() -> None:
    world = MountWorld()
    world.unmount()
    world.backing = world.directory / "absent"
    with pytest.raises(HarnessError, match=r"n1 can't be mounted: faultfs: .*absent: No such file"):
        world.mount()
    world.close()


@pytest.mark.unit
def test_nobody_answers_for_a_disk_that_is_gone(tmp_path: Path) -> None:
    from shalott.cluster.disks.mounting import ask_socket

    with pytest.raises(HarnessError, match="can't be reached"):
        asyncio.run(ask_socket(tmp_path / "control", '{"do": "status"}'))
