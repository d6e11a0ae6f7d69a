"""KeyIndex: which messages have a key; the files of the index, and the one that is being filled.

Source: store/index/IndexService.java. The index follows dispatch, as the consume queues do, but
nothing waits for it: a stretch that was dispatched is handed to it, and what it missed (after a
start, or while a disk is slow or full) its own task reads from the log again.

A file is written when it is full, or knows ``SPAN_BYTES_MAX`` of the log, and then never changes.
What a crash takes is the one that was being filled: the index goes on where its last file ends, so
it reads little again. Files may go before the log does, never after: a truncation of the log
removes what knows the part that is cut, durably, before the log is cut, and a start removes what
knows more than the log that a power loss has left. So no file speaks of messages of another
history; and if one did, every message is compared with the key before it is handed out.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress

from shalott.broker.base.disk import Disk, File
from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.files import replace_file
from shalott.broker.base.journal import NO_ROOM, sync_parents
from shalott.broker.rocket.commitlog.api import FoundByKey, MessageLog, Scanned
from shalott.broker.rocket.commitlog.codec import store_ms_at
from shalott.broker.rocket.commitlog.index_file import (
    HEADER,
    GrowingIndex,
    IndexHeader,
    Read,
    decode_header,
    find_offsets,
    hash_of,
    keys_of,
)
from shalott.broker.rocket.commitlog.log_reads import message_at
from shalott.broker.rocket.commitlog.waiters import Waiters

log = logging.getLogger("shalott.broker.commitlog")

# Not in upstream's index/, whose files know other hashes: it would take ours for its own.
DIRECTORY = "keyindex"
NAME_DIGITS = 20
# Named by where they begin; one may not have been renamed yet.
_OURS = re.compile(r"[0-9]{20}(\.new)?")
SPAN_BYTES_MAX = 64 << 20  # of the log in one file: what is read again after a crash
SCAN_BYTES = 128 << 10
FULL_MAX = 4  # files that wait to be written; then the index falls behind
RETRY_MS = 500


class KeyIndex:
    """Made by ``open``. ``position`` is up to where it knows the log."""

    def __init__(self, disk: Disk, slots: int, entries: int, files: list[IndexHeader]) -> None:
        """Use ``open``."""
        self.failure_listener: Callable[[StorageError], None] = lambda error: None
        self._disk = disk
        self._slots = slots
        self._entries = entries
        self._files = files  # in the order of the log
        self._full: list[GrowingIndex] = []  # to be written, in order
        self._growing: GrowingIndex | None = None
        self.position = files[-1].end if files else 0
        self._held = asyncio.Lock()  # by a file that is written or removed, a stretch that is read
        self._wanted = asyncio.Event()
        self._waiters = Waiters()
        self._task: asyncio.Task[None] | None = None
        self._failure: StorageError | None = None

    @classmethod
    async def open(
        cls, disk: Disk, slots: int, entries: int, min_offset: int, max_offset: int
    ) -> KeyIndex:
        """What a former life left of the log that is there. Raises StorageError."""
        try:
            files = await _find_files(disk, min_offset, max_offset)
        except OSError as error:
            raise _storage_error(error) from error
        return cls(disk, slots, entries, files)

    def start(self, message_log: MessageLog, bound: Callable[[], int]) -> None:
        """Follow the log up to ``bound()``; ``dispatch`` says that it has risen."""
        self._task = asyncio.create_task(self._run(message_log, bound), name="store index")

    def dispatch(self, scanned: Scanned) -> None:
        """Take a stretch of the log that was dispatched, if it is the next; else it is read again
        later.
        """
        if self.position == scanned.base and len(self._full) < FULL_MAX:
            self._add(scanned)
        else:
            self._wanted.set()

    async def indexed(self, position: int) -> None:
        """Return when everything before ``position`` is known. Raises StorageError if it is not to
        be."""
        if position > self.position:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            await self._waiters.wait(position)

    async def find(
        self,
        message_log: MessageLog,
        topic: str,
        key: str,
        times_ms: tuple[int, int],
        *,
        end: int,
        max_messages: int,
    ) -> FoundByKey:
        """See Store.find_by_key; only messages before ``end``. Raises StorageError."""
        wanted, name = key.encode(errors="replace"), topic.encode(errors="replace")
        found: dict[int, bytes] = {}
        for source in self._newest_first():
            for offset in await self._find_in(source, hash_of(name, wanted), times_ms):
                if len(found) >= max_messages:
                    break
                if offset in found or offset >= end:
                    continue
                message = await message_at(message_log, offset)
                if message is not None and _is_wanted(message, name, wanted, times_ms):
                    found[offset] = message
        return FoundByKey(tuple(found.values()), *self._last())

    def _newest_first(self) -> list[GrowingIndex | IndexHeader]:
        growing = [] if self._growing is None else [self._growing]
        return [*growing, *self._full[::-1], *self._files[::-1]]

    def _last(self) -> tuple[int, int]:
        for source in self._newest_first():
            header = source.header() if isinstance(source, GrowingIndex) else source
            if header.entries:
                return header.end_ms, header.end_offset
        return 0, 0

    async def _find_in(
        self, source: GrowingIndex | IndexHeader, key_hash: int, times_ms: tuple[int, int]
    ) -> list[int]:
        if isinstance(source, GrowingIndex):
            return await source.find(key_hash, *times_ms)
        try:
            file = await self._disk.open(_path(source.begin), create=False)
            try:
                return await find_offsets(_reader(file), source, key_hash, *times_ms)
            finally:
                await file.close()
        except FileNotFoundError:
            return []  # removed meanwhile, with what it knew
        except OSError as error:
            raise _storage_error(error) from error

    # -- the log is cut, from either end -----------------------------------------------------------

    async def cut(self, offset: int) -> None:
        """Forget what is known of the log from ``offset`` on, durably. Raises StorageError."""
        async with self._held:
            if self._growing is not None and self._growing.end > offset:
                self._growing = None
            self._full = [full for full in self._full if full.end <= offset]
            while self._files and self._files[-1].end > offset:
                await self._remove(self._files.pop())
            kept = self._newest_first()
            self.position = kept[0].end if kept else 0
        gone = StorageError(f"the log is cut to {offset}")
        self._waiters.refuse(gone, beyond=offset)
        self._wanted.set()

    async def forget_before(self, offset: int) -> None:
        """The log begins at ``offset``. Raises StorageError."""
        async with self._held:
            while self._files and self._files[0].end <= offset:
                await self._remove(self._files.pop(0))

    async def _remove(self, header: IndexHeader) -> None:
        try:
            await _remove_files(self._disk, [_path(header.begin)])
        except OSError as error:
            raise _storage_error(error) from error

    # -- filling -----------------------------------------------------------------------------------

    def _add(self, scanned: Scanned) -> None:
        data, base = scanned.data, scanned.base
        growing = self._growing or self._grow(base)
        for start, size in scanned.spans:
            topic, keys = keys_of(data, start)
            if not keys:
                continue
            store_ms = store_ms_at(data, start)
            for key in keys:
                growing.add(hash_of(topic, key), base + start, store_ms)
            if growing.entries >= self._entries:
                growing = self._roll(growing, base + start + size)
        growing.end = self.position = scanned.next
        if growing.end - growing.begin >= SPAN_BYTES_MAX:
            self._roll(growing, growing.end)
        self._waiters.wake(self.position)

    def _grow(self, begin: int) -> GrowingIndex:
        self._growing = GrowingIndex(begin, self._slots)
        return self._growing

    def _roll(self, full: GrowingIndex, end: int) -> GrowingIndex:
        full.end = end
        self._full.append(full)
        self._wanted.set()
        return self._grow(end)

    async def _run(self, message_log: MessageLog, bound: Callable[[], int]) -> None:
        while True:
            self._wanted.clear()
            try:
                await self._write_full()
                await self._catch_up(message_log, bound)
            except DiskFull:
                await pause_ms(RETRY_MS)
                continue
            except StorageError as error:
                self._end(error)
                self.failure_listener(error)
                return
            if not self._full:
                await self._wanted.wait()

    async def _write_full(self) -> None:
        """Raises StorageError; DiskFull: later, perhaps."""
        while self._full:
            async with self._held:
                if not self._full:
                    return  # cut off meanwhile
                full = self._full[0]
                try:
                    await replace_file(self._disk, _path(full.begin), full.encode())
                except OSError as error:
                    raise _storage_error(error) from error
                self._files.append(full.header())
                del self._full[0]

    async def _catch_up(self, message_log: MessageLog, bound: Callable[[], int]) -> None:
        """Read what was dispatched and not handed over. Raises StorageError."""
        while self.position < bound() and not self._full:
            async with self._held:
                position = self.position = max(self.position, message_log.min_offset)
                scanned = await message_log.scan(position, bound(), SCAN_BYTES)
                if scanned.next == position:
                    return  # the rest is not there yet, or not there any more
                if self.position == position:  # nothing was handed over meanwhile
                    self._add(scanned)
            await asyncio.sleep(0)

    def _end(self, error: StorageError) -> None:
        self._failure = self._failure or error
        self._waiters.refuse(self._failure)

    # -- the end -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._end(StorageError("the store was closed"))

    async def save(self) -> None:
        """Write what is known, for a start that has nothing to read. Raises StorageError; on a full
        disk it is read again."""
        growing = self._growing
        if growing is not None and growing.end > growing.begin:
            self._roll(growing, growing.end)
        with suppress(DiskFull):
            await self._write_full()


def _path(begin: int) -> str:
    return f"{DIRECTORY}/{begin:0{NAME_DIGITS}d}"


def _storage_error(error: OSError) -> StorageError:
    kind = DiskFull if error.errno in NO_ROOM else StorageError
    return kind(f"{DIRECTORY}: {error.strerror or error}")


def _is_wanted(message: bytes, topic: bytes, key: bytes, times_ms: tuple[int, int]) -> bool:
    its_topic, keys = keys_of(message, 0)
    begin_ms, end_ms = times_ms
    return its_topic == topic and key in keys and begin_ms <= store_ms_at(message, 0) <= end_ms


async def _find_files(disk: Disk, min_offset: int, max_offset: int) -> list[IndexHeader]:
    """Those that know the log from its beginning on without a gap; the others are removed: what
    they knew is read again. Raises OSError.
    """
    found: list[IndexHeader] = []
    stray: list[str] = []
    end = min_offset
    for name in await disk.listdir(DIRECTORY):
        if not _OURS.fullmatch(name):
            continue
        path = f"{DIRECTORY}/{name}"
        header = await _header_of(disk, path)
        if header is not None and header.begin <= end < header.end <= max_offset:
            found.append(header)
            end = header.end
        else:
            stray.append(path)
    if stray:
        log.warning("%d files of the index are of no use and removed", len(stray))
        await _remove_files(disk, stray[::-1])
    if found:
        await sync_parents(disk, _path(found[-1].begin))  # a former life may not have got so far
    return found


async def _header_of(disk: Disk, path: str) -> IndexHeader | None:
    """None if the file is not a whole one, of the name that it has. Raises OSError."""
    file = await disk.open(path, create=False)
    try:
        header = decode_header(await _reader(file)(HEADER.size, 0))
        if header is None or path != _path(header.begin) or header.file_bytes != await file.size():
            return None
        return header
    finally:
        await file.close()


def _reader(file: File) -> Read:
    async def read(size: int, offset: int) -> bytes:
        data = b""
        while len(data) < size:  # reads may be short
            part = await file.pread(size - len(data), offset + len(data))
            if not part:
                break
            data += part
        return data

    return read


async def _remove_files(disk: Disk, paths: list[str]) -> None:
    """In this order, durably."""
    for path in paths:
        await disk.remove(path)
        await disk.sync_dir(DIRECTORY)
