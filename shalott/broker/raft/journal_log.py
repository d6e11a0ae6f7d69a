"""JournalLog: a Raft log that fits in memory, on a journal: what the controllers keep.

Everything is a record of one journal (broker/base/journal.py: CRCs, group commit, one sync a
batch), so what was written in order is durable in order. A crash during ``install`` leaves the old
log or the snapshot, since the snapshot is one record. ``compact`` replaces the file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import Journal
from shalott.broker.raft.api import Entry, HardState, Snapshot

log = logging.getLogger("shalott.broker.raft")


class HardRecord(msgspec.Struct, frozen=True, array_like=True, tag="hard"):
    hard: HardState


class EntriesRecord(msgspec.Struct, frozen=True, array_like=True, tag="entries"):
    entries: tuple[Entry, ...]


class TruncateRecord(msgspec.Struct, frozen=True, array_like=True, tag="truncate"):
    from_index: int


class SnapshotRecord(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """The log begins anew after it."""

    snapshot: Snapshot


Record = HardRecord | EntriesRecord | TruncateRecord | SnapshotRecord

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class JournalLog:
    """Implements broker.raft.storage.RaftStorage. Made by ``open``."""

    def __init__(self, journal: Journal, path: str, bugs: tuple[str, ...]) -> None:
        """Use ``open``."""
        self.path = path
        self.proofs = JournalProofs(self)
        self._journal = journal
        self._bugs = bugs
        self._hard = HardState()
        self._snapshot: Snapshot | None = None
        self._base = 0  # the snapshot's index
        self._entries: list[Entry] = []
        self._unwritten_hard = False

    @classmethod
    async def open(cls, disk: Disk, path: str, *, bugs: tuple[str, ...] = ()) -> JournalLog:
        """Raises StorageError if what is there is no log."""
        journal = await Journal.open(disk, path)
        self = cls(journal, path, bugs)
        try:
            for record in journal.replay():
                self._replay(_decoder.decode(record))
        except (msgspec.MsgspecError, AssertionError) as error:
            await journal.abandon()
            raise StorageError(f"{path}: not a log: {error}") from error
        return self

    def _replay(self, record: Record) -> None:
        match record:
            case HardRecord(hard):
                self._hard = hard
            case EntriesRecord(entries):
                self._extend(entries)
            case TruncateRecord(from_index):
                self._cut(from_index)
            case SnapshotRecord(snapshot):
                self._begin_after(snapshot, [])

    # -- LogView -----------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        return self._base + 1

    @property
    def last_index(self) -> int:
        return self._base + len(self._entries)

    def term_at(self, index: int) -> int:
        if index == self._base:
            return 0 if self._snapshot is None else self._snapshot.term
        assert index > self._base
        return self._entries[index - self._base - 1].term

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry]:
        if first <= self._base:
            return ()
        size = 0
        start = first - self._base - 1
        for end in range(start, len(self._entries)):
            size += len(self._entries[end].data)
            if size > max_bytes and end > start:
                return self._entries[start:end]
        return self._entries[start:]

    async def load(self, first: int, max_bytes: int) -> Sequence[Entry]:
        return self.entries(first, max_bytes)

    # -- RaftStorage -------------------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        return self._hard

    @property
    def committed_index(self) -> int:
        return self._base

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def set_hard_state(self, hard: HardState) -> None:
        self._hard = hard
        if "KB-DL-21" in self._bugs:  # vote_not_durable
            self._unwritten_hard = True
            return
        self._write(HardRecord(hard))

    def append(self, entries: Sequence[Entry]) -> None:
        self._extend(entries)
        if self._unwritten_hard:
            self._unwritten_hard = False
            self._write(HardRecord(self._hard))
        self._write(EntriesRecord(tuple(entries)))

    def truncate(self, from_index: int) -> None:
        self._cut(from_index)
        self._write(TruncateRecord(from_index))

    def install(self, snapshot: Snapshot) -> None:
        self._begin_after(snapshot, [])
        self._write(SnapshotRecord(snapshot))

    def compact(self, snapshot: Snapshot) -> None:
        assert self._base < snapshot.index <= self.last_index
        self._begin_after(snapshot, self._entries[snapshot.index - self._base :])
        records: list[Record] = [HardRecord(self._hard), SnapshotRecord(snapshot)]
        if self._entries:
            records.append(EntriesRecord(tuple(self._entries)))
        done = self._journal.begin_rewrite([_encoder.encode(record) for record in records])
        done.add_done_callback(_note_failure)

    async def flush(self) -> None:
        await self._journal.flush()

    async def close(self) -> None:
        await self._journal.close()

    def _write(self, record: Record) -> None:
        self._journal.append(_encoder.encode(record))

    def _begin_after(self, snapshot: Snapshot, entries: list[Entry]) -> None:
        self._snapshot, self._base, self._entries = snapshot, snapshot.index, entries

    def _extend(self, entries: Sequence[Entry]) -> None:
        assert entries[0].index == self.last_index + 1, "a gap in the log"
        self._entries += entries

    def _cut(self, from_index: int) -> None:
        assert from_index > self._base, "the snapshot can't be truncated"
        del self._entries[from_index - self._base - 1 :]


class JournalProofs:
    """Implements broker.raft.storage.Proofs: records and entries stand in the journal as they are
    encoded."""

    def __init__(self, log: JournalLog) -> None:
        self._log = log

    def vote(self, term: int, voted_for: str) -> tuple[str, bytes]:
        return self._log.path, _encoder.encode(HardRecord(HardState(term, voted_for)))

    def entry(self, index: int) -> tuple[str, bytes]:
        found = self._log.entries(index, 0) if index <= self._log.last_index else ()
        return self._log.path, found[0].data if found else b""


def _note_failure(done: asyncio.Future[None]) -> None:
    """A failed replacement leaves the longer file in force; a final failure, what comes next."""
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("the log was not compacted: %s", error)
