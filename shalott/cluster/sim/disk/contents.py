"""What calls and faults do to the bytes of a simulated disk: its space, the handles on its files,
the transfers to and from them, and their rot.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping

from shalott.cluster.corruption import FaultAtlas, choose_bit
from shalott.cluster.nodes import SOUND_DISK, DiskFaults
from shalott.cluster.sim.disk.names import Tree
from shalott.cluster.sim.disk.page_cache import Inode
from shalott.core.rng import Stream

SHORT_PROBABILITY = 0.5
FULL_SLACK_BYTES = 4096  # what still fits, at most, when a disk is made full

StreamOf = Callable[..., Stream]  # a disk's random stream of these names


class Space:
    """How much of a disk is used, and what is left of it."""

    def __init__(self, capacity_bytes: int) -> None:
        self.used_bytes = 0
        self._capacity_bytes = capacity_bytes
        self._full_at_bytes: int | None = None

    @property
    def room_bytes(self) -> int:
        limit = self._capacity_bytes
        if self._full_at_bytes is not None:
            limit = min(limit, self._full_at_bytes)
        return max(0, limit - self.used_bytes)

    def fill(self, draws: Stream) -> None:
        """Make the disk full, but for a few bytes."""
        self._full_at_bytes = self.used_bytes + draws.below(FULL_SLACK_BYTES)

    def restore(self) -> None:
        self._full_at_bytes = None


class Handles:
    """The files that programs have open. One without a name is freed with its last handle."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._open: dict[int, Inode] = {}
        self._numbers = 0

    def open(self, inode: Inode) -> int:
        self._numbers += 1
        self._open[self._numbers] = inode
        inode.opens += 1
        return self._numbers

    def close(self, handle: int) -> None:
        inode = self._open.pop(handle)
        inode.opens -= 1
        self._free_if_unused(inode)

    def close_all(self) -> None:
        for inode in self._open.values():
            inode.opens = 0
            self._free_if_unused(inode)
        self._open.clear()

    def unlinked(self, inode: Inode) -> None:
        """It has no name any more."""
        inode.linked = False
        self._free_if_unused(inode)

    def _free_if_unused(self, inode: Inode) -> None:
        if not inode.linked and inode.opens == 0:
            self._space.used_bytes -= len(inode.cached)


class Transfers:
    """What programs write, read and sync, as the faults in force let them."""

    def __init__(self, space: Space, shorts: Stream) -> None:
        self.faults: DiskFaults = SOUND_DISK
        self.syncs = 0
        self.sync_watchers: list[Callable[[], None]] = []  # called at every sync
        self._space = space
        self._shorts = shorts

    def write(self, inode: Inode, data: bytes, offset: int) -> int:
        taken = self._shortened(len(data)) if self.faults.short else len(data)
        # What it overwrites needs no room.
        room = self._space.room_bytes + len(inode.cached) - offset
        if data and room <= 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        taken = min(taken, room)
        before = len(inode.cached)
        inode.write(bytes(data[:taken]), offset)
        self._space.used_bytes += len(inode.cached) - before
        return taken

    def read(self, inode: Inode, size: int, offset: int) -> bytes:
        found = bytes(inode.cached[offset : offset + size])
        return found[: self._shortened(len(found))]

    def _shortened(self, size: int) -> int:
        """How much of a transfer is made; never nothing of something."""
        if not self.faults.short or size < 2 or self._shorts.random() >= SHORT_PROBABILITY:
            return size
        return 1 + self._shorts.below(size - 1)

    def truncate(self, inode: Inode, size: int) -> None:
        before = len(inode.cached)
        inode.truncate(size)
        self._space.used_bytes += len(inode.cached) - before

    def sync(self, inode: Inode) -> None:
        self.count_sync()
        if self.faults.fail_sync:
            inode.fail_sync()
            raise OSError(errno.EIO, "the disk can't write the file")
        inode.sync()

    def count_sync(self) -> None:
        self.syncs += 1
        for tell in tuple(self.sync_watchers):
            tell()


class Rot:
    """The rotten bytes of one disk. An ``atlas`` bounds those of all disks of a cluster."""

    def __init__(self, tree: Tree, atlas: FaultAtlas | None, stream: StreamOf) -> None:
        self._tree = tree
        self._atlas = atlas
        self._stream = stream
        self._times = 0
        if atlas is not None:
            atlas.attach(self)

    @property
    def bytes_by_file(self) -> Mapping[str, int]:
        """How many bytes of which files have rotted and not been replaced."""
        return {
            path: inode.rotten_bytes for path, inode in self._tree.files() if inode.rotten_bytes
        }

    def has_rot(self) -> bool:
        return bool(self.bytes_by_file)

    def has_rot_in(self, path: str) -> bool:
        return path in self.bytes_by_file

    def holds(self, path: str) -> bool:
        try:
            return self._tree.is_durable(path, self._tree.find_file(path))
        except OSError:
            return False

    def spread(self, count: int) -> None:
        """Flip a bit in each of ``count`` durable bytes, as far as the atlas lets it."""
        draws = self._stream("rot", self._times)
        self._times += 1
        candidates = list(self._candidates())
        sizes = [len(inode.durable) for inode in candidates]
        for _ in range(count if candidates else 0):
            number, position, bit = choose_bit(sizes, draws)
            candidates[number].flip(position, bit)

    def _candidates(self) -> Iterator[Inode]:
        for path, inode in self._tree.files():
            may_rot = self._atlas is None or self._atlas.allows(self, path)
            if inode.durable and self.holds(path) and may_rot:
                yield inode
