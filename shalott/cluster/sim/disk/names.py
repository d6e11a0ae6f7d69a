"""Tree: the directories of a simulated disk, each with the entries that are seen and those that are
durable.

Theory. Creating, renaming and removing change a directory in the cache at once, and on the disk
when the directory is synced. Until then they are in one log, in order. Syncing a directory makes
durable what concerns it, and what that rests on: a rename between two directories is one entry of
the log, so it is never half done. Syncing a file does not make its name durable, and a durable name
in a directory whose own name is not durable leads nowhere.

When the power goes, either the first few entries of the log survive (a file system with one
journal) or any of them, but none that rests on a lost one (all that POSIX promises).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple

from shalott.broker.base.errors import StorageError
from shalott.cluster.sim.disk.page_cache import Inode, PowerLoss
from shalott.core.rng import Stream


class Directory:
    """``number`` tells directories apart without asking for their addresses."""

    __slots__ = ("cached", "durable", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.cached: dict[str, Entry] = {}
        self.durable: dict[str, Entry] = {}


Entry = Inode | Directory


class Change(NamedTuple):
    """A name now leads to ``entry``, or to nothing."""

    directory: Directory
    name: str
    entry: Entry | None

    @property
    def key(self) -> tuple[int, str]:
        return self.directory.number, self.name


Operation = tuple[Change, ...]  # all of them or none


class Tree:
    """Paths are relative, with forward slashes; "" is the root, which is always durable."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.root = Directory(0)
        self._directories = 1
        self.unsynced: list[Operation] = []  # in order

    # -- looking -----------------------------------------------------------------------------------

    def find(self, path: str) -> Entry:
        """Raises FileNotFoundError, NotADirectoryError."""
        entry: Entry = self.root
        for name in split(path):
            if not isinstance(entry, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            if name not in entry.cached:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            entry = entry.cached[name]
        return entry

    def find_file(self, path: str) -> Inode:
        entry = self.find(path)
        if isinstance(entry, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return entry

    def find_directory(self, path: str) -> Directory:
        entry = self.find(path)
        if isinstance(entry, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return entry

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Every file that has a name now, in the order of the paths' parts."""
        return _walk(self.root, "")

    def is_durable(self, path: str, inode: Inode) -> bool:
        """Whether a power loss would leave ``inode`` at ``path``, log aside."""
        entry: Entry | None = self.root
        for name in split(path):
            if not isinstance(entry, Directory):
                return False
            entry = entry.durable.get(name)
        return entry is inode

    # -- changing ----------------------------------------------------------------------------------

    def make_directories(self, path: str) -> Directory:
        directory = self.root
        for name in split(path):
            entry = directory.cached.get(name)
            if entry is None:
                entry = Directory(self._directories)
                self._directories += 1
                self._change(Change(directory, name, entry))
            elif isinstance(entry, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            directory = entry
        return directory

    def link(self, directory: Directory, name: str, inode: Inode) -> None:
        self._change(Change(directory, name, inode))

    def remove(self, path: str) -> Entry:
        """A file or an empty directory; returns it."""
        entry = self.find(path)
        if entry is self.root:
            raise OSError(errno.EBUSY, "the root can't be removed", path)
        if isinstance(entry, Directory) and entry.cached:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        directory, name = self._parent(path)
        self._change(Change(directory, name, None))
        return entry

    def rename(self, source: str, target: str) -> Entry | None:
        """Returns what was replaced."""
        entry = self.find(source)
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        replaced = to_directory.cached.get(to_name)
        if replaced is entry:
            return None
        self._check_rename(entry, replaced, split(source), split(target))
        self._change(Change(from_directory, from_name, None), Change(to_directory, to_name, entry))
        return replaced

    @staticmethod
    def _check_rename(
        entry: Entry, replaced: Entry | None, source: list[str], target: list[str]
    ) -> None:
        where = "/".join(target)
        if isinstance(entry, Directory):
            if target[: len(source)] == source:
                raise OSError(errno.EINVAL, "a directory can't move into itself", where)
            if isinstance(replaced, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", where)
        elif isinstance(replaced, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", where)
        if isinstance(replaced, Directory) and replaced.cached:
            raise OSError(errno.ENOTEMPTY, "directory not empty", where)

    def _parent(self, path: str) -> tuple[Directory, str]:
        parts = split(path)
        if not parts:
            raise OSError(errno.EBUSY, "the root has no name", path)
        return self.find_directory("/".join(parts[:-1])), parts[-1]

    def _change(self, *changes: Change) -> None:
        for directory, name, entry in changes:
            _set(directory.cached, name, entry)
        self.unsynced.append(changes)

    # -- durability --------------------------------------------------------------------------------

    def sync(self, directory: Directory) -> None:
        """What concerns ``directory`` is durable now, with all that it rests on."""
        needed: dict[tuple[int, str], None] = {}
        chosen = [False] * len(self.unsynced)
        for number in range(len(self.unsynced) - 1, -1, -1):
            changes = self.unsynced[number]
            if any(change.directory is directory or change.key in needed for change in changes):
                chosen[number] = True
                needed.update((change.key, None) for change in changes)
        self._keep(chosen)
        self.unsynced = [
            changes for changes, synced in zip(self.unsynced, chosen, strict=True) if not synced
        ]

    def lose_power(self, loss: PowerLoss, fate: Stream) -> None:
        """The cache is gone; of the log survives what ``fate`` draws."""
        count = len(self.unsynced)
        if loss == "keep":
            chosen = [True] * count
        elif loss == "all":
            chosen = [False] * count
        elif loss == "drop" or fate.random() < 0.5:
            first = fate.below(count + 1)
            chosen = [number < first for number in range(count)]
        else:
            chosen = self._any_but_what_rests_on_lost(fate)
        self._keep(chosen)
        self.unsynced = []
        _forget_cache(self.root)

    def _any_but_what_rests_on_lost(self, fate: Stream) -> list[bool]:
        chosen = []
        lost: dict[tuple[int, str], None] = {}
        for changes in self.unsynced:
            keep = fate.random() < 0.5 and not any(change.key in lost for change in changes)
            if not keep:
                lost.update((change.key, None) for change in changes)
            chosen.append(keep)
        return chosen

    def _keep(self, chosen: list[bool]) -> None:
        for changes, kept in zip(self.unsynced, chosen, strict=True):
            if kept:
                for directory, name, entry in changes:
                    _set(directory.durable, name, entry)


def split(path: str) -> list[str]:
    """The names that lead to ``path``. Raises StorageError if it leads out of the tree."""
    names: list[str] = []
    if path.startswith("/"):
        raise StorageError(f"{path!r} leads out of the node's directory")
    for name in path.split("/"):
        if name == "..":
            if not names:
                raise StorageError(f"{path!r} leads out of the node's directory")
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return names


def _set(entries: dict[str, Entry], name: str, entry: Entry | None) -> None:
    if entry is None:
        entries.pop(name, None)
    else:
        entries[name] = entry


def _walk(directory: Directory, prefix: str) -> Iterator[tuple[str, Inode]]:
    for name, entry in sorted(directory.cached.items()):
        if isinstance(entry, Inode):
            yield prefix + name, entry
        else:
            yield from _walk(entry, f"{prefix}{name}/")


def _forget_cache(directory: Directory) -> None:
    directory.cached = dict(directory.durable)
    for entry in directory.cached.values():
        if isinstance(entry, Directory):
            _forget_cache(entry)
