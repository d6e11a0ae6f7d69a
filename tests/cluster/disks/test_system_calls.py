"""System calls that programs count on, on a mounted disk: locks, maps, direct and synced writes,
holes, names of open files; and what faults do to them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shalott.cluster.disks.control import DiskSettings, FaultDisk
from shalott.cluster.disks.mounting import DiskOptions
from tests.world.disk.mounted_disk import MountWorld

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def mount() -> Iterator[MountWorld]:
    world = MountWorld()
    yield world
    world.close()


@pytest.fixture
def disk(mount: MountWorld) -> FaultDisk:
    return mount.fresh(7)


@pytest.fixture
def root(mount: MountWorld) -> Path:
    return mount.root


@contextlib.contextmanager
def opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def raises(code: int) -> contextlib.AbstractContextManager[object]:
    return pytest.raises(OSError, check=lambda error: error.errno == code)


def sync_directory(path: Path) -> None:
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def test_synced_writes_need_no_sync(mount: MountWorld, disk: FaultDisk, root: Path) -> None:
    for number, flag in enumerate((os.O_SYNC, os.O_DSYNC)):
        with opened(root / f"f{number}", os.O_RDWR | os.O_CREAT | flag) as file:
            os.write(file, b"synced" * 1000)
    sync_directory(root)
    mount.run(disk.power("drop"))
    assert (root / "f0").read_bytes() == (root / "f1").read_bytes() == b"synced" * 1000


def test_direct_writes_pass_the_kernels_cache_but_not_ours(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    (root / "f").touch()
    sync_directory(root)
    with (
        opened(root / "f", os.O_RDWR | os.O_DIRECT) as file,
        mmap.mmap(-1, 8192) as buffer,  # aligned
    ):
        buffer[:] = b"d" * 8192
        assert os.pwritev(file, [buffer], 4096) == 8192
        assert (root / "f").read_bytes() == bytes(4096) + b"d" * 8192
        assert mount.run(disk.status()).dirty_bytes == 8192
        os.fdatasync(file)
    mount.run(disk.power("drop"))
    assert (root / "f").read_bytes() == bytes(4096) + b"d" * 8192


def test_what_is_mapped_is_durable_after_msync_and_not_before(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    (root / "f").write_bytes(bytes(3 * 4096))
    with opened(root / "f") as file, mmap.mmap(file, 3 * 4096) as mapped:
        mapped[:4096] = b"1" * 4096
        mapped.flush()
        sync_directory(root)
        mapped[4096:8192] = b"2" * 4096
        assert mount.run(disk.status()).dirty_bytes == 0, "the kernel has it, and we have not"
    assert mount.run(disk.status()).dirty_bytes == 4096
    mount.run(disk.power("drop"))
    content = (root / "f").read_bytes()
    assert content[:4096] == b"1" * 4096
    assert content[4096:8192] in (b"2" * 4096, bytes(4096))


def test_pages_that_the_kernel_has_not_written_yet_are_lost_as_others_are(
    mount: MountWorld, root: Path
) -> None:
    """Their process is dead; nobody asked the kernel to write them."""
    found = []
    for seed in range(24):
        disk = mount.fresh(seed)
        (root / "f").write_bytes(bytes(4096))
        with opened(root / "f") as file:
            os.fsync(file)
        sync_directory(root)
        program = (
            "import mmap,os,signal,sys; f=os.open(sys.argv[1],os.O_RDWR); m=mmap.mmap(f,4096);"
            "m[:]=b'm'*4096; os.kill(os.getpid(),signal.SIGKILL)"
        )
        subprocess.run([sys.executable, "-S", "-E", "-c", program, str(root / "f")], check=False)
        assert (root / "f").read_bytes() == b"m" * 4096, "a kill loses nothing"
        mount.run(disk.power())
        found.append((root / "f").read_bytes())
    assert bytes(4096) in found
    assert any(b"m" in each for each in found)


def test_names_of_open_files(mount: MountWorld, disk: FaultDisk, root: Path) -> None:
    with opened(root / "f") as file:
        os.write(file, b"still there")
        (root / "f").unlink()
        assert not (root / "f").exists()
        assert os.pread(file, 100, 0) == b"still there"
        assert os.fstat(file).st_nlink == 0
    (root / "g").write_bytes(b"one file")
    (root / "h").hardlink_to(root / "g")
    assert (root / "h").stat().st_nlink == 2
    (root / "g").unlink()
    assert (root / "h").read_bytes() == b"one file"
    (root / "l").symlink_to("h")
    assert (root / "l").read_bytes() == b"one file"
    os.mkfifo(root / "p")
    sync_directory(root)
    mount.run(disk.power("drop"))
    assert sorted(path.name for path in root.iterdir()) == ["h", "l", "p"]
    assert (root / "l").readlink() == Path("h")


def test_a_sparse_file_has_holes_that_read_as_zeros(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    far = 1 << 33
    with opened(root / "f") as file:
        os.pwrite(file, b"end", far)
        os.fsync(file)
        assert os.pread(file, 4, far - 1) == b"\0end"
        assert os.pread(file, 9, 1 << 32) == bytes(9)
    sync_directory(root)
    mount.run(disk.power())
    assert (root / "f").stat().st_size == far + 3
    assert (mount.backing / "f").stat().st_blocks < 100


def test_locks_are_held_against_others(root: Path, disk: FaultDisk) -> None:
    with opened(root / "f") as first, opened(root / "f") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with raises(errno.EWOULDBLOCK):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other = (
            "import fcntl,os,sys; f=os.open(sys.argv[1],os.O_RDWR);"
            "fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)"
        )
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", other, str(root / "f")], capture_output=True
        )
        assert b"BlockingIOError" in done.stderr


def test_extended_attributes_are_not_supported_and_say_so(root: Path, disk: FaultDisk) -> None:
    (root / "f").touch()
    with raises(errno.ENOTSUP):
        os.setxattr(root / "f", "user.a", b"b")


def test_owners_modes_and_times_are_kept(mount: MountWorld, disk: FaultDisk, root: Path) -> None:
    (root / "f").write_bytes(b"x")
    with opened(root / "f") as file:
        os.fsync(file)
    sync_directory(root)
    (root / "f").chmod(0o601)
    os.utime(root / "f", (1_000_000_000, 1_100_000_000))
    if os.geteuid() == 0:
        os.chown(root / "f", 1234, 1235)
    mount.run(disk.power())
    found = (root / "f").stat()
    assert (found.st_mode & 0o7777, found.st_mtime) == (0o601, 1_100_000_000)
    if os.geteuid() == 0:
        assert (found.st_uid, found.st_gid) == (1234, 1235)


def test_handles_of_before_a_power_loss_fail(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    (root / "f").write_bytes(b"x" * 9000)
    with opened(root / "f") as file, opened(root, os.O_RDONLY | os.O_DIRECTORY) as directory:
        os.fsync(file)
        os.fsync(directory)
        mount.run(disk.power())
        for call in (
            lambda: os.pread(file, 10, 0),
            lambda: os.pwrite(file, b"y", 0),
            lambda: os.fsync(file),
            lambda: os.fsync(directory),
        ):
            with raises(errno.EIO):
                call()
    assert (root / "f").read_bytes() == b"x" * 9000


def test_each_kind_of_call_can_fail_by_itself_and_for_a_while(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    (root / "f").write_bytes(b"x" * 9000)
    with opened(root / "f") as file:
        os.fsync(file)
        mount.run(disk.set(DiskSettings(fail_read=True)))
        with raises(errno.EIO):
            os.pread(file, 10, 0)
        os.pwrite(file, b"y", 0)
        os.fsync(file)
        mount.run(disk.set(DiskSettings(fail_write=True)))
        os.pread(file, 10, 5000)
        with raises(errno.EIO):
            os.pwrite(file, b"z", 0)
        before = mount.run(disk.set(DiskSettings(fail_sync=True, fail_count=2)))
        for _ in range(2):
            with raises(errno.EIO):
                os.fsync(file)
        os.fsync(file)
    after = mount.run(disk.status())
    assert after.counters.failed - before.counters.failed == 2
    assert not after.faults.fail_sync


def test_a_disk_is_slow_in_all_calls_or_in_syncs(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    with opened(root / "f") as file:
        for settings, writing_ms, delayed in (
            (DiskSettings(slow_ms=80), 80, 2),
            (DiskSettings(slow_sync_ms=80), 0, 1),
        ):
            before = mount.run(disk.set(settings)).counters.delayed
            begun = time.monotonic()
            os.pwrite(file, b"x", 0)
            written = time.monotonic()
            os.fsync(file)
            synced = time.monotonic()
            assert (written - begun) * 1000 >= writing_ms
            assert (synced - written) * 1000 >= 80
            assert mount.run(disk.status()).counters.delayed - before == delayed


def test_a_killed_process_does_not_wait_for_a_slow_disk(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    (root / "f").touch()
    mount.run(disk.set(DiskSettings(slow_sync_ms=30_000)))
    with syncing_process(root / "f") as program:
        begun = time.monotonic()
        program.kill()
        program.wait()
        assert time.monotonic() - begun < 5


@contextlib.contextmanager
def syncing_process(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes a line to a file, syncs it, says so, and again."""
    words = (
        "import os,sys; f=os.open(sys.argv[1],os.O_RDWR|os.O_APPEND)\n"
        "while True: os.write(f,b'line\\n'); os.write(1,b'w'); os.fsync(f); os.write(1,b's')"
    )
    command = [sys.executable, "-S", "-E", "-c", words, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.read(1) == b"w"
        yield program
        program.kill()


def test_a_sync_can_be_awaited_and_held_until_its_caller_is_dead(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    (root / "f").touch()
    sync_directory(root)
    mount.run(disk.set(DiskSettings(slow_sync_ms=50)))

    async def third_sync(program: subprocess.Popen[bytes]) -> bool:
        made = await disk.await_syncs(3, 20_000, hold=True)
        await asyncio.sleep(0.2)  # long enough for another one, were it not held
        program.send_signal(signal.SIGKILL)
        return made

    syncs = mount.run(disk.status()).counters.syncs
    with syncing_process(root / "f") as program:
        assert mount.run(third_sync(program))
        program.wait()
        assert program.stdout is not None
        said = b"w" + program.stdout.read()
    made = mount.run(disk.status()).counters.syncs - syncs
    assert made >= 3
    assert said.count(b"s") == made - 1, "the last one was made and not answered"
    mount.run(disk.power("drop"))
    assert (root / "f").read_bytes().count(b"line\n") >= made
    assert not mount.run(disk.await_syncs(1, 50))


def test_rot_keeps_to_a_pattern_and_to_a_minority_of_copies(
    mount: MountWorld, disk: FaultDisk, root: Path
) -> None:
    for name in ("a.log", "n1.log", "b.dat"):
        (root / name).write_bytes(bytes(3000))
        with opened(root / name) as file:
            os.fsync(file)
    sync_directory(root)
    assert mount.run(disk.rot(5, pattern="a.*")) == 5
    assert mount.run(disk.durable_files()).rotten == {"a.log": 5}
    assert mount.run(disk.rot(5, others=())) == 0, "there is no other copy"
    assert (root / "b.dat").read_bytes() == bytes(3000)


def test_what_a_power_loss_took_is_told(mount: MountWorld, disk: FaultDisk, root: Path) -> None:
    (root / "f").write_bytes(b"x" * 3000)
    (root / "d").mkdir()
    status = mount.run(disk.status())
    assert (status.dirty_bytes, status.dirty_names) == (3000, 2)
    while (lost := mount.run(disk.power("drop")).lost).lost_names == 0:
        (root / "d").rmdir() if (root / "d").exists() else (root / "d").mkdir()
    assert lost.names[-1].startswith(("+d", "-d"))
    assert mount.run(disk.status()).dirty_names == 0


def test_what_the_harness_reads_afterwards_is_kept() -> None:
    world = MountWorld(DiskOptions(evidence=("events.jsonl", "log")))
    try:
        for seed in range(20):
            disk = world.fresh(seed)
            for path in ("events.jsonl", "log/n1/a", "state"):
                (world.root / path).parent.mkdir(parents=True, exist_ok=True)
                (world.root / path).write_bytes(b"x" * 5000)
            world.run(disk.power("drop"))
            assert (world.root / "events.jsonl").read_bytes() == b"x" * 5000
            assert (world.root / "log/n1/a").read_bytes() == b"x" * 5000
            sync_directory(world.root)
            state = world.root / "state"
            may_rot = state.exists() and state.stat().st_size > 0
            assert world.run(disk.rot(5)) == (5 if may_rot else 0)
            assert (world.root / "events.jsonl").read_bytes() == b"x" * 5000
    finally:
        world.close()
