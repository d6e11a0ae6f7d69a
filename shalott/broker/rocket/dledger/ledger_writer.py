"""LedgerWriter: brings a ledger's entries and cuts to its files, in order.

Bytes go to the files at once, unless a cut is before them in line, which needs the disk: then they
wait, and ``carry_out`` works off the line.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.journal import NO_ROOM
from shalott.broker.rocket.dledger.entry import UNIT_BYTES, Directory
from shalott.broker.rocket.dledger.ledger_files import (
    FoundLedger,
    LedgerCheckpoint,
    write_checkpoint,
)

NOTHING_TO_CUT = 1 << 62


@dataclass(frozen=True, slots=True)
class Addition:
    """Bytes of the data (an entry, with the filler before it) and the entry's index unit."""

    data: bytes
    unit: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """Everything from this position on goes; so many entries stay."""

    position: int
    count: int


async def nothing(position: int) -> None:
    """A cut that nothing else depends on."""


class LedgerWriter:
    """``uncut``: from here on the files hold what is cut off already."""

    def __init__(self, disk: Disk, found: FoundLedger) -> None:
        # Awaited before the data is cut: consume queues must not know what the log lacks.
        self.before_cut: Callable[[int], Awaitable[None]] = nothing
        self.uncut = NOTHING_TO_CUT
        self._disk = disk
        self._data = found.data
        self._index = found.index
        self._directory: Directory = found.directory
        self._checkpoint = found.checkpoint
        self._line: deque[Addition | Cut] = deque()

    @property
    def written_offset(self) -> int:
        """Up to where the files hold this ledger's entries. Behind a cut that is in line they hold
        others, also if the core has committed there since.
        """
        return min(self._data.writer.written_end, self.uncut)

    @property
    def flushed_offset(self) -> int:
        return min(self._data.writer.flushed_end, self.uncut)

    def add(self, addition: Addition) -> None:
        if not self._line:
            try:
                self._write(addition)
                return
            except StorageError:
                pass  # the next flush tries again, and says what is wrong
        self._line.append(addition)

    def cut(self, position: int, count: int) -> None:
        """Everything from ``position`` on is to go; ``count`` entries stay."""
        self._line.append(Cut(position, count))
        self.uncut = min(self.uncut, position)

    async def carry_out(self) -> None:
        """Work off the line. Raises StorageError; DiskFull: what was not written stays in it."""
        while self._line:
            head = self._line[0]
            if isinstance(head, Addition):
                self._write(head)
            else:
                await self._cut(head)
            self._line.popleft()
            if isinstance(head, Cut):
                cuts = (each.position for each in self._line if isinstance(each, Cut))
                self.uncut = min(cuts, default=NOTHING_TO_CUT)

    def _write(self, addition: Addition) -> None:
        self._index.writer.require_usable()  # both or none
        self._data.append(addition.data)
        self._index.append(addition.unit)

    async def _cut(self, cut: Cut) -> None:
        """First what covers the data, then what points into it, then the data."""
        if cut.count < self._checkpoint.count:
            await self._write_checkpoint(LedgerCheckpoint(cut.count, cut.position))
        await self.before_cut(cut.position)
        await self._index.truncate(cut.count * UNIT_BYTES)
        await self._data.truncate(cut.position)

    # -- the checkpoint ----------------------------------------------------------------------------

    @property
    def is_checkpoint_due(self) -> bool:
        return not self._line and self._directory.last_index > self._checkpoint.count

    async def write_checkpoint(self) -> None:
        """Of now, if nothing is in line. Raises StorageError."""
        count, end = self._directory.last_index, self._directory.end
        if self._line or end != self._data.max_offset:
            return
        await self._data.flushed(end)
        await self._index.flushed(count * UNIT_BYTES)
        if count <= self._directory.last_index and self._directory.end_of(count) == end:
            await self._write_checkpoint(LedgerCheckpoint(count, end))

    async def _write_checkpoint(self, checkpoint: LedgerCheckpoint) -> None:
        try:
            await write_checkpoint(self._disk, checkpoint)
        except OSError as error:
            raise storage_error(error) from error
        self._checkpoint = checkpoint


def storage_error(error: OSError) -> StorageError:
    kind = DiskFull if error.errno in NO_ROOM else StorageError
    return kind(f"the ledger: {error.strerror or errno.errorcode.get(error.errno or 0, error)}")
