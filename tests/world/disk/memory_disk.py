"""A disk in memory with a page cache: what a kill and a power loss keep, and faults on demand.

``after_kill`` has everything that was written; ``after_power_loss`` has what was synced, and of
each write since then any of its sectors, as ``keep`` decides. Every call gives other tasks a turn,
so that a test can look between any two steps.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field

from shalott.broker.base.errors import StorageError

SECTOR_BYTES = 64  # small, so that small batches are torn too


@dataclass
class Inode:
    # As a reader sees them, as they were synced, and the changes between the two.

    cached: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    # Writes and truncations.
    unsynced: list[tuple[int, bytes] | int] = field(default_factory=list)

    def survivor(self, keep: Callable[[], bool]) -> bytes:
        data = bytearray(self.durable)
        for change in self.unsynced:
            if isinstance(change, int):
                if keep():
                    resize(data, change)
                continue
            offset, written = change
            for start in range(0, len(written), SECTOR_BYTES):
                if keep():
                    put(data, offset + start, written[start : start + SECTOR_BYTES])
        return bytes(data)


def resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def put(data: bytearray, offset: int, written: bytes) -> None:
    if len(data) < offset:
        resize(data, offset)
    data[offset : offset + len(written)] = written


class MemoryDisk:
    """Implements broker.base.disk.Disk.

    ``fault`` is called with the operation and the path before each operation and may raise;
    ``write_limit`` makes writes short; ``room`` is how many more bytes fit; ``delay_s`` says how
    long the next operation takes.
    """

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.operations = 0
        self.fault: Callable[[str, str], None] = lambda operation, path: None
        self.write_limit: int | None = None
        self.room: int | None = None
        self.delay_s: Callable[[], float] = lambda: 0.0

    # -- after a crash -----------------------------------------------------------------------------

    def after_kill(self) -> MemoryDisk:
        return _disk_of({path: bytes(inode.cached) for path, inode in self.names.items()})

    def after_power_loss(self, keep: Callable[[], bool]) -> MemoryDisk:
        names = self.names if keep() else self.durable_names
        return _disk_of({path: inode.survivor(keep) for path, inode in names.items()})

    # -- Disk --------------------------------------------------------------------------------------

    async def step(self, operation: str, path: str) -> None:
        self.operations += 1
        await asyncio.sleep(self.delay_s())
        self.fault(operation, path)

    async def open(self, path: str, *, create: bool) -> MemoryFile:
        _check(path)
        await self.step("open", path)
        if path not in self.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.names[path] = Inode()
        return MemoryFile(self, path, self.names[path])

    async def rename(self, source: str, target: str) -> None:
        _check(source, target)
        await self.step("rename", source)
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.names[target] = self.names.pop(source)

    async def remove(self, path: str) -> None:
        _check(path)
        await self.step("remove", path)
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self.names[path]

    async def sync_dir(self, path: str) -> None:
        _check(path)
        await self.step("sync_dir", path)
        for names, others in (
            (self.names, self.durable_names),
            (self.durable_names, self.names),
        ):
            for name in [name for name in names if _directory(name) == path]:
                if names is self.names:
                    self.durable_names[name] = self.names[name]
                elif name not in others:
                    del self.durable_names[name]

    async def listdir(self, path: str) -> list[str]:
        _check(path)
        await self.step("listdir", path)
        prefix = f"{path}/" if path else ""
        below = [name[len(prefix) :] for name in self.names if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in below})

    async def free_bytes(self) -> int:
        return 1 << 30 if self.room is None else self.room


class MemoryFile:
    """Implements broker.base.disk.File."""

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._closed = False

    async def pread(self, size: int, offset: int) -> bytes:
        await self._step("pread")
        return bytes(self._inode.cached[offset : offset + size])

    async def pwrite(self, data: bytes, offset: int) -> int:
        await self._step("pwrite")
        taken = data[: self._disk.write_limit]
        if self._disk.room is not None:
            if self._disk.room == 0:
                raise OSError(errno.ENOSPC, "no space left on device")
            taken = taken[: self._disk.room]
            self._disk.room -= len(taken)
        put(self._inode.cached, offset, taken)
        self._inode.unsynced.append((offset, taken))
        return len(taken)

    async def truncate(self, size: int) -> None:
        await self._step("truncate")
        if self._disk.room is not None:
            self._disk.room += max(0, len(self._inode.cached) - size)
        resize(self._inode.cached, size)
        self._inode.unsynced.append(size)

    async def size(self) -> int:
        await self._step("size")
        return len(self._inode.cached)

    async def sync(self) -> None:
        await self._step("sync")
        self._inode.durable = bytes(self._inode.cached)
        self._inode.unsynced.clear()

    async def close(self) -> None:
        self._closed = True

    async def _step(self, operation: str) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed")
        await self._disk.step(operation, self._path)


def _disk_of(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    for path, data in files.items():
        disk.names[path] = disk.durable_names[path] = Inode(bytearray(data), data)
    return disk


def _directory(name: str) -> str:
    return name.rpartition("/")[0]


def _check(*paths: str) -> None:
    for path in paths:
        if path.startswith("/") or ".." in path.split("/"):
            raise StorageError(f"{path!r} leads out of the node's directory")
