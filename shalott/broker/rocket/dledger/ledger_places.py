"""LedgerPlaces: a ledger's entries as frames have them, with places and CRCs; implements
broker.rocket.remoting.raft_frames.PlacingLog.
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.broker.raft.api import Entry
from shalott.broker.rocket.dledger.entry import (
    HEADER_BYTES,
    INDEX_BASE,
    UNCHECKED,
    decode_header,
    place,
    signed,
)
from shalott.broker.rocket.dledger.ledger import Ledger
from shalott.broker.rocket.remoting.raft_frames import PlacedEntry


class LedgerPlaces:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def last_index(self) -> int:
        return self._ledger.last_index

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry] | None:
        return self._ledger.entries(first, max_bytes)

    async def load(self, first: int, max_bytes: int) -> Sequence[Entry]:
        return await self._ledger.load(first, max_bytes)

    def placed(self, entry: Entry) -> PlacedEntry:
        position = self._ledger.directory.position_of(entry.index)
        header = decode_header(self._ledger.encoded(entry, position))
        assert header is not None
        return PlacedEntry(
            body=entry.data,
            body_crc=signed(header.body_crc),
            chain_crc=signed(header.chain_crc),
            index=entry.index - INDEX_BASE,
            pos=position,
            size=header.size,
            term=entry.term,
        )

    def would_place(self, entries: Sequence[PlacedEntry]) -> bool:
        ledger, before = self._ledger, entries[0].index - 1 + INDEX_BASE
        if before > ledger.last_index:
            return True  # a gap: it won't be appended
        end = ledger.directory.end_of(before)
        for entry in entries:
            if entry.pos != place(end, len(entry.body), ledger.data.segment_bytes):
                return False
            if entry.chain_crc == UNCHECKED:
                ledger.unchecked_terms[entry.term] = None
            end = entry.pos + HEADER_BYTES + len(entry.body)
        return True
