"""Page files: where the messages of a queue are while memory is short.

They are scratch of one life of the broker. What must survive is in the journal, so a page file is
never synced and never read by a later life, and a transient message that was paged is gone after a
restart like any other. A record is ``length 4 | crc32 4 | payload``; a file is deleted when no
message in it is wanted any more (RabbitMQ's message store rewrites its files instead). All of a
node's are in one directory; what a former life left there is deleted when the first page is
written.
"""

from __future__ import annotations

import asyncio
import errno
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from shalott.broker.base.disk import Disk, File, Opens, Readable
from shalott.broker.base.errors import StorageError

DIRECTORY = "pages"
FILE_BYTES = 16 << 20  # as msg_store_file_size_limit
HEADER = struct.Struct(">II")  # payload length, crc


class Page(NamedTuple):
    """Where a record is, its header included."""

    file: int
    offset: int
    end: int


class Run(NamedTuple):
    """So many records that stand one behind the other."""

    file: int
    offset: int
    end: int
    records: int


class PageStore:
    """The page files of a node. One for each life of its broker."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._lives = 0
        self._swept: asyncio.Task[None] | None = None

    def files_of(self, name: str) -> PageFiles:
        """For one life of the queue ``name``: no two share a file."""
        self._lives += 1
        return PageFiles(self, f"{DIRECTORY}/{name}.{self._lives}")

    async def sweep(self) -> None:
        """Delete what a former life left; once. Raises OSError."""
        if self._swept is None:
            self._swept = asyncio.create_task(self._sweep(), name="sweep of pages")
        await asyncio.shield(self._swept)

    async def _sweep(self) -> None:
        for name in await self.disk.listdir(DIRECTORY):
            await self.disk.remove(f"{DIRECTORY}/{name}")


class PageFiles:
    """Of one queue. ``write``, ``tidy`` and ``remove_all`` are for one task at a time."""

    def __init__(self, store: PageStore, path: str) -> None:
        self._store = store
        self._path = path
        self._number = 0
        self._current: File | None = None
        self._size = 0  # of the current file
        self._live: dict[int, int] = {}  # file -> records in it that are wanted
        self._pins = 0

    @property
    def has_dead(self) -> bool:
        """Whether ``tidy`` would delete something."""
        return not self._pins and 0 in self._live.values()

    async def write(self, records: Sequence[bytes]) -> list[Page]:
        """Append; where they are, in order. Raises OSError, with nothing taken."""
        await self._store.sweep()
        if self._current is None or self._size >= FILE_BYTES:
            await self._next_file()
        assert self._current is not None
        pages: list[Page] = []
        parts: list[bytes] = []
        offset = self._size
        for record in records:
            page = Page(self._number, offset, offset + HEADER.size + len(record))
            pages.append(page)
            parts += (HEADER.pack(len(record), zlib.crc32(record)), record)
            offset = page.end
        data, written = b"".join(parts), 0
        while written < len(data):
            count = await self._current.pwrite(data[written:], self._size + written)
            if count <= 0:
                raise OSError(errno.EIO, "the disk takes no more bytes and gives no reason")
            written += count
        self._size = offset
        self._live[self._number] = self._live.get(self._number, 0) + len(pages)
        return pages

    async def _next_file(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            await current.close()
        self._number += 1
        self._current = await self._store.disk.open(self.name(self._number), create=True)
        await self._current.truncate(0)
        self._size = 0

    def name(self, number: int) -> str:
        return f"{self._path}.{number}"

    def release(self, file: int, count: int = 1) -> None:
        """So many records of ``file`` are not wanted any more."""
        self._live[file] -= count
        assert self._live[file] >= 0, "a page is released once"

    def pin(self) -> None:
        """Keep everything, wanted or not, until ``unpin``: a snapshot reads an older state."""
        self._pins += 1

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    def unpin(self) -> None:
        self._pins -= 1

    async def tidy(self) -> None:
        """Delete the files in which nothing is wanted. Raises OSError."""
        if self._pins:
            return
        for number in [number for number, live in self._live.items() if not live]:
            del self._live[number]
            if number == self._number:
                current, self._current = self._current, None
                if current is not None:
                    await current.close()
            await self._store.disk.remove(self.name(number))

    async def remove_all(self) -> None:
        """The queue's life is over."""
        current, self._current = self._current, None
        numbers, self._live = list(self._live), {}
        if self._number and self._number not in numbers:
            numbers.append(self._number)  # a first write that failed left it empty
        with suppress(OSError):
            if current is not None:
                await current.close()
        for number in numbers:
            with suppress(OSError):
                await self._store.disk.remove(self.name(number))

    def reader(self, disk: Opens | None = None) -> PageReader:
        return PageReader(self._store.disk if disk is None else disk, self, disk)


class PageReader:
    """Reads records, with one file open at a time. For one task at a time."""

    def __init__(self, disk: Opens, files: PageFiles, other: Opens | None = None) -> None:
        """``other``: the disk, if it is not the queue's own."""
        self._disk = disk
        self.other = other
        self._files = files
        self._open: tuple[int, Readable] | None = None

    async def read(self, run: Run) -> list[bytes]:
        """The records of ``run``. Raises StorageError if they are not what was written."""
        name = self._files.name(run.file)
        try:
            file = await self._file(run.file)
            data = b""
            while len(data) < run.end - run.offset:
                size, offset = run.end - run.offset - len(data), run.offset + len(data)
                chunk = await file.pread(size, offset)
                if not chunk:
                    raise StorageError(f"{name}: it ends at byte {offset}")
                data += chunk
        except OSError as error:
            raise StorageError(f"{name}: {error.strerror or error}") from error
        records = _split(data)
        if records is None or len(records) != run.records:
            raise StorageError(f"{name}: what is at byte {run.offset} is not what was written")
        return records

    async def _file(self, number: int) -> Readable:
        if self._open is None or self._open[0] != number:
            await self.close()
            file = await self._disk.open(self._files.name(number), create=False)
            self._open = number, file
        return self._open[1]

    async def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            with suppress(OSError):
                await opened[1].close()


def _split(data: bytes) -> list[bytes] | None:
    records, offset = [], 0
    while offset < len(data):
        if len(data) - offset < HEADER.size:
            return None
        length, crc = HEADER.unpack_from(data, offset)
        record = data[offset + HEADER.size : offset + HEADER.size + length]
        if len(record) != length or zlib.crc32(record) != crc:
            return None
        records.append(record)
        offset += HEADER.size + length
    return records


def runs_of(pages: Sequence[Page]) -> list[Run]:
    """The same records, in the same order, in as few runs as that takes."""
    runs: list[Run] = []
    for page in pages:
        last = runs[-1] if runs else None
        if last is not None and last.file == page.file and last.end == page.offset:
            runs[-1] = Run(last.file, last.offset, page.end, last.records + 1)
        else:
            runs.append(Run(page.file, page.offset, page.end, 1))
    return runs
