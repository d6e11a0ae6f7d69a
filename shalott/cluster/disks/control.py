"""FaultDisk: one node's disk under control: its faults, power losses, and what it has counted.

The disk is a file system of ours (faultfs.h) under the node's data directory. It is controlled by
lines of JSON, wherever it runs: ``Ask`` brings one there and its answer back: through a Unix socket
(mounting.py), or by running ``faultfs ask SOCKET`` on another host. The commands and their answers
are those of control.c; the kinds of faults are those of the simulation (cluster.nodes.DiskFaults).

Order of a power loss: first kill everything that uses the disk (kill -9), then ``power``, then
start. A process that still runs then has its handles fail with EIO, and loses what it maps.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from shalott.cluster.corruption import FaultAtlas
from shalott.cluster.nodes import SOUND_DISK, DiskFaults
from shalott.core.errors import HarnessError

Ask = Callable[[str], Awaitable[str]]
PowerLoss = Literal["keep", "drop", "torn", "all"]  # as cluster.sim.disk.page_cache.PowerLoss
T = TypeVar("T")


class DiskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the disk, in all the ways that it knows. The defaults are a sound disk.

    ``fail_count``: so many calls fail, and then none; -1: all until it is healed.
    """

    slow_ms: float = 0  # every call
    slow_sync_ms: float = 0  # syncs, besides
    full: bool = False
    short: bool = False
    fail_sync: bool = False
    fail_read: bool = False  # what the kernel has in its cache is dropped once, and read anew
    fail_write: bool = False
    fail_count: int = -1


class DiskCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Calls since it was mounted. ``failed``, ``shortened``, ``refused_for_space`` and
    ``delayed`` are what its faults have done: the proof that they were felt."""

    reads: int
    writes: int
    syncs: int  # of files and directories
    directory_syncs: int
    opens: int
    creations: int
    removals: int
    renames: int
    others: int
    failed: int
    shortened: int
    refused_for_space: int
    delayed: int
    read_bytes: int
    written_bytes: int
    synced_bytes: int
    written_back_bytes: int  # because there were too many dirty ones
    powers: int


class LostFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not all synced when the power went; sizes in bytes."""

    path: str
    unsynced: int  # written, each as often as it was
    lost: int  # bytes that were seen and are not found
    size_before: int
    size: int


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """What the last power loss took. ``names`` tells operations: "+made" "-removed" "-old +new".
    Both lists hold the first 200; the counts are of all."""

    lost_bytes: int
    lost_files: int
    lost_names: int
    names: tuple[str, ...]
    files: tuple[LostFile, ...]


class DiskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A disk now. ``dirty_names``: operations on names that no sync has made durable."""

    faults: DiskSettings
    counters: DiskCounters
    used_bytes: int
    room_bytes: int
    dirty_bytes: int
    dirty_names: int
    pid: int  # of the server
    lost: Lost


class DurableFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Paths below the root: sizes of what a power loss would leave, and how many bytes rotted."""

    files: Mapping[str, int]
    rotten: Mapping[str, int]


class _Syncs(msgspec.Struct, frozen=True, kw_only=True):
    made: bool
    syncs: int


class _Flipped(msgspec.Struct, frozen=True, kw_only=True):
    flipped: int


class FaultDisk:
    """A mounted disk. Every method raises HarnessError when the disk's server does not answer.

    ``seed``: of the disk; each fault and power loss draws by it and its number, as SimDisk does.
    """

    def __init__(self, ask: Ask, *, node: str, seed: int) -> None:
        self.node = node
        self._ask = ask
        self._seed = seed
        self._draws = 0
        self._faults = SOUND_DISK
        self._flipped = 0

    # -- looking -----------------------------------------------------------------------------------

    async def status(self) -> DiskStatus:
        return await self._command(DiskStatus, do="status")

    async def durable_files(self) -> DurableFiles:
        return await self._command(DurableFiles, do="files")

    async def faults(self) -> DiskFaults:
        """What is in force, as the disk's server says: the probe that proves disk faults."""
        seen = (await self.status()).faults
        return DiskFaults(
            slow_ms=seen.slow_ms,
            full=seen.full,
            fail_sync=seen.fail_sync,
            short=seen.short,
            corrupt_bytes=self._flipped if self._faults.corrupt_bytes else 0,
        )

    # -- faults ------------------------------------------------------------------------------------

    async def set_faults(
        self, faults: DiskFaults | None, *, others: Sequence[FaultDisk] | None = None
    ) -> None:
        """See ``cluster.parts.Disks.set``; ``others`` as ``rot`` has it."""
        wanted = SOUND_DISK if faults is None else faults
        rot_bytes = wanted.corrupt_bytes - self._faults.corrupt_bytes
        await self.set(
            DiskSettings(
                slow_ms=wanted.slow_ms,
                full=wanted.full,
                short=wanted.short,
                fail_sync=wanted.fail_sync,
            )
        )
        self._faults = wanted
        if rot_bytes > 0:
            self._flipped = await self.rot(rot_bytes, others=others)

    async def set(self, settings: DiskSettings) -> DiskStatus:
        """In place of all that was in force. Rot stays."""
        fields = msgspec.structs.asdict(settings)
        return await self._command(DiskStatus, do="faults", seed=self._next_seed(), **fields)

    async def heal(self) -> None:
        await self.set_faults(None)

    async def rot(
        self, count: int, *, pattern: str = "*", others: Sequence[FaultDisk] | None = None
    ) -> int:
        """Flip a bit in each of so many stored bytes; returns how many it could be.

        ``pattern``: of the paths of files, as shells have it. ``others``: the disks of the other
        nodes, within which rot stays a minority (cluster/corruption.py); None: rot without bounds.
        """
        own = await self._copies()
        paths = list(own.files)
        if others is not None:
            atlas = FaultAtlas()
            for copies in [own, *[await other._copies() for other in others]]:
                atlas.attach(copies)
            paths = [path for path in paths if atlas.allows(own, own.key_of(path))]
        answer = await self._command(
            _Flipped, do="rot", count=count, seed=self._next_seed(), pattern=pattern, paths=paths
        )
        return answer.flipped

    # -- power -------------------------------------------------------------------------------------

    async def power(self, loss: PowerLoss = "torn") -> DiskStatus:
        """Forget what was not synced, or tear it. Everything that used the disk must be dead."""
        return await self._command(DiskStatus, do="power", seed=self._next_seed(), loss=loss)

    async def wipe(self) -> None:
        """Remove everything, durably. No program may be using the disk."""
        await self._command(DiskStatus, do="wipe")

    # -- events ------------------------------------------------------------------------------------

    async def await_syncs(self, count: int, timeout_ms: float, *, hold: bool = False) -> bool:
        """Whether so many more syncs, of files or directories, were made in time.

        ``hold``: the last of them is done but not answered until ``release``, a power loss, or its
        caller's death: a node can be killed with the sync behind it and nothing said of it.
        """
        answer = await self._command(
            _Syncs, do="await-syncs", count=count, timeout_ms=timeout_ms, hold=hold
        )
        return answer.made

    async def release(self) -> None:
        await self._command(DiskStatus, do="release")

    # -- inside ------------------------------------------------------------------------------------

    async def _copies(self) -> _Copies:
        return _Copies(self.node, await self.durable_files())

    def _next_seed(self) -> int:
        self._draws += 1
        return (self._seed * 1_000_003 + self._draws) & ((1 << 63) - 1)

    async def _command(self, kind: type[T], **words: object) -> T:
        answer = await self._ask(msgspec.json.encode(words).decode())
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError:
            raise HarnessError(f"the disk of {self.node} answers {answer.strip()!r}") from None


class _Copies:
    """A disk as the atlas sees it; see ``cluster.corruption.Rotting``. Many programs name their
    files after their node: those of two nodes are copies of each other all the same."""

    def __init__(self, node: str, found: DurableFiles) -> None:
        self.files = found.files
        self._own_name = re.compile(rf"\b{re.escape(node)}\b")
        self._held = frozenset(map(self.key_of, found.files))
        self._rotten = frozenset(map(self.key_of, found.rotten))

    def key_of(self, path: str) -> str:
        return self._own_name.sub("{node}", path)

    def has_rot(self) -> bool:
        return bool(self._rotten)

    def has_rot_in(self, path: str) -> bool:
        return path in self._rotten

    def holds(self, path: str) -> bool:
        return path in self._held
