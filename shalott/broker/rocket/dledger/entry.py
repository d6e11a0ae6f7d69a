"""DLedger's entry and index unit, as they lie in files, and their directory in memory.

Source: dledger/entry/DLedgerEntryCoder.java, store/file/DLedgerMmapFileStore.java;
docs/protocols.md 5.1. Integers are big-endian.

    entry       magic4 size4 index8 term8 pos8 channel4 chainCrc4 bodyCrc4 bodyLen4, then the body
    index unit  magic4 pos8 size4 index8 term8
    filler      magic4 (-1) size4, then nothing of meaning up to the file's end

``size`` counts the whole entry, ``pos`` is where it lies; a message is an entry's body, so it lies
at pos + 48. Ledger indexes begin at 0; Raft's (broker/raft) begin at 1, and only here and in the
files is the other count used. An entry never crosses a file's end, and 8 bytes always stay for a
filler.

chainCrc is there upstream and of no use; here it is the CRC of the rest of the header, so that a
torn header is seen as such. A CRC of 0 says that it was not computed, as upstream's default has it:
such an entry is believed if its lengths agree. A term has one leader, so either all of its entries
have CRCs or none has.

A new leader's no-op is a message that no queue and no index gets: upstream makes nothing of a
transaction that was rolled back, and can't go on behind an entry that is no message. Older ledgers
of ours have entries with an empty body instead.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from zlib import crc32

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Encoder

HEADER = struct.Struct(">iiqqqiIIi")
HEADER_BYTES = HEADER.size  # 48
UNIT = struct.Struct(">iqiqq")
UNIT_BYTES = UNIT.size  # 32
FILLER = struct.Struct(">ii")
FILLER_BYTES = FILLER.size  # 8

MAGIC = 1
MAGIC_BLANK = -1
CHANNEL = 0
UNCHECKED = 0  # of a CRC
INDEX_BASE = 1  # Raft's index of the ledger's entry 0

_CRC_OFF = HEADER.size - 12  # of chainCrc


@dataclass(frozen=True, slots=True)
class Header:
    """Of one entry; ``index`` is Raft's."""

    size: int
    index: int
    term: int
    position: int
    chain_crc: int
    body_crc: int
    body_bytes: int


ROLLED_BACK = 0xC  # of a message's sysFlag
NO_OP = Encoder(0).encode(
    Message(topic="rmq_sys_no_op", queue_id=0, body=b"", sys_flag=ROLLED_BACK), 0, 0, 0
)


def encode_entry(
    index: int, term: int, position: int, body: bytes, *, checked: bool = True
) -> bytes:
    """``checked``: with CRCs."""
    if checked:
        return _header(index, term, position, len(body), crc32(body)) + body
    size, ledger_index = HEADER_BYTES + len(body), index - INDEX_BASE
    header = HEADER.pack(
        MAGIC, size, ledger_index, term, position, CHANNEL, UNCHECKED, UNCHECKED, len(body)
    )
    return header + body


def _header(index: int, term: int, position: int, body_bytes: int, body_crc: int) -> bytes:
    size = HEADER_BYTES + body_bytes
    ledger_index = index - INDEX_BASE
    blank = HEADER.pack(MAGIC, size, ledger_index, term, position, CHANNEL, 0, body_crc, body_bytes)
    return blank[:_CRC_OFF] + crc32(blank).to_bytes(4, "big") + blank[_CRC_OFF + 4 :]


def decode_header(data: bytes, at: int = 0) -> Header | None:
    """None if what lies there is no whole and sound header of an entry."""
    if len(data) - at < HEADER_BYTES:
        return None
    fields = HEADER.unpack_from(data, at)
    magic, size, ledger_index, term, position, channel, chain_crc, body_crc, body_bytes = fields
    if magic != MAGIC or body_bytes < 0 or size != HEADER_BYTES + body_bytes or channel != CHANNEL:
        return None
    index = ledger_index + INDEX_BASE
    if chain_crc != UNCHECKED:
        sound = _header(index, term, position, body_bytes, body_crc)
        if sound != data[at : at + HEADER_BYTES]:
            return None
    return Header(size, index, term, position, chain_crc, body_crc, body_bytes)


def signed(crc: int) -> int:
    """As Java has it."""
    return crc - (1 << 32) if crc >> 31 else crc


def is_sound(header: Header, body: bytes) -> bool:
    return len(body) == header.body_bytes and header.body_crc in (UNCHECKED, crc32(body))


def filler(room: int) -> bytes:
    """What fills the rest of a file."""
    return FILLER.pack(MAGIC_BLANK, room) + bytes(room - FILLER_BYTES)


def filler_bytes(data: bytes, at: int = 0) -> int:
    """How long the filler that lies there says to be; 0 if none does."""
    if len(data) - at < FILLER_BYTES:
        return 0
    magic, size = FILLER.unpack_from(data, at)
    return int(size) if magic == MAGIC_BLANK and size >= FILLER_BYTES else 0


def place(position: int, body_bytes: int, segment_bytes: int) -> int:
    """Where an entry lies that is appended when the ledger ends at ``position``."""
    room = segment_bytes - position % segment_bytes
    return position if HEADER_BYTES + body_bytes + FILLER_BYTES <= room else position + room


def encode_unit(index: int, term: int, position: int, size: int) -> bytes:
    return UNIT.pack(MAGIC, position, size, index - INDEX_BASE, term)


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """Where an entry lies; ``index`` is Raft's."""

    position: int
    size: int
    index: int
    term: int


def decode_units(data: bytes) -> list[IndexUnit]:
    """As many whole units as there are, up to the first that is none."""
    units = []
    for at in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
        magic, position, size, ledger_index, term = UNIT.unpack_from(data, at)
        if magic != MAGIC or size < HEADER_BYTES:
            break
        units.append(IndexUnit(position, size, ledger_index + INDEX_BASE, term))
    return units


# -- the directory ---------------------------------------------------------------------------------
# Directory: where every entry of a ledger lies, and of which term it is, in memory.
#
# Sixteen bytes an entry, so that the core may ask for terms without waiting, and messages are
# found. Terms never fall along a log, so they are kept as runs.


class Directory:
    """Indexes are Raft's, from 1 on."""

    def __init__(self) -> None:
        self.end = 0  # the position after the last entry
        self._positions = array("q")
        self._sizes = array("q")
        self._term_firsts: list[int] = []
        self._terms: list[int] = []

    @property
    def last_index(self) -> int:
        return len(self._positions)

    def add(self, position: int, size: int, term: int) -> None:
        assert position >= self.end
        if not self._terms or self._terms[-1] != term:
            assert not self._terms or term > self._terms[-1], "terms fall"
            self._term_firsts.append(self.last_index + 1)
            self._terms.append(term)
        self._positions.append(position)
        self._sizes.append(size)
        self.end = position + size

    def cut(self, from_index: int) -> None:
        """Forget the entries from this one on, and the filler before it if there is one."""
        self.end = self.end_of(from_index - 1)
        del self._positions[from_index - 1 :]
        del self._sizes[from_index - 1 :]
        while self._term_firsts and self._term_firsts[-1] >= from_index:
            self._term_firsts.pop()
            self._terms.pop()

    def term_at(self, index: int) -> int:
        if index == 0:
            return 0
        assert index <= self.last_index, index
        return self._terms[bisect_right(self._term_firsts, index) - 1]

    @property
    def first_of_terms(self) -> list[tuple[int, int]]:
        """(term, its first index), in order."""
        return list(zip(self._terms, self._term_firsts, strict=True))

    def position_of(self, index: int) -> int:
        return self._positions[index - 1]

    def size_of(self, index: int) -> int:
        """Of the whole entry."""
        return self._sizes[index - 1]

    def body_bytes_of(self, index: int) -> int:
        return self._sizes[index - 1] - HEADER_BYTES

    def end_of(self, index: int) -> int:
        """The position after an entry; 0 before the first."""
        return 0 if index == 0 else self._positions[index - 1] + self._sizes[index - 1]
