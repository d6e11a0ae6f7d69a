"""DLedgerLog: the ledger as a MessageStore's log; implements
broker.rocket.commitlog.api.MessageLog.

After store/dledger/DLedgerCommitLog.java; docs/protocols.md 5.6. A message is the body of an entry,
so it lies 48 bytes behind the entry's position. What is committed is the written end: dispatch
stops there, so consumers see nothing that a new leader might take back. Messages are appended by
proposing them; how a proposal ends is for who asked (``take_submitted``).
"""

from __future__ import annotations

from collections.abc import Callable

from shalott.broker.base.errors import BrokerError, MessageIllegal, StorageError
from shalott.broker.raft.group import Submitted
from shalott.broker.rocket.commitlog.api import PartlyAppended, Scanned
from shalott.broker.rocket.dledger.entry import (
    FILLER_BYTES,
    HEADER_BYTES,
    NO_OP,
    decode_header,
    filler_bytes,
    place,
)
from shalott.broker.rocket.dledger.ledger import Ledger
from shalott.broker.rocket.dledger.ledger_files import DATA


def not_started(data: bytes) -> Submitted:
    raise StorageError("this member has not started")


class DLedgerLog:
    """``submit`` is the Raft group's; it is set when there is one."""

    directory = DATA

    def __init__(self, ledger: Ledger) -> None:
        self.submit: Callable[[bytes], Submitted] = not_started
        self.progress_listener: Callable[[], None] = lambda: None
        self._ledger = ledger
        self._committed = 0
        self._submitted: list[Submitted] = []
        ledger.data.writer.progress_listener = lambda: self.progress_listener()
        ledger.data.writer.failure_listener = lambda error: self.failure_listener(error)
        self.failure_listener: Callable[[StorageError], None] = lambda error: None

    # -- commitment --------------------------------------------------------------------------------

    @property
    def committed_offset(self) -> int:
        """committedPos: the position after the last entry that is known to be committed."""
        return self._committed

    def set_committed(self, index: int) -> None:
        """Raft's index; also back, where a committed entry was cut off (KB-DL-01, KB-DL-13)."""
        self._committed = self._ledger.directory.end_of(min(index, self._ledger.last_index))
        self.progress_listener()

    def take_submitted(self) -> list[Submitted]:
        """Of the batch that was appended last, once."""
        submitted, self._submitted = self._submitted, []
        return submitted

    # -- Log ---------------------------------------------------------------------------------------

    @property
    def segment_bytes(self) -> int:
        return self._ledger.data.segment_bytes

    @property
    def min_offset(self) -> int:
        return self._ledger.data.min_offset

    @property
    def max_offset(self) -> int:
        return self._ledger.directory.end

    @property
    def written_offset(self) -> int:
        return min(self._committed, self._ledger.writer.written_offset)

    @property
    def flushed_offset(self) -> int:
        return self._ledger.writer.flushed_offset

    async def written(self, offset: int) -> None:
        """In the operating system's hands: committed or not."""
        await self._ledger.settle()
        await self._ledger.data.written(offset)

    async def flushed(self, offset: int) -> None:
        await self._ledger.settle()
        await self._ledger.data.flushed(offset)

    async def read(self, offset: int, size: int) -> bytes:
        return await self._ledger.data.read(offset, size)

    # -- MessageLog --------------------------------------------------------------------------------

    def place(self, sizes: list[int]) -> list[int]:
        """Where messages of these sizes would lie. Raises StorageError, MessageIllegal."""
        data = self._ledger.data
        data.writer.require_usable()
        position, offsets = self._ledger.directory.end, []
        for size in sizes:
            if HEADER_BYTES + size + FILLER_BYTES > data.segment_bytes:
                raise MessageIllegal(f"a message of {size} bytes fits in no file")
            position = place(position, size, data.segment_bytes)
            offsets.append(position + HEADER_BYTES)
            position += HEADER_BYTES + size
        return offsets

    def append_placed(self, messages: list[bytes]) -> list[int]:
        """Propose them. Raises what ``submit`` raises, or PartlyAppended."""
        self._submitted = []
        ends = []
        for message in messages:
            try:
                submitted = self.submit(message)
            except BrokerError as error:
                if not self._submitted:
                    raise
                raise PartlyAppended(str(error), len(self._submitted)) from error
            self._submitted.append(submitted)
            ends.append(self._ledger.directory.end_of(submitted.index))
        return ends

    async def scan(self, position: int, end: int, max_bytes: int) -> Scanned:
        """See MessageLog. No-ops and fillers are passed over. Raises StorageError for damage: what
        lies before ``end`` was whole when it was appended.
        """
        scanned, needed = await self._walk(position, end, max(max_bytes, HEADER_BYTES))
        if scanned.next == position and needed > 0:
            scanned, _ = await self._walk(position, end, needed)
        return scanned

    async def _walk(self, position: int, end: int, max_bytes: int) -> tuple[Scanned, int]:
        """What is there, and how many bytes the first entry that did not fit would need."""
        data = await self._ledger.data.read(position, min(max_bytes, max(0, end - position)))
        segment_bytes = self._ledger.data.segment_bytes
        spans: list[tuple[int, int]] = []
        at = needed = 0
        while True:
            room = segment_bytes - (position + at) % segment_bytes
            if filler_bytes(data, at) == room:
                at += room
                break  # what was read ends with the file
            if len(data) - at < HEADER_BYTES:
                break
            header = decode_header(data, at)
            if header is None:
                raise StorageError(f"the ledger is damaged at {position + at}")
            if at + header.size > len(data):
                needed = header.size if position + at + header.size <= end else 0
                break
            body_at = at + HEADER_BYTES
            if header.body_bytes != len(NO_OP):
                is_message = header.body_bytes > 0
            else:
                is_message = data[body_at : at + header.size] != NO_OP
            if is_message:
                spans.append((body_at, header.body_bytes))
            at += header.size
        return Scanned(data, position, spans, position + at), needed

    def request_flush(self) -> None:
        self._ledger.data.writer.request_flush()

    async def truncate(self, offset: int) -> None:
        """Only the leader cuts a ledger."""
        raise StorageError(f"a ledger is not cut to {offset} by its own member")

    async def close(self) -> None:
        await self._ledger.close()
