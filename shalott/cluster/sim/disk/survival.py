"""Survival: what a power loss at this instant would leave on a simulated disk, at the least."""

from __future__ import annotations

from shalott.cluster.sim.disk.names import Directory, Entry, Tree, split
from shalott.cluster.sim.disk.page_cache import Inode

TAIL_BYTES = 1 << 14  # what was written last is looked for there first


class Survival:
    """Of one disk. It changes nothing, takes no time, and reads no more than it is asked for.

    Nothing is held against a disk for what a fault did to its bytes: a file with rotten ones, and
    every file of a disk that was emptied, counts as keeping what it is asked for.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._parts: dict[str, list[str]] = {}  # of paths that were asked for
        self.lost_ns = -1  # when the power went last
        self.emptied = False
        self.rotted = False  # at any time: what a fault has damaged may be set aside by now

    def keeps(self, path: str, begin: int, end: int) -> bool:
        """Whether these bytes of the file, as programs see them, would be there."""
        wanted = self.seen(path, begin, end)
        return len(wanted) == end - begin and self.keeps_bytes(path, begin, wanted)

    def keeps_bytes(self, path: str, begin: int, wanted: bytes) -> bool:
        if self.emptied:
            return True
        outcomes = self._outcomes(path)
        for one in outcomes:
            if not _keeps(one, begin, wanted):
                return False
        return bool(outcomes)

    def keeps_text(self, path: str, text: bytes) -> bool:
        """Whether a file with ``text`` in it would be there: near its end, most likely."""
        outcomes = self._outcomes(path)
        return (
            self.emptied
            or bool(outcomes)
            and all(
                one.rotten_bytes
                or ((at := _last(one.durable, text)) >= 0 and _keeps(one, at, text))
                for one in outcomes
            )
        )

    def is_damaged(self, path: str) -> bool:
        """Whether a fault may have changed what is seen there."""
        inode = self._file(path)
        return self.emptied or (inode is not None and inode.rotten_bytes > 0)

    def seen(self, path: str, begin: int, end: int) -> bytes:
        """These bytes as programs see them; fewer where the file is shorter, or is not there."""
        inode = self._file(path)
        return b"" if inode is None else bytes(inode.cached[begin:end])

    def may_return(self, path: str, begin: int) -> bool:
        """Whether programs see other bytes than zeros from ``begin`` on, or might after a power
        loss. The next TAIL_BYTES are looked at."""
        end = begin + TAIL_BYTES
        return not self.emptied and any(
            any(content[begin:end])
            for one in self._outcomes(path)
            if not one.rotten_bytes
            for content in (one.cached, one.durable)
        )

    def durable_size(self, path: str) -> int:
        """How long the file would be at least; -1: it might not be there."""
        sizes = [
            min([len(one.durable), *(cut for cut in one.unsynced if isinstance(cut, int))])
            for one in self._outcomes(path)
        ]
        return min(sizes, default=-1)

    def names(self, path: str) -> list[str]:
        """Of what is in the directory now, sorted."""
        try:
            return sorted(self._tree.find_directory(path).cached)
        except OSError:
            return []

    def _file(self, path: str, *, durable: bool = False) -> Inode | None:
        """Where the name leads now, or would after a power loss that nothing unsynced survives."""
        parts = self._parts.get(path)
        if parts is None:
            parts = self._parts[path] = split(path)
        found: Entry | None = self._tree.root
        for name in parts:
            if type(found) is not Directory:
                return None
            found = found.durable.get(name) if durable else found.cached.get(name)
        return found if type(found) is Inode else None

    def _outcomes(self, path: str) -> list[Inode]:
        """What the name may lead to: while a rename is not synced, to the old file or the new one.
        Nothing, if it may lead nowhere."""
        durable = self._file(path, durable=True)
        if durable is None:
            return []
        # Where all names are synced, the cache has the same.
        cached = self._file(path) if self._tree.unsynced else durable
        return [durable] if cached is None or cached is durable else [durable, cached]


def _keeps(inode: Inode, begin: int, wanted: bytes) -> bool:
    if inode.rotten_bytes:
        return True
    end = begin + len(wanted)
    if inode.durable[begin:end] != wanted:
        return False
    unsynced = inode.unsynced
    return not unsynced or not any(_may_change(one, begin, end, wanted) for one in unsynced)


def _last(content: bytearray, text: bytes) -> int:
    tail = max(0, len(content) - TAIL_BYTES)
    at = content.rfind(text, tail)
    return at if at >= 0 or not tail else content.rfind(text)


def _may_change(operation: int | tuple[int, bytes], begin: int, end: int, kept: bytes) -> bool:
    """Whether the bytes may be others once ``operation`` is found done. The same bytes written
    again change nothing."""
    if isinstance(operation, int):
        return operation < end
    at, data = operation
    low, high = max(at, begin), min(at + len(data), end)
    return low < high and data[low - at : high - at] != kept[low - begin : high - begin]
