"""SimDisk and SimFile: broker.base.disk.Disk and File in virtual time, with crashes and faults.

A disk outlives the programs that use it. When its calls happen is in calls.py, what a crash
does to bytes in page_cache.py, and to names in names.py.

``kill``: the program is gone, the kernel is not. All that was done stays. Of the calls under way
the first few were done, the next may have been cut off at a page, the rest never began.
``power_loss``: as kill, and then the page cache goes.

Every draw is keyed by the seed, the node and the file or the crash it is for, so a fault more or
less does not change what another one does.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from shalott.cluster.corruption import FaultAtlas, choose_bit
from shalott.cluster.nodes import SOUND_DISK, DiskFaults
from shalott.cluster.sim.disk.calls import CallLine, TimerLoop
from shalott.cluster.sim.disk.names import Tree, split
from shalott.cluster.sim.disk.page_cache import PAGE_BYTES, Inode, PowerLoss
from shalott.cluster.sim.loop.trace import Trace
from shalott.core.rng import Stream

T = TypeVar("T")

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
SHORT_PROBABILITY = 0.5
FULL_SLACK_BYTES = 4096  # what still fits, at most, when a disk is made full


class DiskKnobs(msgspec.Struct, frozen=True, kw_only=True):
    """A disk's character. The defaults are a solid-state disk behind a page cache."""

    capacity_bytes: int = 64 << 30
    # Latencies are drawn evenly between the two; a few calls take ``tail_factor`` times as long.
    call_us: tuple[int, int] = (5, 60)  # what the page cache answers
    sync_us: tuple[int, int] = (200, 3000)
    tail_per_1024: int = 8
    tail_factor: int = 10
    power_loss: PowerLoss = "torn"


class SimDisk:
    """One node's disk. Disks of one cluster share an ``atlas``, which bounds their rot, and a
    ``trace``, which is told of their calls."""

    def __init__(
        self,
        loop: TimerLoop,
        seed: int,
        node: str,
        knobs: DiskKnobs | None = None,
        atlas: FaultAtlas | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.node = node
        self.knobs = knobs if knobs is not None else DiskKnobs()
        self.faults: DiskFaults = SOUND_DISK
        self.syncs = 0
        self.sync_watchers: list[Callable[[], None]] = []  # called at every sync
        self._seed = seed
        self._atlas = atlas
        if atlas is not None:
            atlas.attach(self)
        self._tree = Tree()
        self._draws: dict[str, Stream] = {}
        self._name_draws = self._stream("names")
        self._shorts = self._stream("short")
        self._calls = CallLine(loop, node, trace)
        self._life = 0  # grows when the programs die; their handles are void then
        self._kills = 0
        self._losses = 0
        self._rots = 0
        self._open: dict[int, Inode] = {}
        self._handles = 0
        self._used_bytes = 0
        self._full_at_bytes: int | None = None

    # -- Disk --------------------------------------------------------------------------------------

    async def open(self, path: str, *, create: bool) -> SimFile:
        def effect() -> SimFile:
            names = split(path)
            if create and names:
                self._create(names)
            inode = self._tree.find_file(path)
            self._handles += 1
            self._open[self._handles] = inode
            inode.opens += 1
            return SimFile(self, path, inode, self._handles, self._life)

        return await self._call(effect, f"open {path} {create=}")

    async def rename(self, source: str, target: str) -> None:
        def effect() -> None:
            replaced = self._tree.rename(source, target)
            if isinstance(replaced, Inode):
                self._unlinked(replaced)

        await self._call(effect, f"rename {source} to {target}")

    async def remove(self, path: str) -> None:
        def effect() -> None:
            removed = self._tree.remove(path)
            if isinstance(removed, Inode):
                self._unlinked(removed)

        await self._call(effect, f"remove {path}")

    async def sync_dir(self, path: str) -> None:
        def effect() -> None:
            directory = self._tree.find_directory(path)
            self._count_sync()
            if self.faults.fail_sync:
                raise OSError(errno.EIO, "the disk can't write the directory", path)
            self._tree.sync(directory)

        await self._call(effect, f"sync of directory {path}", syncs=True)

    async def listdir(self, path: str) -> list[str]:
        def effect() -> list[str]:
            try:
                return sorted(self._tree.find_directory(path).cached)
            except FileNotFoundError:
                return []

        return await self._call(effect, f"list {path}")

    async def free_bytes(self) -> int:
        return await self._call(self._room_bytes, "free bytes")

    def _count_sync(self) -> None:
        self.syncs += 1
        for tell in tuple(self.sync_watchers):
            tell()

    # -- crashes and faults ------------------------------------------------------------------------

    def kill(self) -> None:
        """The programs that use the disk died. Their calls under way may have happened or not."""
        fate = self._stream("kill", self._kills)
        self._kills += 1
        self._calls.kill(fate)
        self._life += 1
        for inode in self._open.values():
            inode.opens = 0
            self._free_if_unused(inode)
        self._open.clear()

    def power_loss(self) -> None:
        """The page cache is gone too. What survives of it depends on ``knobs.power_loss``."""
        self.kill()
        number, self._losses = self._losses, self._losses + 1
        self._tree.lose_power(self.knobs.power_loss, self._stream("power", number, "names"))
        self._used_bytes = 0
        for path, inode in self._tree.files():
            inode.linked = True
            inode.lose_power(self.knobs.power_loss, self._stream("power", number, "file", path))
            self._used_bytes += len(inode.cached)

    def set_faults(self, faults: DiskFaults | None) -> None:
        """From now on, for programs yet to come too. None: a sound disk; rot stays."""
        wanted = SOUND_DISK if faults is None else faults
        rot_bytes = wanted.corrupt_bytes - self.faults.corrupt_bytes
        if wanted.full and not self.faults.full:
            slack = self._stream("full", self._used_bytes).below(FULL_SLACK_BYTES)
            self._full_at_bytes = self._used_bytes + slack
        elif not wanted.full:
            self._full_at_bytes = None
        self.faults = wanted
        if rot_bytes > 0:
            self._rot(rot_bytes)

    def wipe(self) -> None:
        """Remove everything, durably. No program may be using the disk."""
        self.kill()
        self._tree = Tree()
        self._used_bytes = 0

    # -- looking at it from outside ----------------------------------------------------------------

    def files(self) -> list[str]:
        """Paths, sorted, as a program would find them now."""
        return sorted(path for path, _ in self._tree.files())

    def read_all(self, path: str) -> bytes:
        """A file as a program would find it now. Raises FileNotFoundError."""
        return bytes(self._tree.find_file(path).cached)

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def rotten_bytes(self) -> Mapping[str, int]:
        """How many bytes of which files have rotted and not been replaced."""
        return {
            path: inode.rotten_bytes for path, inode in self._tree.files() if inode.rotten_bytes
        }

    def has_rot(self) -> bool:
        return bool(self.rotten_bytes)

    def has_rot_in(self, path: str) -> bool:
        return path in self.rotten_bytes

    def holds(self, path: str) -> bool:
        try:
            return self._tree.is_durable(path, self._tree.find_file(path))
        except OSError:
            return False

    # -- calls -------------------------------------------------------------------------------------

    def _call(
        self,
        effect: Callable[[], T],
        what: str,
        *,
        content: bytes = b"",
        draws: Stream | None = None,
        syncs: bool = False,
        cut_off: Callable[[Stream], None] | None = None,
    ) -> asyncio.Future[T]:
        bounds_us = self.knobs.sync_us if syncs else self.knobs.call_us
        latency_ns = self._latency_ns(self._name_draws if draws is None else draws, bounds_us)
        return self._calls.run(effect, latency_ns, cut_off, what=what, content=content)

    def _latency_ns(self, draws: Stream, bounds_us: tuple[int, int]) -> int:
        word = draws.next_u64()
        low_us, high_us = bounds_us
        span_ns = (high_us - low_us) * NS_PER_US
        latency_ns = low_us * NS_PER_US + ((word >> 32) * span_ns >> 32)
        if word & 1023 < self.knobs.tail_per_1024:
            latency_ns *= self.knobs.tail_factor
        return latency_ns + round(self.faults.slow_ms * NS_PER_MS)

    # -- bytes -------------------------------------------------------------------------------------

    def _write(self, inode: Inode, data: bytes, offset: int) -> int:
        taken = self._shortened(len(data))
        room = self._room_bytes() + len(inode.cached) - offset  # what it overwrites needs none
        if data and room <= 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        taken = min(taken, room)
        before = len(inode.cached)
        inode.write(bytes(data[:taken]), offset)
        self._used_bytes += len(inode.cached) - before
        return taken

    def _read(self, inode: Inode, size: int, offset: int) -> bytes:
        found = bytes(inode.cached[offset : offset + size])
        return found[: self._shortened(len(found))]

    def _shortened(self, size: int) -> int:
        """How much of a transfer is made; never nothing of something."""
        if not self.faults.short or size < 2 or self._shorts.random() >= SHORT_PROBABILITY:
            return size
        return 1 + self._shorts.below(size - 1)

    def _truncate(self, inode: Inode, size: int) -> None:
        before = len(inode.cached)
        inode.truncate(size)
        self._used_bytes += len(inode.cached) - before

    def _sync(self, inode: Inode) -> None:
        self._count_sync()
        if self.faults.fail_sync:
            inode.fail_sync()
            raise OSError(errno.EIO, "the disk can't write the file")
        inode.sync()

    def _close(self, inode: Inode, handle: int) -> None:
        del self._open[handle]
        inode.opens -= 1
        self._free_if_unused(inode)

    # -- space and names ---------------------------------------------------------------------------

    def _room_bytes(self) -> int:
        limit = self.knobs.capacity_bytes
        if self._full_at_bytes is not None:
            limit = min(limit, self._full_at_bytes)
        return max(0, limit - self._used_bytes)

    def _create(self, names: list[str]) -> None:
        """Make the file and its parents, unless something is there already."""
        directory = self._tree.make_directories("/".join(names[:-1]))
        if names[-1] not in directory.cached:
            self._tree.link(directory, names[-1], Inode(self._draws_of("/".join(names))))

    def _draws_of(self, path: str) -> Stream:
        """One stream for all the files that ever have this path."""
        found = self._draws.get(path)
        if found is None:
            found = self._draws[path] = self._stream("file", path)
        return found

    def _unlinked(self, inode: Inode) -> None:
        inode.linked = False
        self._free_if_unused(inode)

    def _free_if_unused(self, inode: Inode) -> None:
        if not inode.linked and inode.opens == 0:
            self._used_bytes -= len(inode.cached)

    # -- rot ---------------------------------------------------------------------------------------

    def _rot(self, count: int) -> None:
        """Flip a bit in each of ``count`` durable bytes, as far as the atlas lets it."""
        draws = self._stream("rot", self._rots)
        self._rots += 1
        candidates = [
            inode
            for path, inode in self._tree.files()
            if inode.durable
            and self.holds(path)
            and (self._atlas is None or self._atlas.allows(self, path))
        ]
        sizes = [len(inode.durable) for inode in candidates]
        for _ in range(count if candidates else 0):
            number, position, bit = choose_bit(sizes, draws)
            candidates[number].flip(position, bit)

    def _stream(self, *names: str | int) -> Stream:
        return Stream(self._seed, "disk", self.node, *names)


class SimFile:
    """A file of a SimDisk. Use after ``close``, or after its program died, raises OSError."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode, handle: int, life: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._handle = handle
        self._life = life
        self._closed = False

    async def pread(self, size: int, offset: int) -> bytes:
        disk, inode = self._usable()
        what = f"read {self._path} {size} B at {offset}"
        return await disk._call(lambda: disk._read(inode, size, offset), what, draws=inode.draws)

    async def pwrite(self, data: bytes, offset: int) -> int:
        disk, inode = self._usable()

        def cut_off(fate: Stream) -> None:
            boundaries = (offset + len(data)) // PAGE_BYTES - offset // PAGE_BYTES
            reached = fate.below(boundaries + 1)
            if reached:
                end = (offset // PAGE_BYTES + reached) * PAGE_BYTES
                disk._write(inode, data[: end - offset], offset)

        return await disk._call(
            lambda: disk._write(inode, data, offset),
            f"write {self._path} at {offset}",
            content=data,
            draws=inode.draws,
            cut_off=cut_off,
        )

    async def truncate(self, size: int) -> None:
        disk, inode = self._usable()
        what = f"truncate {self._path} to {size} B"
        await disk._call(lambda: disk._truncate(inode, size), what, draws=inode.draws)

    async def size(self) -> int:
        disk, inode = self._usable()
        what = f"size of {self._path}"
        return await disk._call(lambda: len(inode.cached), what, draws=inode.draws)

    async def sync(self) -> None:
        disk, inode = self._usable()
        what = f"sync {self._path}"
        await disk._call(lambda: disk._sync(inode), what, draws=inode.draws, syncs=True)

    async def close(self) -> None:
        """Closing twice is harmless."""
        if not self._closed and self._life == self._disk._life:
            self._closed = True
            disk, inode, handle = self._disk, self._inode, self._handle
            what = f"close {self._path}"
            await disk._call(lambda: disk._close(inode, handle), what, draws=inode.draws)

    def _usable(self) -> tuple[SimDisk, Inode]:
        if self._closed or self._life != self._disk._life:
            raise OSError(errno.EBADF, "the file is closed")
        return self._disk, self._inode
