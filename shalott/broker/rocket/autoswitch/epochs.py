"""Epochs: which master wrote which part of a log, as pure functions on lists of entries.

An entry <epoch, start> says that the bytes from ``start`` up to the next entry's start were written
by the master of ``epoch``. After store/ha/autoswitch/EpochFileCache.java; docs/protocols.md 2.3,
2.5. The idea is Kafka's leader epoch cache (KIP-101).

What must hold, so that truncation at the consistent point leaves equal bytes: a byte lies under the
epoch of the master that wrote it first, at every replica. Then two logs that have the same byte
under the same epoch are equal up to it, as in Raft. Upstream breaks this in two places, which taken
together let different bytes survive under one entry (KB-RKT-A):

- a slave adds an entry for an epoch of which it only heard in a heartbeat (client.py: here only
  bytes bring an entry);
- an entry is refused when it starts where the last one starts, so what a new master then writes
  is filed under an older epoch (and if the epoch is its own, it can't be found at all: KB-RKT-21).
  Here the new entry takes the place of the last, which is empty and so says nothing.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Env
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.autoswitch import epochs
from shalott.broker.rocket.autoswitch.packets import EpochStart

ENDLESS = (1 << 63) - 1  # the end of the last entry, as upstream has it
NO_POINT = -1


@dataclass(frozen=True, slots=True)
class EpochRange:
    """An entry with its end, which is the next entry's start."""

    epoch: int
    start_offset: int
    end_offset: int = ENDLESS


Entries = tuple[EpochStart, ...]


def ranges(entries: Sequence[EpochStart], end_offset: int = ENDLESS) -> tuple[EpochRange, ...]:
    """Entries with ends; ``end_offset`` is the log's. None for a log without an epoch."""
    ends = [*(entry.start_offset for entry in entries), end_offset][1:]
    return tuple(
        EpochRange(entry.epoch, entry.start_offset, end)
        for entry, end in zip(entries, ends, strict=True)
    )


def appended(entries: Entries, entry: EpochStart, *, keeps_empty: bool = False) -> Entries | None:
    """``entries`` and ``entry``, None if it does not fit: its epoch must be greater than the last,
    its start not smaller. An empty last entry gives way; with ``keeps_empty``, as upstream, the
    new one is refused instead.
    """
    if not entries:
        return (entry,)
    last = entries[-1]
    if entry.epoch <= last.epoch or entry.start_offset < last.start_offset:
        return None
    if entry.start_offset > last.start_offset:
        return (*entries, entry)
    return None if keeps_empty else (*entries[:-1], entry)


def without_suffix(entries: Entries, offset: int) -> Entries:
    """Without the entries of bytes at ``offset`` or later."""
    return tuple(entry for entry in entries if entry.start_offset < offset)


def without_epochs(entries: Entries, epoch: int) -> Entries:
    """Without the entries of ``epoch`` and later ones."""
    return tuple(entry for entry in entries if entry.epoch < epoch)


def at_offset(entries: Sequence[EpochStart], offset: int) -> EpochRange | None:
    """The entry of the byte at ``offset``: the last one that starts there or before."""
    end = ENDLESS
    for entry in reversed(entries):
        if entry.start_offset <= offset:
            return EpochRange(entry.epoch, entry.start_offset, end)
        end = entry.start_offset
    return None


def of_epoch(entries: Sequence[EpochStart], epoch: int) -> EpochRange | None:
    return next((each for each in ranges(entries) if each.epoch == epoch), None)


def consistent_point(local: Sequence[EpochRange], other: Sequence[EpochRange]) -> int:
    """Up to where two logs are equal: the end of what they have in common of the newest epoch
    that both have, with the same start. NO_POINT if there is none.
    """
    theirs = {each.epoch: each for each in other}
    for mine in reversed(local):
        found = theirs.get(mine.epoch)
        if found is not None and found.start_offset == mine.start_offset:
            return min(mine.end_offset, found.end_offset)
    return NO_POINT


# -- the file --------------------------------------------------------------------------------------
# EpochFileCache: a replica's epochs, in memory and in the file ``epochFileCheckpoint``.
#
# The file is text, as upstream's CheckpointFile writes it: the number of entries, the CRC-32 of
# the lines that follow, and a line ``epoch-startOffset`` an entry. It is replaced atomically and
# durable before a change counts, because bytes of an epoch may only be written after its entry is
# safe: an entry without bytes is harmless, bytes without an entry would be taken for the epoch
# before.
#
# The copy ``.bak`` has the same content. Upstream's has the content before the last change, which
# is the entry less that must not be missing.


PATH = "epochFileCheckpoint"


def encode(entries: Entries) -> bytes:
    lines = "".join(f"{entry.epoch}-{entry.start_offset}\n" for entry in entries).encode()
    return b"%d\n%d\n" % (len(entries), zlib.crc32(lines) & 0x7FFFFFFF) + lines


def decode(data: bytes) -> Entries:
    """Raises StorageError if it is no whole file of epochs."""
    try:
        count, crc, lines = data.split(b"\n", 2)
        entries = tuple(_entry(line) for line in lines.decode().splitlines())
        whole = len(entries) == int(count) and zlib.crc32(lines) & 0x7FFFFFFF == int(crc)
    except ValueError as error:
        raise StorageError(f"no file of epochs: {error}") from None
    if not whole:
        raise StorageError("the file of epochs is not what was written")
    return entries


def _entry(line: str) -> EpochStart:
    epoch, start = line.split("-")
    return EpochStart(int(epoch), int(start))


class EpochFileCache:
    """Made by ``open``. Every change is durable when its method returns. They follow one another,
    and raise DiskFull, when nothing was changed, and StorageError.

    ``keeps_empty``: upstream's append rule (KB-RKT-21, and part of KB-RKT-A).
    """

    def __init__(self, env: Env, path: str, entries: Entries, *, keeps_empty: bool) -> None:
        self._disk, self._witness = env.disk, env.witness
        self._path = path
        self._entries = entries
        self._keeps_empty = keeps_empty
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, env: Env, path: str = PATH) -> EpochFileCache:
        """Raises StorageError when neither the file nor its copy can be used."""
        keeps_empty = env.has_bug("KB-RKT-21") or env.has_bug("KB-RKT-A")
        data = await _load(env.disk, path)
        cache = cls(env, path, decode(data) if data else (), keeps_empty=keeps_empty)
        if data:
            await cache._save(cache._entries)  # both files are whole, and the same, again
        return cache

    # -- looking -----------------------------------------------------------------------------------

    @property
    def entries(self) -> Entries:
        return self._entries

    @property
    def last(self) -> EpochStart | None:
        return self._entries[-1] if self._entries else None

    @property
    def last_epoch(self) -> int:
        """-1 if there is none."""
        return self._entries[-1].epoch if self._entries else -1

    def at_offset(self, offset: int) -> EpochRange | None:
        return epochs.at_offset(self._entries, offset)

    def of_epoch(self, epoch: int) -> EpochRange | None:
        return epochs.of_epoch(self._entries, epoch)

    def consistent_point(self, end: int, other: Entries, other_end: int) -> int:
        """Up to where this log, which ends at ``end``, is equal to another replica's."""
        return epochs.consistent_point(
            epochs.ranges(self._entries, end), epochs.ranges(other, other_end)
        )

    # -- changing ----------------------------------------------------------------------------------

    async def append(self, entry: EpochStart) -> bool:
        """Whether it fitted (epochs.appended)."""
        async with self._lock:
            changed = epochs.appended(self._entries, entry, keeps_empty=self._keeps_empty)
            if changed is not None:
                await self._replace(changed)
            return changed is not None

    async def truncate_suffix(self, offset: int) -> None:
        """Forget the entries that start at ``offset`` or later."""
        async with self._lock:
            await self._replace(epochs.without_suffix(self._entries, offset))

    async def truncate_epochs(self, epoch: int) -> None:
        """Forget ``epoch`` and later ones."""
        async with self._lock:
            await self._replace(epochs.without_epochs(self._entries, epoch))

    async def _replace(self, entries: Entries) -> None:
        if entries != self._entries:
            await self._save(entries)
            self._entries = entries

    async def _save(self, entries: Entries) -> None:
        data = encode(entries)
        try:
            for path in (self._path, self._path + ".bak"):
                await replace_file(self._disk, path, data)
        except OSError as error:
            kind = DiskFull if error.errno in NO_ROOM else StorageError
            raise kind(f"{self._path}: {error.strerror or error}") from error
        self._witness("epochs", [(entry.epoch, entry.start_offset) for entry in entries])


async def _load(disk: Disk, path: str) -> bytes:
    """The content of the file, or of its copy; empty if there is neither."""
    broken: StorageError | None = None
    for candidate in (path, path + ".bak"):
        data = await read_file(disk, candidate)
        if data is None:
            continue
        try:
            decode(data)
        except StorageError as error:
            broken = broken or StorageError(f"{candidate}: {error}")
            continue
        return data
    if broken is not None:
        raise broken
    return b""
