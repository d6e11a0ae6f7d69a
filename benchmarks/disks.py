"""What a data directory on the file system of disk faults costs: calls in a second, three ways.

    python benchmarks/disks.py [--dir DIR] [--seconds 1]

``plain`` is the directory DIR itself. ``faultfs`` is cluster/disks/ over a directory there.
``mfusepy`` is what the same would be in Python: a file system that only passes calls on, so the
least that one with a cache would cost (it is left out where mfusepy is not installed). A synced
write of ``plain`` waits for the device; one of ``faultfs`` is durable when the backing directory's
kernel has it, since only the node's power is ever cut.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shalott.cluster.disks.build import program_path
from shalott.cluster.disks.mounting import mount_disk
from shalott.cluster.owner import this_process

ROUNDS = 8
SPAN = 4096  # writes and reads go round in so many places

PASSTHROUGH = """
import os, sys
import mfusepy
backing, mountpoint = sys.argv[1:]
class Passthrough(mfusepy.Operations):
    use_ns = True
    def at(self, path): return backing + path
    def getattr(self, path, fh=None):
        found = os.lstat(self.at(path))
        names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
        times = {n: getattr(found, n + "_ns") for n in ("st_atime", "st_mtime", "st_ctime")}
        return {n: getattr(found, n) for n in names} | times
    def create(self, path, mode, fi=None):
        return os.open(self.at(path), os.O_RDWR | os.O_CREAT, mode)
    def open(self, path, flags): return os.open(self.at(path), flags & ~os.O_APPEND)
    def read(self, path, size, offset, fh): return os.pread(fh, size, offset)
    def write(self, path, data, offset, fh): return os.pwrite(fh, data, offset)
    def fsync(self, path, datasync, fh): return 0
    def release(self, path, fh): os.close(fh); return 0
    def unlink(self, path): os.unlink(self.at(path)); return 0
    def rename(self, old, new): os.rename(self.at(old), self.at(new)); return 0
    def readdir(self, path, fh): return [".", "..", *os.listdir(self.at(path))]
mfusepy.FUSE(Passthrough(), mountpoint, foreground=True)
"""


def per_second(call: Callable[[int], object], seconds: float) -> float:
    """In the best of a few rounds: a busy machine only ever makes it less."""
    best, done = 0.0, 0
    for _ in range(ROUNDS):
        begun, first = time.perf_counter(), done
        while (now := time.perf_counter()) - begun < seconds / ROUNDS:
            for _ in range(20):
                call(done)
                done += 1
        best = max(best, (done - first) / (now - begun))
    return best


def measure(directory: Path, seconds: float) -> list[float]:
    """Writes of 100 B and 4 KiB, synced writes of 100 B, reads past the cache, files made and
    removed; how many of each in a second."""
    path = directory / "measured"
    rates = []
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for size in (100, 4096):
        data = bytes(size)
        rates.append(
            per_second(lambda n, d=data: os.pwrite(descriptor, d, n % SPAN * len(d)), seconds)
        )

    def synced(number: int) -> None:
        os.pwrite(descriptor, bytes(100), number % SPAN * 100)
        os.fdatasync(descriptor)

    def uncached(number: int) -> None:
        offset = number % SPAN * 4096
        os.posix_fadvise(descriptor, offset, 4096, os.POSIX_FADV_DONTNEED)
        os.pread(descriptor, 4096, offset)

    def made(number: int) -> None:
        os.close(os.open(directory / "made", os.O_RDWR | os.O_CREAT, 0o644))
        (directory / "made").unlink()

    rates += [per_second(call, seconds) for call in (synced, uncached, made)]
    os.close(descriptor)
    path.unlink()
    return rates


@contextmanager
def passthrough(backing: Path, mountpoint: Path) -> Iterator[Path]:
    server = subprocess.Popen(
        [sys.executable, "-c", PASSTHROUGH, str(backing), str(mountpoint)],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not os.path.ismount(mountpoint):  # noqa: PTH203
            if server.poll() is not None:
                raise SystemExit("mfusepy can't mount here: it needs libfuse3")
            time.sleep(0.02)
        yield mountpoint
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(mountpoint)], check=False)
        server.kill()
        server.wait()


async def faultfs(work: Path, seconds: float) -> list[float]:
    backing, mountpoint = work / "backing", work / "mount"
    backing.mkdir()
    mountpoint.mkdir()
    mounted = await mount_disk(
        backing, mountpoint, work / "control", node="n1", seed=1, owner=this_process()
    )
    try:
        return await asyncio.to_thread(measure, mountpoint, seconds)
    finally:
        await mounted.unmount()


def tell(name: str, rates: list[float]) -> None:
    print(f"{name:10}" + "".join(f"{rate:14,.0f}" for rate in rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", type=Path, help="where to write; default: a temporary directory")
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    program_path()
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="shalott-disks-") as directory:
        work = Path(directory)
        heads = ("write 100 B", "write 4 KiB", "+ sync", "read 4 KiB", "make, remove")
        print(f"{'a second':10}" + "".join(f"{head:>14}" for head in heads))
        tell("plain", measure(work, arguments.seconds))
        tell("faultfs", asyncio.run(faultfs(work, arguments.seconds)))
        if importlib.util.find_spec("mfusepy") is not None:
            for name in ("passed", "through"):
                (work / name).mkdir()
            with passthrough(work / "passed", work / "through") as mountpoint:
                tell("mfusepy", measure(mountpoint, arguments.seconds))


if __name__ == "__main__":
    main()
