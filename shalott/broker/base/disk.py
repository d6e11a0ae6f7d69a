"""Disk and File: the only way a node reads or writes files.

``OsDisk`` runs calls on threads of its own (the only ones in the product), so the event loop never
blocks on fsync. A simulated disk implements the same protocols with a page cache
of its own.

Durability contract, as POSIX has it: bytes are durable after ``File.sync``; a created, renamed or
removed name is durable after ``sync_dir`` of its directory. A failed ``sync`` means that the data
may be gone: crash the node.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import threading
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from shalott.broker.base.errors import StorageError

T = TypeVar("T")


class File(Protocol):
    """An open file. Offsets and sizes are bytes."""

    async def pread(self, size: int, offset: int) -> bytes:
        """At most ``size`` bytes from ``offset``; may be short; empty at the end of the file."""
        ...

    async def pwrite(self, data: bytes, offset: int) -> int:
        """Write at ``offset``; returns how many bytes were taken, which may be fewer.

        Raises OSError(ENOSPC).
        """
        ...

    async def truncate(self, size: int) -> None: ...

    async def size(self) -> int: ...

    async def sync(self) -> None: ...

    async def close(self) -> None: ...


class Disk(Protocol):
    """A directory tree that belongs to one node.

    Paths are relative, with forward slashes; "" is its root.

    A path that leads out of the tree raises StorageError.
    """

    async def open(self, path: str, *, create: bool) -> File:
        """Raises FileNotFoundError if it is absent and ``create`` is false.

        Parents are made when creating.

        What exists already is opened as it is, not truncated.
        """
        ...

    async def rename(self, source: str, target: str) -> None:
        """Atomic; replaces ``target``."""
        ...

    async def remove(self, path: str) -> None:
        """A file or an empty directory. Raises FileNotFoundError if it is absent."""
        ...

    async def sync_dir(self, path: str) -> None: ...

    async def listdir(self, path: str) -> list[str]:
        """Names, sorted; empty if the directory is absent."""
        ...

    async def free_bytes(self) -> int: ...


class Readable(Protocol):
    """Of a File, what reading takes."""

    async def pread(self, size: int, offset: int) -> bytes: ...

    async def close(self) -> None: ...


class Opens(Protocol):
    """Of a Disk, what reading takes."""

    async def open(self, path: str, *, create: bool) -> Readable: ...


class OsDisk:
    """The operating system's files below ``root``, which is made if it is absent.

    Calls of one directory run one at a time, in the order in which they were made, also when their
    callers have gone away. With several ``writers`` a sync in one directory holds up fewer others.
    """

    def __init__(self, root: Path, writers: int = 1) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self._writers = [Writer() for _ in range(writers)]

    async def close(self) -> None:
        """Wait for the calls under way and end the thread.

        Files still open stay the operating system's business.
        """
        for writer in self._writers:
            await writer.run(lambda: None)
            writer.end()

    async def open(self, path: str, *, create: bool) -> OsFile:
        def open_file() -> int:
            where = self._resolve(path)
            if create:
                where.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            return os.open(where, flags, 0o640)

        writer = self._writer_of(_directory(path))
        return OsFile(writer, await writer.run(open_file))

    async def rename(self, source: str, target: str) -> None:
        writer = self._writer_of(_directory(target))
        await writer.run(lambda: self._resolve(source).replace(self._resolve(target)))

    async def remove(self, path: str) -> None:
        def remove() -> None:
            where = self._resolve(path)
            if where.is_dir():
                where.rmdir()
            else:
                where.unlink()

        await self._writer_of(_directory(path)).run(remove)

    async def sync_dir(self, path: str) -> None:
        def sync() -> None:
            directory = os.open(self._resolve(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

        await self._writer_of(path).run(sync)

    async def listdir(self, path: str) -> list[str]:
        def names() -> list[str]:
            try:
                return sorted(os.listdir(self._resolve(path)))  # noqa: PTH208 (names, not paths)
            except FileNotFoundError:
                return []

        return await self._writer_of(path).run(names)

    async def free_bytes(self) -> int:
        def free() -> int:
            stats = os.statvfs(self._root)
            return stats.f_bavail * stats.f_frsize

        return await self._writers[0].run(free)

    def _writer_of(self, directory: str) -> Writer:
        return self._writers[zlib.crc32(directory.encode()) % len(self._writers)]

    def _resolve(self, path: str) -> Path:
        """The absolute path, symbolic links followed.

        Raises StorageError if it is outside the root.
        """
        where = (self._root / path).resolve()
        if not where.is_relative_to(self._root):
            raise StorageError(f"{path!r} leads out of the node's directory")
        return where


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


class Writer:
    """A thread that makes one call after the other, and tells the loop.

    An executor does that too, with two futures, two locks and three wake-ups for each call, which
    is more than a confirm on one node costs besides: half of it.
    """

    def __init__(self) -> None:
        self._calls = queue.SimpleQueue[Callable[[], None] | None]()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """Run ``call`` on the thread, also if the caller is cancelled meanwhile."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            tell: Callable[[], None]
            try:
                tell = partial(_succeed, future, call())
            except Exception as error:  # noqa: BLE001 - the caller's
                tell = partial(_fail, future, error)
            try:
                loop.call_soon_threadsafe(tell)
            except RuntimeError:
                pass  # the loop is closed: no one waits

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
            self._thread.start()
        self._calls.put(work)
        return await future

    def end(self) -> None:
        """After the calls under way."""
        self._calls.put(None)
        self._thread = None

    def _work(self) -> None:
        while (work := self._calls.get()) is not None:
            work()
            del work


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():  # else: its caller was cancelled
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class SyncError(OSError):
    """What was written may be gone."""


async def write_all(file: File, data: bytes, offset: int) -> None:
    """However short the writes are."""
    written = 0
    while written < len(data):
        count = await file.pwrite(data[written:] if written else data, offset + written)
        if count <= 0:
            raise OSError(errno.EIO, "the disk takes no more bytes and gives no reason")
        written += count


async def write_and_sync(file: File, data: bytes, offset: int) -> None:
    """``write_all`` and ``sync``: on an OsDisk in one call, as most of what each costs is the way
    to the thread and back. Raises SyncError if the second failed."""
    if isinstance(file, OsFile):
        await file.write_and_sync(data, offset)
        return
    await write_all(file, data, offset)
    try:
        await file.sync()
    except OSError as error:
        raise SyncError(error.errno, error.strerror) from error


class OsFile:
    """A file of an OsDisk.

    Use after ``close`` raises OSError(EBADF): its descriptor may be another file's by then.
    """

    def __init__(self, writer: Writer, descriptor: int) -> None:
        self._writer = writer
        self._descriptor = descriptor
        self._closed = False

    async def pread(self, size: int, offset: int) -> bytes:
        descriptor = self._open_descriptor()
        return await self._writer.run(lambda: os.pread(descriptor, size, offset))

    async def pwrite(self, data: bytes, offset: int) -> int:
        descriptor = self._open_descriptor()
        return await self._writer.run(lambda: os.pwrite(descriptor, data, offset))

    async def write_and_sync(self, data: bytes, offset: int) -> None:
        descriptor = self._open_descriptor()

        def write() -> None:
            written = os.pwrite(descriptor, data, offset)
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], offset + written)
            try:
                os.fdatasync(descriptor)
            except OSError as error:
                raise SyncError(error.errno, error.strerror) from error

        await self._writer.run(write)

    async def truncate(self, size: int) -> None:
        descriptor = self._open_descriptor()
        await self._writer.run(lambda: os.ftruncate(descriptor, size))

    async def size(self) -> int:
        descriptor = self._open_descriptor()
        return await self._writer.run(lambda: os.fstat(descriptor).st_size)

    async def sync(self) -> None:
        descriptor = self._open_descriptor()
        await self._writer.run(lambda: os.fdatasync(descriptor))

    async def close(self) -> None:
        """Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            await self._writer.run(lambda: os.close(self._descriptor))

    def _open_descriptor(self) -> int:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed")
        return self._descriptor
