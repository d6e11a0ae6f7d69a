"""The stored message byte for byte, and what is not taken for one."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.broker.base.errors import MessageIllegal
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import (
    TAGS_KEY,
    Dispatcher,
    Encoder,
    decode,
    filler,
    is_topic,
    java_hash,
    property_at,
)

pytestmark = pytest.mark.unit

MESSAGE = Message(
    topic="TopicA",
    queue_id=3,
    body=b"hello",
    properties="KEYS\x01k1\x02TAGS\x01blue\x02",
    flag=7,
    sys_flag=1,
    born_ms=0x0102030405,
    born_host=("10.0.0.1", 40000),
    store_host=("10.0.0.2", 10911),
    reconsume_times=2,
    prepared_transaction_offset=9,
)
STORED = bytes.fromhex(
    "00000078"  # 120 bytes in all
    "daa320a7"
    "3610a686"  # the CRC-32 of "hello"
    "00000003"
    "00000007"
    "000000000000000b"
    "0000000000001000"
    "00000001"
    "0000000102030405"
    "0a000001" + "00009c40"
    "0000000908070605"
    "0a000002" + "00002a9f"
    "00000002"
    "0000000000000009"
    "00000005" + "68656c6c6f"
    "06" + "546f70696341"
    "0012" + "4b455953016b3102" + "5441475301626c756502"
)
STORE_MS = 0x0908070605


def encoded(message: Message, offset: int = 0x1000, queue_offset: int = 11) -> bytes:
    encoder = Encoder(1 << 20)
    data = encoder.encode(message, offset, queue_offset, STORE_MS)
    assert len(data) == encoder.prepare(message)[0]
    return data


def test_the_layout_byte_for_byte() -> None:
    data = encoded(MESSAGE)
    assert zlib.crc32(b"hello") == 0x3610A686
    assert data == STORED


def test_decoding_gives_back_what_was_encoded() -> None:
    stored = decode(STORED, 0x1000)
    assert stored.message == MESSAGE
    assert (stored.size, stored.queue_offset, stored.physical_offset) == (len(STORED), 11, 0x1000)
    assert stored.store_ms == STORE_MS


def test_the_crc_is_that_of_java_without_its_sign() -> None:
    body = b"\x00" * 4
    assert zlib.crc32(body) == 0x2144DF1C
    negative = next(bytes([n]) for n in range(256) if zlib.crc32(bytes([n])) >> 31)
    data = encoded(replace(MESSAGE, body=negative))
    assert int.from_bytes(data[8:12], "big") == zlib.crc32(negative) & 0x7FFFFFFF
    assert decode(data, 0x1000).message.body == negative


def test_a_message_id_is_host_port_and_offset() -> None:
    wanted = "0A00000200002A9F0000000000001000"
    assert Encoder(1).message_id(("10.0.0.2", 10911), 0x1000) == wanted


def test_hosts_of_sixteen_bytes_are_flagged() -> None:
    message = replace(MESSAGE, born_host=("2001:db8::1", 1), store_host=("2001:db8::2", 2))
    data = encoded(message)
    assert len(data) == len(STORED) + 24
    assert data[36:40] == b"\0\0\0\x31"
    assert replace(decode(data, 0x1000).message, sys_flag=1) == message
    assert Dispatcher().dispatch(data, 0)[0] == "TopicA"


def test_a_long_topic_takes_the_second_version() -> None:
    message = replace(MESSAGE, topic="x" * 128)
    data = encoded(message)
    assert data[4:8] == bytes.fromhex("daa320ab")
    assert data[93:95] == b"\0\x80"
    assert decode(data, 0x1000).message == message
    assert Dispatcher().dispatch(data, 0)[0] == "x" * 128


def test_a_filler() -> None:
    assert filler(12) == bytes.fromhex("0000000c cbd43194 00000000")


@pytest.mark.parametrize(
    "message",
    [
        replace(MESSAGE, topic=""),
        replace(MESSAGE, topic="a/b"),
        replace(MESSAGE, topic=".."),
        replace(MESSAGE, topic="x" * 256),
        replace(MESSAGE, properties="x" * 32768),
        replace(MESSAGE, properties="a\0b"),
        replace(MESSAGE, body=bytes((1 << 20) + 1)),
        replace(MESSAGE, born_host=("nowhere", 1)),
    ],
)
def test_what_no_store_takes(message: Message) -> None:
    with pytest.raises(MessageIllegal):
        Encoder(1 << 20).prepare(message)


def test_topics() -> None:
    assert is_topic("%RETRY%group-1_A|b")
    assert not is_topic("a b")
    assert not is_topic("ä")


def test_a_byte_that_a_lost_sector_turned_to_zero() -> None:
    """From some byte on everything is zero: where something is lost, no message is seen."""
    torn = [STORED[:position] + bytes(len(STORED) - position) for position in range(len(STORED))]
    taken = [stored for stored in torn if stored != STORED and is_taken(stored)]
    assert taken == []


def test_a_first_sector_that_is_lost() -> None:
    torn = [bytes(position) + STORED[position:] for position in range(5, len(STORED))]
    assert [stored for stored in torn if is_taken(stored)] == []


def is_taken(stored: bytes) -> bool:
    """Whether the decoder sees a message at the place where ``STORED`` was."""
    try:
        decode(stored, 0x1000)
    except MessageIllegal:
        return False
    return True


def test_a_message_made_for_another_place_is_none() -> None:
    with pytest.raises(MessageIllegal):
        decode(STORED, 0x2000)


def test_a_message_that_is_cut_off_is_none() -> None:
    for size in range(len(STORED)):
        with pytest.raises(MessageIllegal):
            decode(STORED[:size], 0x1000)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    with pytest.raises(MessageIllegal):
        decode(data, 0)


@given(st.integers(0, len(STORED) - 1), st.binary(min_size=1, max_size=8))
def test_damage_breaks_nothing_else(position: int, damage: bytes) -> None:
    data = (STORED[:position] + damage + STORED[position + len(damage) :])[: len(STORED)]
    try:
        stored = decode(data, 0x1000)
    except MessageIllegal:
        return
    assert stored.message.body == MESSAGE.body  # of what a CRC covers nothing goes unseen


def test_dispatch_reads_what_a_queue_wants() -> None:
    found = Dispatcher().dispatch(b"junk" + STORED, 4)
    assert found == ("TopicA", 3, 11, java_hash("blue"))


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("blue", 3027034), ("TagA", 2598919), ("polygenelubricants", -(1 << 31))],
)
def test_hash_codes_as_java_has_them(text: str, code: int) -> None:
    assert java_hash(text) == code


@pytest.mark.parametrize(
    ("properties", "tags"),
    [
        (b"TAGS\x01a\x02", b"a"),
        (b"K\x01v\x02TAGS\x01b", b"b"),
        (b"MYTAGS\x01b\x02", b""),
        (b"MYTAGS\x01b\x02TAGS\x01c\x02", b"c"),
        (b"", b""),
    ],
)
def test_tags_of_properties(properties: bytes, tags: bytes) -> None:
    data = b"TAGS\x01x" + properties + b"TAGS\x01y"
    assert property_at(data, TAGS_KEY, 6, 6 + len(properties)) == tags
