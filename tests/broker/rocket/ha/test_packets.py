"""HAService's packets from literal bytes (docs/protocols.md 1.1), split and merged at will."""

from __future__ import annotations

import pytest

from shalott.broker.rocket.ha.packets import (
    Frame,
    FrameReader,
    HaProtocolError,
    ReportReader,
    encode_frame,
    encode_report,
)

pytestmark = pytest.mark.unit

REPORT_4096 = bytes.fromhex("0000000000001000")
REPORT_8192 = bytes.fromhex("0000000000002000")
HEARTBEAT_AT_4096 = bytes.fromhex("0000000000001000 00000000")
THREE_BYTES_AT_4096 = bytes.fromhex("0000000000001000 00000003 616263")


def test_a_report_is_eight_bytes_big_endian() -> None:
    assert encode_report(4096) == REPORT_4096
    assert encode_report(0x0102030405060708) == bytes.fromhex("0102030405060708")
    assert encode_report(0) == bytes(8)


def test_a_frame_is_offset_size_and_body() -> None:
    assert encode_frame(4096, b"abc") == THREE_BYTES_AT_4096


def test_a_heartbeat_is_a_header_of_size_0() -> None:
    assert encode_frame(4096, b"") == HEARTBEAT_AT_4096
    assert len(HEARTBEAT_AT_4096) == 12


def test_only_the_last_whole_report_counts() -> None:
    reader = ReportReader()
    assert reader.feed(REPORT_8192 + REPORT_4096 + REPORT_8192[:3]) == 4096
    assert reader.feed(REPORT_8192[3:7]) is None
    assert reader.feed(REPORT_8192[7:]) == 8192


def test_a_report_may_come_a_byte_at_a_time() -> None:
    reader = ReportReader()
    found = [reader.feed(bytes([byte])) for byte in REPORT_4096 + REPORT_8192]
    assert found == [None] * 7 + [4096] + [None] * 7 + [8192]


@pytest.mark.parametrize("size", [1, 2, 5, 11, 12, 13, 27, 100])
def test_frames_are_found_however_the_bytes_are_split(size: int) -> None:
    stream = HEARTBEAT_AT_4096 + THREE_BYTES_AT_4096 + HEARTBEAT_AT_4096
    reader = FrameReader()
    found = [
        frame
        for start in range(0, len(stream), size)
        for frame in reader.feed(stream[start : start + size])
    ]
    assert found == [Frame(4096, b""), Frame(4096, b"abc"), Frame(4096, b"")]
    assert [frame.end for frame in found] == [4096, 4099, 4096]


@pytest.mark.parametrize(
    "header",
    [
        "0000000000001000 ffffffff",  # a size of -1
        "0000000000001000 7fffffff",  # 2 GiB
        "ffffffffffffffff 00000001",  # an offset of -1
    ],
)
def test_a_frame_that_cannot_be_ends_the_connection(header: str) -> None:
    with pytest.raises(HaProtocolError):
        FrameReader().feed(bytes.fromhex(header))


def test_an_original_without_any_file_beats_at_no_offset() -> None:
    assert FrameReader().feed(b"\xff" * 8 + bytes(4)) == [Frame(-1, b"")]
    with pytest.raises(HaProtocolError):  # bytes lie somewhere
        FrameReader().feed(b"\xff" * 8 + bytes.fromhex("00000001 61"))
