"""Ledger: DLedger's log of entries on the disk; implements broker.raft.storage.RaftStorage.

After dledger/store/file/DLedgerMmapFileStore.java, DLedgerServer.java; docs/protocols.md 5.1, 5.3.
Entries lie one after another in a SegmentedLog, their index units in another one, and what the core
asks for at once (terms, places) is in memory (entry.py).

The core's writes are taken at once, in its order; ledger_writer.py brings them to the files.

When is an entry durable? With a flush interval of 0, when it is on the disk: the only setting with
which a majority that loses its power keeps what it acknowledged. Otherwise (upstream: 10 ms) when
it is in the operating system's hands, and a background flush follows. Term and vote are on the
disk always (but see KB-DL-21).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.raft.api import Entry, HardState, Snapshot
from shalott.broker.rocket.commitlog.log_reads import read_fully
from shalott.broker.rocket.commitlog.segment_files import NAME_DIGITS
from shalott.broker.rocket.commitlog.segments import SegmentedLog
from shalott.broker.rocket.dledger.entry import (
    HEADER_BYTES,
    Directory,
    decode_header,
    encode_entry,
    encode_unit,
    filler,
    is_sound,
    place,
)
from shalott.broker.rocket.dledger.ledger_files import (
    DATA,
    PATH,
    FoundLedger,
    encode_member_state,
    find_unchecked_terms,
    has_member_state,
    open_ledger_files,
    read_member_state,
    write_member_state,
)
from shalott.broker.rocket.dledger.ledger_writer import Addition, LedgerWriter, storage_error

log = logging.getLogger("shalott.broker.dledger")

CACHE_BYTES = 8 << 20
CHECKPOINT_INTERVAL_MS = 3000


class EntryCache:
    """The newest entries of a ledger, CACHE_BYTES of them: from ``first`` on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._entries: dict[int, Entry] = {}
        self._bytes = 0

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    def add(self, entry: Entry) -> None:
        self._entries[entry.index] = entry
        self._bytes += len(entry.data)
        while self._bytes > CACHE_BYTES:
            self._bytes -= len(self._entries.pop(self.first).data)
            self.first += 1

    def cut(self, from_index: int) -> None:
        for index in range(max(from_index, self.first), self.first + len(self._entries)):
            self._bytes -= len(self._entries.pop(index).data)
        self.first = min(self.first, from_index)


class Ledger:
    """Made by ``open``."""

    def __init__(
        self, env: Env, found: FoundLedger, hard: HardState, flush_interval_ms: int
    ) -> None:
        """Use ``open``."""
        self.path = PATH
        self.proofs = LedgerProofs(self, are_synced=not flush_interval_ms)
        # Told at once of a cut: (the end before, the end after).
        self.cut_listener: Callable[[int, int], None] = lambda before, after: None
        self.data = found.data
        self.directory: Directory = found.directory
        self._env = env
        self._index: SegmentedLog = found.index
        self.writer = LedgerWriter(env.disk, found)
        # A vote that was not durable may be older than the entries that followed it.
        last_term = found.directory.term_at(found.directory.last_index)
        self._hard = hard if hard.term >= last_term else HardState(last_term, "")
        self._unwritten_hard: HardState | None = None
        self._flush_interval_ms = flush_interval_ms
        self._cache = EntryCache(found.directory.last_index + 1)
        self.unchecked_terms: dict[int, None] = {}  # whose leaders computed no CRCs
        self._flushing = asyncio.Lock()
        self._flush_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, env: Env, segment_bytes: int, flush_interval_ms: int) -> Ledger:
        """Recover. Raises StorageError."""
        try:
            durable = not env.has_bug("KB-DL-21")
            hard = await read_member_state(env.disk, durable=durable)
            known = await has_member_state(env.disk)
            found = await open_ledger_files(env.disk, segment_bytes, is_ours=known or not durable)
            if not known:  # before anything is appended: what lies there later is ours
                await write_member_state(env.disk, hard, durable=durable)
            unchecked = await find_unchecked_terms(found)
        except OSError as error:
            raise storage_error(error) from error
        ledger = cls(env, found, hard, flush_interval_ms)
        ledger.unchecked_terms = unchecked
        ledger._tasks = [
            asyncio.create_task(ledger._flush_forever(), name="ledger flush"),
            asyncio.create_task(ledger._checkpoint_forever(), name="ledger checkpoint"),
        ]
        return ledger

    # -- LogView -----------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        return 1

    @property
    def last_index(self) -> int:
        return self.directory.last_index

    def term_at(self, index: int) -> int:
        return self.directory.term_at(index)

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry] | None:
        if first > self.last_index:
            return ()
        if first < self._cache.first:
            return None
        found: list[Entry] = []
        size = 0
        for index in range(first, self.last_index + 1):
            entry = self._cache[index]
            size += len(entry.data)
            if found and size > max_bytes:
                break
            found.append(entry)
        return found

    async def load(self, first: int, max_bytes: int) -> Sequence[Entry]:
        found: list[Entry] = []
        size = 0
        directory = self.directory
        index = first
        while 0 < index <= directory.last_index:
            position, term = directory.position_of(index), directory.term_at(index)
            body_bytes = directory.body_bytes_of(index)
            size += body_bytes
            if found and size > max_bytes:
                break
            end = position + HEADER_BYTES + body_bytes
            data = await read_fully(self.data, position, end - position)
            is_there = index <= directory.last_index and directory.term_at(index) == term
            if not is_there or end > self.writer.uncut or len(data) < end - position:
                break  # it was cut off meanwhile, or is not in the files yet
            header, body = decode_header(data), data[HEADER_BYTES:]
            if header is None or header.index != index or not is_sound(header, body):
                raise StorageError(f"the ledger is damaged at {position}")
            found.append(Entry(index, term, body))
            index += 1
        return found

    # -- RaftStorage -------------------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        return self._hard

    @property
    def committed_index(self) -> int:
        """Raft finds it out again; what is dispatched is the store's business."""
        return 0

    @property
    def snapshot(self) -> Snapshot | None:
        return None

    def set_hard_state(self, hard: HardState) -> None:
        self._hard = self._unwritten_hard = hard

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.last_index + 1, "a gap in the ledger"
            end, segment_bytes = self.directory.end, self.data.segment_bytes
            position = place(end, len(entry.data), segment_bytes)
            data = self.encoded(entry, position)
            unit = encode_unit(entry.index, entry.term, position, len(data))
            if position > end:
                data = filler(position - end) + data
            self.directory.add(position, len(data) - (position - end), entry.term)
            self._cache.add(entry)
            self.writer.add(Addition(data, unit))

    def encoded(self, entry: Entry, position: int) -> bytes:
        """As it lies, or would lie, at this position."""
        checked = entry.term not in self.unchecked_terms
        return encode_entry(entry.index, entry.term, position, entry.data, checked=checked)

    def truncate(self, from_index: int) -> None:
        before = self.directory.end
        self.directory.cut(from_index)
        self._cache.cut(from_index)
        after = self.directory.end
        self.writer.cut(after, from_index - 1)
        self.cut_listener(before, after)

    def install(self, snapshot: Snapshot) -> None:
        raise StorageError("a ledger has no snapshots")

    def compact(self, snapshot: Snapshot) -> None:
        raise StorageError("a ledger has no snapshots")

    async def flush(self) -> None:
        """Raises StorageError; DiskFull: what was not written stays in line."""
        async with self._flushing:
            await self._write_hard_state()
            await self.writer.carry_out()
            end = self.data.max_offset
            if self._flush_interval_ms:
                await self.data.written(end)
                self._flush_due.set()
            else:
                await self.data.flushed(end)

    async def settle(self) -> None:
        """Return when all that the ledger has is in its files, readable; durable or not."""
        async with self._flushing:
            await self.writer.carry_out()

    async def close(self) -> None:
        """Flush and close. Raises StorageError, with the files closed all the same."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with self._flushing:
                await self._write_hard_state()
                await self.writer.carry_out()
                await self.writer.write_checkpoint()
        finally:
            await self._index.abandon()
            with suppress(StorageError):
                await self.data.close()

    # -- writing -----------------------------------------------------------------------------------

    async def _write_hard_state(self) -> None:
        hard = self._unwritten_hard
        if hard is None:
            return
        try:
            await write_member_state(
                self._env.disk, hard, durable=not self._env.has_bug("KB-DL-21")
            )
        except OSError as error:
            raise storage_error(error) from error
        if self._unwritten_hard is hard:
            self._unwritten_hard = None

    # -- in the background -------------------------------------------------------------------------

    async def _flush_forever(self) -> None:
        while True:
            await self._flush_due.wait()
            self._flush_due.clear()
            await pause_ms(self._flush_interval_ms)
            self.data.writer.request_flush()

    async def _checkpoint_forever(self) -> None:
        while True:
            await pause_ms(CHECKPOINT_INTERVAL_MS)
            try:
                async with self._flushing:
                    if self.writer.is_checkpoint_due:
                        await self.writer.write_checkpoint()
            except DiskFull:
                continue  # the one on the disk says less, and that is true
            except StorageError as error:
                log.error("no checkpoint: %s", error)  # the data's failure ends the node
                return


class LedgerProofs:
    """Implements broker.raft.storage.Proofs. ``are_synced``: entries are, before they are
    acknowledged."""

    def __init__(self, ledger: Ledger, *, are_synced: bool) -> None:
        self._ledger = ledger
        self._are_synced = are_synced

    def vote(self, term: int, voted_for: str) -> tuple[str, bytes]:
        return PATH, encode_member_state(HardState(term, voted_for))

    def entry(self, index: int) -> tuple[str, bytes]:
        ledger = self._ledger
        found = ledger.entries(index, 0) if self._are_synced and index > 0 else None
        if not found:
            return DATA, b""
        position = ledger.directory.position_of(index)
        start = position - position % ledger.data.segment_bytes
        text = ledger.encoded(found[0], position)
        return f"{DATA}/{start:0{NAME_DIGITS}d}", text
