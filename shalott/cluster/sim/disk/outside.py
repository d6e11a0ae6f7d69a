"""What others than its programs do to the files of a simulated disk, at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shalott.cluster.sim.disk.contents import Space
from shalott.cluster.sim.disk.names import Tree, split
from shalott.cluster.sim.disk.page_cache import Inode


class Outside:
    """``create`` makes a file, by the names that lead to it. All raise OSError."""

    def __init__(self, tree: Tree, space: Space, create: Callable[[list[str]], None]) -> None:
        self._tree = tree
        self._space = space
        self._create = create

    def flip_bits(self, path: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """(offset, bits) each; (before, after) of each."""
        inode = self._tree.find_file(path)
        changed = []
        for offset, bits in places:
            old = inode.cached[offset]
            inode.overwrite(bytes([old ^ bits]), offset)
            changed.append((old, old ^ bits))
        return changed

    def cut_file(self, path: str, size: int) -> None:
        """What lies behind so many bytes is gone."""
        inode = self._tree.find_file(path)
        before = len(inode.cached)
        inode.cut(size)
        self._space.used_bytes += len(inode.cached) - before

    def leave_file(self, path: str, data: bytes) -> None:
        """Make a file, and sync nothing."""
        self._create(split(path))
        inode: Inode = self._tree.find_file(path)
        before = len(inode.cached)
        inode.write(data, 0)
        self._space.used_bytes += len(inode.cached) - before

    def unsynced(self) -> dict[str, int]:
        """How many files with a durable name have writes that no sync has saved, of how many bytes;
        and how many operations on names were not synced."""
        files = (file for file in self._tree.files() if self._tree.is_durable(*file))
        dirty = [inode.unsynced for _, inode in files if inode.unsynced]
        writes = [each for own in dirty for each in own if not isinstance(each, int)]
        size = sum(len(data) for _, data in writes)
        return {"files": len(dirty), "bytes": size, "names": len(self._tree.unsynced)}
