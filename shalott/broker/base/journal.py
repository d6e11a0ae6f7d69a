"""Journal: an append-only file of records with group commit and atomic replacement.

``append`` takes a record into memory and returns its *mark*: the count of records appended since
the journal was opened. ``flush`` makes all that was appended so far durable. Callers that flush
while a flush is under way share the next one: records are written in batches (see
broker/base/batches.py), one sync each, by one task that lives only while there is work. ``rewrite``
replaces all that was appended before it by a new file: written beside the old one, synced, renamed
over it, the directory synced. A crash at any step leaves either file whole.

Failures. A full disk (ENOSPC) raises DiskFull: the file is cut back to its last whole batch, the
records stay in memory, and a later flush tries again. Any other error of a write or sync, and any
error after a rename, is final: every append and flush from then on raises StorageError, and the
node should crash itself, because the kernel may have dropped the pages that it could not write (a
second fsync that succeeds would prove nothing).
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing, suppress

from shalott.broker.base.batches import (
    MAX_BATCH_BYTES,
    MAX_RECORD_BYTES,
    Scanner,
    TakeBatch,
    encode_batch,
    read_batches,
)
from shalott.broker.base.disk import Disk, File, Opens, SyncError, write_all, write_and_sync
from shalott.broker.base.errors import DiskFull, StorageError

log = logging.getLogger("shalott.broker.storage")

# What replaces a journal. It is gone through once, and the loop runs on meanwhile.
Records = Iterable[bytes] | AsyncGenerator[bytes, None]

READ_BYTES = 8 << 20
MAX_BATCH_RECORDS = 256  # what encodes a batch does so at one go, while others wait
# Of a replacement, which is synced once: what a reader of a part must read (``Journal.read``).
REPLACEMENT_BATCH_BYTES = 1 << 20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
REPLACEMENT_SUFFIX = ".new"


class Rewrite:
    """A replacement in the line of things to write.

    Records before it are superseded, those after it are not.
    """

    __slots__ = ("done", "records")

    def __init__(self, records: Records, done: asyncio.Future[None]) -> None:
        self.records = records
        self.done = done


class Journal:
    """One journal file. Made by ``open``."""

    def __init__(
        self, disk: Disk, path: str, file: File, found: Scanner, records: list[bytes]
    ) -> None:
        """Use ``open``."""
        self._disk = disk
        self._path = path
        self._file = file
        self._recovered = records
        self._size = found.size
        self._ordinal = found.batches
        self.mark = 0
        self.durable_mark = 0
        self._pending: deque[bytes | Rewrite] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._failure: StorageError | None = None
        self._closed = False

    @classmethod
    async def open(cls, disk: Disk, path: str, take: TakeBatch | None = None) -> Journal:
        """Open or create.

        ``take`` gets what is found, as it is read; without it ``replay`` returns all of it. A torn
        tail is cut off. Raises StorageError if the file is corrupted, or can't be read.
        """
        records: list[bytes] = []
        scanner = Scanner(take or (lambda found, start, end: records.extend(found)))
        try:
            with suppress(FileNotFoundError):
                await disk.remove(path + REPLACEMENT_SUFFIX)
            file = await disk.open(path, create=True)
            try:
                await _recover(file, path, scanner)
                await sync_parents(disk, path)
            except BaseException:
                await file.close()
                raise
        except OSError as error:
            raise _storage_error(path, error) from error
        return cls(disk, path, file, scanner, records)

    def replay(self) -> list[bytes]:
        """The records found at ``open``, oldest first.

        They are handed over: a second call returns nothing.
        """
        records, self._recovered = self._recovered, []
        return records

    async def read(self, start: int, end: int, disk: Opens | None = None) -> list[bytes]:
        """The records of whole batches, where ``take`` was told that they are, until something
        replaces the file. ``disk``: another one with the same file. Raises StorageError."""
        self._require_usable()
        data = b""
        try:
            file = self._file if disk is None else await disk.open(self._path, create=False)
            while len(data) < end - start:
                piece = await file.pread(end - start - len(data), start + len(data))
                if not piece:
                    raise StorageError(f"{self._path}: it ends at byte {start + len(data)}")
                data += piece
            return read_batches(data)
        except OSError as error:
            raise _storage_error(self._path, error) from error

    @property
    def size(self) -> int:
        """Bytes of the file's whole batches."""
        return self._size

    def append(self, record: bytes) -> int:
        """Take a record; returns its mark.

        It is durable after a flush. Raises StorageError after a final failure.
        """
        self._require_usable()
        assert len(record) <= MAX_RECORD_BYTES
        self._pending.append(record)
        self.mark += 1
        return self.mark

    async def flush(self) -> None:
        """Return when everything appended before this call is durable.

        Raises DiskFull or StorageError.

        Cancelling it does not cancel the write.
        """
        self._require_usable()
        if self.durable_mark < self.mark:
            await self.begin_flush()

    def begin_flush(self) -> asyncio.Future[None]:
        """``flush`` for who doesn't await it: what is returned is done when it would return."""
        self._require_usable()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self.mark, waiter))
        self._start_writing()
        return waiter

    async def rewrite(self, records: Records) -> None:
        """Replace everything appended before this call by ``records``; what is appended after it
        follows them.

        ``records`` is consumed a batch at a time while the loop runs on: it must not change. Raises
        DiskFull, with the old file in force, or StorageError.
        """
        await self.begin_rewrite(records)

    def begin_rewrite(self, records: Records) -> asyncio.Future[None]:
        """``rewrite`` for who doesn't await it: what is returned is done when it would return."""
        self._require_usable()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(Rewrite(records, done))
        self._start_writing()
        return done

    async def close(self) -> None:
        """Flush and close. Raises what ``flush`` raises, with the file closed all the same."""
        if self._closed:
            return
        try:
            if self._failure is None:
                await self.flush()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Close without flushing, after the batch that may be under way."""
        self._closed = True
        while self._writing is not None:
            await asyncio.wait([self._writing])
        self._settle(StorageError(f"{self._path} was closed"))
        with suppress(OSError):
            await self._file.close()

    # -- writing -----------------------------------------------------------------------------------

    def _require_usable(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._closed:
            raise StorageError(f"{self._path} is closed")

    def _start_writing(self) -> None:
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name=f"journal {self._path}")
            self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        """The writing task ended. However it ended, no caller may be left waiting."""
        self._writing = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            # Never a DiskFull: that would promise that a later flush may succeed.
            self._failure = StorageError(str(_storage_error(self._path, error)))
            log.error("%s", self._failure)
            self._settle(self._failure)
        elif not self._closed and self._is_awaited():
            self._start_writing()

    def _is_awaited(self) -> bool:
        return bool(self._waiters) or any(isinstance(item, Rewrite) for item in self._pending)

    async def _write_all(self) -> None:
        """Write what is pending, in order, until nothing is."""
        try:
            while self._pending and not self._closed:
                head = self._pending[0]
                if isinstance(head, Rewrite):
                    await self._replace(head)
                else:
                    await self._write_batch()
        except DiskFull as error:
            log.warning("%s", error)
            self._settle(error)

    def _settle(self, error: StorageError) -> None:
        """Fail everyone who waits.

        Records stay pending, rewrites don't: their snapshots would grow stale.
        """
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
        for item in self._pending:
            if isinstance(item, Rewrite) and not item.done.done():
                item.done.set_exception(error)
        self._pending = deque(item for item in self._pending if not isinstance(item, Rewrite))

    async def _write_batch(self) -> None:
        records = list(_take_batch(self._pending, MAX_BATCH_BYTES))
        data = encode_batch(self._ordinal, records)
        try:
            await write_and_sync(self._file, data, self._size)
        except OSError as error:
            if isinstance(error, SyncError) or error.errno not in NO_ROOM:
                raise
            await self._file.truncate(self._size)
            raise DiskFull(f"{self._path}: {error.strerror}") from error
        self._size += len(data)
        self._ordinal += 1
        for _ in records:
            self._pending.popleft()
        self.durable_mark += len(records)
        self._wake()

    def _wake(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.durable_mark:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _replace(self, rewrite: Rewrite) -> None:
        """The head of the line is ``rewrite``: all records before it are written already."""
        path = self._path + REPLACEMENT_SUFFIX
        file = await self._disk.open(path, create=True)
        try:
            size, ordinal = await self._write_replacement(file, rewrite.records)
        except OSError as error:
            await file.close()
            if error.errno not in NO_ROOM:
                raise
            await self._disk.remove(path)
            self._pending.popleft()
            if not rewrite.done.done():
                rewrite.done.set_exception(DiskFull(f"{path}: {error.strerror}"))
            return
        await self._disk.rename(path, self._path)
        await sync_parents(self._disk, self._path)
        old, self._file = self._file, file
        self._size, self._ordinal = size, ordinal
        await old.close()
        self._pending.popleft()
        if not rewrite.done.done():
            rewrite.done.set_result(None)

    async def _write_replacement(self, file: File, records: Records) -> tuple[int, int]:
        """Returns the size and the count of batches.

        One sync is enough: no reader opens this file before the rename.
        """
        await file.truncate(0)
        size = ordinal = 0
        async with aclosing(_batches_of(records)) as batches:
            async for batch in batches:
                data = encode_batch(ordinal, batch)
                await write_all(file, data, size)
                size += len(data)
                ordinal += 1
        await file.sync()
        return size, ordinal


def _take_batch(items: Iterable[bytes | Rewrite], most_bytes: int) -> Iterator[bytes]:
    """Records for one batch, at least one; takes none from ``items`` beyond the last that it
    yields.
    """
    size = 0
    for count, item in enumerate(items, start=1):
        if isinstance(item, Rewrite):
            return
        yield item
        size += len(item)
        if size >= most_bytes or count >= MAX_BATCH_RECORDS:
            return


async def _batches_of(records: Records) -> AsyncGenerator[list[bytes], None]:
    if isinstance(records, Iterable):
        source = iter(records)
        for first in source:
            yield list(_take_batch(itertools.chain([first], source), REPLACEMENT_BATCH_BYTES))
        return
    batch: list[bytes] = []
    size = 0
    async with aclosing(records):
        async for record in records:
            batch.append(record)
            size += len(record)
            if size >= REPLACEMENT_BATCH_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


async def _recover(file: File, path: str, scanner: Scanner) -> None:
    """Read the file, cut off its torn tail, write the last batch anew, and sync.

    What the last life wrote may be in the page cache only. A sync alone would not save it: after a
    sync that failed the kernel calls those pages clean, and a page must be dirty to be saved. That
    is true of the last batch alone: none is written before the one before it was synced.
    """
    offset = 0
    try:
        while piece := await file.pread(READ_BYTES, offset):
            offset += len(piece)
            scanner.feed(piece)
        scanner.finish()
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from error
    if scanner.size < offset:
        log.warning("%s: cut off a torn tail of %d bytes", path, offset - scanner.size)
        await file.truncate(scanner.size)
    # The same bytes at the same place: whichever part a crash leaves, the file is the same.
    await write_all(file, scanner.last, scanner.size - len(scanner.last))
    await file.sync()


async def sync_parents(disk: Disk, path: str) -> None:
    """Make the name ``path`` durable, and the names of the directories above it."""
    parts = path.split("/")[:-1]
    for depth in range(len(parts), -1, -1):
        await disk.sync_dir("/".join(parts[:depth]))


def _storage_error(path: str, error: BaseException) -> StorageError:
    if isinstance(error, StorageError):
        return error
    if not isinstance(error, OSError):
        return StorageError(f"{path}: {error!r}")
    kind = DiskFull if error.errno in NO_ROOM else StorageError
    return kind(f"{path}: {error.strerror or error}")
