"""DLedger's entry and index unit from literal bytes (docs/protocols.md 5.1)."""

from __future__ import annotations

from zlib import crc32

import pytest

from shalott.broker.rocket.dledger.entry import (
    FILLER_BYTES,
    HEADER_BYTES,
    UNIT_BYTES,
    IndexUnit,
    decode_header,
    decode_units,
    encode_entry,
    encode_unit,
    filler,
    filler_bytes,
    is_sound,
    place,
)

pytestmark = pytest.mark.unit

# magic, size 51, index 4, term 7, pos 4096, channel, chain crc, body crc, body length, body
WITHOUT_CRCS = bytes.fromhex(
    "00000001 00000033 0000000000000004 0000000000000007 0000000000001000"
    "00000000 00000000 00000000 00000003 616263"
)
UNIT = bytes.fromhex("00000001 0000000000001000 00000033 0000000000000004 0000000000000007")


def test_an_entry_is_48_bytes_of_header_and_its_body() -> None:
    entry = encode_entry(5, 7, 4096, b"abc")  # Raft's index 5 is the ledger's 4
    assert HEADER_BYTES == 48
    assert entry[:36] == WITHOUT_CRCS[:36]
    assert entry[36:40] != bytes(4)
    assert entry[40:44] == crc32(b"abc").to_bytes(4, "big")
    assert entry[44:] == WITHOUT_CRCS[44:]


def test_an_index_unit_is_32_bytes() -> None:
    assert UNIT_BYTES == 32
    assert encode_unit(5, 7, 4096, 51) == UNIT
    assert decode_units(UNIT + UNIT[:31]) == [IndexUnit(4096, 51, 5, 7)]
    assert decode_units(bytes(32) + UNIT) == []


def test_a_header_says_what_was_encoded() -> None:
    entry = b"before" + encode_entry(5, 7, 4096, b"abc")
    header = decode_header(entry, 6)
    assert header is not None
    assert (header.size, header.index, header.term, header.position) == (51, 5, 7, 4096)
    assert is_sound(header, b"abc")
    assert not is_sound(header, b"abd")
    assert not is_sound(header, b"ab")


def test_any_changed_byte_of_a_header_is_seen() -> None:
    for at in range(48):
        entry = bytearray(encode_entry(5, 7, 4096, b"abc"))
        entry[at] ^= 1
        header = decode_header(bytes(entry))
        assert header is None or not is_sound(header, b"abc"), f"byte {at}"


def test_a_filler_has_a_blank_magic_and_fills() -> None:
    assert filler(20) == bytes.fromhex("ffffffff 00000014") + bytes(12)
    assert filler_bytes(filler(20)) == 20
    assert filler_bytes(bytes(20)) == filler_bytes(UNIT) == filler_bytes(b"\xff" * 4) == 0


def test_an_entry_lies_in_one_file_and_leaves_room_for_a_filler() -> None:
    fits = 1000 - HEADER_BYTES - FILLER_BYTES
    assert place(0, fits, 1000) == 0
    assert place(0, fits + 1, 1000) == 1000
    assert place(900, 44, 1000) == 900
    assert place(900, 45, 1000) == 1000
