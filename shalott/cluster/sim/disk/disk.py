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

from shalott.cluster.corruption import FaultAtlas
from shalott.cluster.nodes import SOUND_DISK, DiskFaults
from shalott.cluster.sim.disk.calls import CallLine, TimerLoop
from shalott.cluster.sim.disk.contents import Handles, Rot, Space, Transfers
from shalott.cluster.sim.disk.names import Tree, split
from shalott.cluster.sim.disk.outside import Outside
from shalott.cluster.sim.disk.page_cache import PAGE_BYTES, Inode, PowerLoss
from shalott.cluster.sim.disk.survival import Survival
from shalott.cluster.sim.loop.trace import Trace
from shalott.core.rng import Stream

T = TypeVar("T")

NS_PER_US = 1_000
NS_PER_MS = 1_000_000


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
        self._seed = seed
        self._tree = Tree()
        self._space = Space(self.knobs.capacity_bytes)
        self.handles = Handles(self._space)
        self.transfers = Transfers(self._space, self.stream("short"))
        self.rot = Rot(self._tree, atlas, self.stream)
        self._draws: dict[str, Stream] = {}
        self.outside = Outside(self._tree, self._space, self._create)
        self.survival = Survival(self._tree)
        self._name_draws = self.stream("names")
        self.calls = CallLine(loop, node, trace)
        self._loop = loop
        self.life = 0  # grows when the programs die; their handles are void then
        self._kills = 0
        self._losses = 0

    # -- Disk --------------------------------------------------------------------------------------

    async def open(self, path: str, *, create: bool) -> SimFile:
        def effect() -> SimFile:
            names = split(path)
            if create and names:
                self._create(names)
            inode = self._tree.find_file(path)
            return SimFile(self, path, inode, self.handles.open(inode), self.life)

        return await self.call(effect, f"open {path} {create=}")

    async def rename(self, source: str, target: str) -> None:
        def effect() -> None:
            replaced = self._tree.rename(source, target)
            if isinstance(replaced, Inode):
                self.handles.unlinked(replaced)

        await self.call(effect, f"rename {source} to {target}")

    async def remove(self, path: str) -> None:
        def effect() -> None:
            removed = self._tree.remove(path)
            if isinstance(removed, Inode):
                self.handles.unlinked(removed)

        await self.call(effect, f"remove {path}")

    async def sync_dir(self, path: str) -> None:
        def effect() -> None:
            directory = self._tree.find_directory(path)
            self.transfers.count_sync()
            if self.faults.fail_sync:
                raise OSError(errno.EIO, "the disk can't write the directory", path)
            self._tree.sync(directory)

        await self.call(effect, f"sync of directory {path}", syncs=True)

    async def listdir(self, path: str) -> list[str]:
        def effect() -> list[str]:
            try:
                return sorted(self._tree.find_directory(path).cached)
            except FileNotFoundError:
                return []

        return await self.call(effect, f"list {path}")

    async def free_bytes(self) -> int:
        return await self.call(lambda: self._space.room_bytes, "free bytes")

    # -- crashes and faults ------------------------------------------------------------------------

    def kill(self) -> None:
        """The programs that use the disk died. Their calls under way may have happened or not."""
        fate = self.stream("kill", self._kills)
        self._kills += 1
        self.calls.kill(fate)
        self.life += 1
        self.handles.close_all()

    def power_loss(self, loss: PowerLoss | None = None) -> None:
        """The page cache is gone too. What survives of it depends on ``knobs.power_loss``, if it is
        not said."""
        self.kill()
        self.survival.lost_ns = self._loop.now_ns
        loss = self.knobs.power_loss if loss is None else loss
        number, self._losses = self._losses, self._losses + 1
        self._tree.lose_power(loss, self.stream("power", number, "names"))
        self._space.used_bytes = 0
        for path, inode in self._tree.files():
            inode.linked = True
            inode.lose_power(loss, self.stream("power", number, "file", path))
            self._space.used_bytes += len(inode.cached)

    def set_faults(self, faults: DiskFaults | None) -> None:
        """From now on, for programs yet to come too. None: a sound disk; rot stays."""
        wanted = SOUND_DISK if faults is None else faults
        rot_bytes = wanted.corrupt_bytes - self.faults.corrupt_bytes
        if wanted.full and not self.faults.full:
            self._space.fill(self.stream("full", self._space.used_bytes))
        elif not wanted.full:
            self._space.restore()
        self.transfers.faults = wanted
        if rot_bytes > 0:
            self.rot.spread(rot_bytes)
            self.survival.rotted = True

    def wipe(self) -> None:
        """Remove everything, durably. No program may be using the disk."""
        self.kill()
        self.survival.emptied = True
        self._tree.clear()
        self._space.used_bytes = 0

    # -- looking at it from outside ----------------------------------------------------------------

    def files(self) -> list[str]:
        """Paths, sorted, as a program would find them now."""
        return sorted(path for path, _ in self._tree.files())

    def read_all(self, path: str) -> bytes:
        """A file as a program would find it now. Raises FileNotFoundError."""
        return bytes(self._tree.find_file(path).cached)

    @property
    def used_bytes(self) -> int:
        return self._space.used_bytes

    @property
    def rotten_bytes(self) -> Mapping[str, int]:
        """How many bytes of which files have rotted and not been replaced."""
        return self.rot.bytes_by_file

    @property
    def syncs(self) -> int:
        return self.transfers.syncs

    @property
    def faults(self) -> DiskFaults:
        """Those in force."""
        return self.transfers.faults

    # -- calls -------------------------------------------------------------------------------------

    def call(
        self,
        effect: Callable[[], T],
        what: str,
        *,
        content: bytes = b"",
        draws: Stream | None = None,
        syncs: bool = False,
        cut_off: Callable[[Stream], None] | None = None,
    ) -> asyncio.Future[T]:
        word = (self._name_draws if draws is None else draws).next_u64()
        knobs = self.knobs
        low_us, high_us = knobs.sync_us if syncs else knobs.call_us
        span_ns = (high_us - low_us) * NS_PER_US
        latency_ns = low_us * NS_PER_US + ((word >> 32) * span_ns >> 32)
        if word & 1023 < knobs.tail_per_1024:
            latency_ns *= knobs.tail_factor
        slow_ms = self.transfers.faults.slow_ms
        if slow_ms:
            latency_ns += round(slow_ms * NS_PER_MS)
        return self.calls.run(effect, latency_ns, cut_off, what=what, content=content)

    # -- names -------------------------------------------------------------------------------------

    def _create(self, names: list[str]) -> None:
        """Make the file and its parents, unless something is there already."""
        directory = self._tree.make_directories("/".join(names[:-1]))
        if names[-1] not in directory.cached:
            self._tree.link(directory, names[-1], Inode(self._draws_of("/".join(names))))

    def _draws_of(self, path: str) -> Stream:
        """One stream for all the files that ever have this path."""
        found = self._draws.get(path)
        if found is None:
            found = self._draws[path] = self.stream("file", path)
        return found

    def stream(self, *names: str | int) -> Stream:
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
        return await disk.call(
            lambda: disk.transfers.read(inode, size, offset), what, draws=inode.draws
        )

    async def pwrite(self, data: bytes, offset: int) -> int:
        disk, inode = self._usable()

        def cut_off(fate: Stream) -> None:
            boundaries = (offset + len(data)) // PAGE_BYTES - offset // PAGE_BYTES
            reached = fate.below(boundaries + 1)
            if reached:
                end = (offset // PAGE_BYTES + reached) * PAGE_BYTES
                disk.transfers.write(inode, data[: end - offset], offset)

        return await disk.call(
            lambda: disk.transfers.write(inode, data, offset),
            f"write {self._path} at {offset}",
            content=data,
            draws=inode.draws,
            cut_off=cut_off,
        )

    async def truncate(self, size: int) -> None:
        disk, inode = self._usable()
        what = f"truncate {self._path} to {size} B"
        await disk.call(lambda: disk.transfers.truncate(inode, size), what, draws=inode.draws)

    async def size(self) -> int:
        disk, inode = self._usable()
        what = f"size of {self._path}"
        return await disk.call(lambda: len(inode.cached), what, draws=inode.draws)

    async def sync(self) -> None:
        disk, inode = self._usable()
        what = f"sync {self._path}"
        await disk.call(lambda: disk.transfers.sync(inode), what, draws=inode.draws, syncs=True)

    async def close(self) -> None:
        """Closing twice is harmless."""
        if not self._closed and self._life == self._disk.life:
            self._closed = True
            disk, inode, handle = self._disk, self._inode, self._handle
            what = f"close {self._path}"
            await disk.call(lambda: disk.handles.close(handle), what, draws=inode.draws)

    def _usable(self) -> tuple[SimDisk, Inode]:
        if self._closed or self._life != self._disk.life:
            raise OSError(errno.EBADF, "the file is closed")
        return self._disk, self._inode
