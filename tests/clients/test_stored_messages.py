"""Pulled messages, from bytes written by hand and by the broker's own encoder."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Encoder
from shalott.clients.rocketmq.stored_messages import (
    MAGIC,
    MAGIC_V2,
    Malformed,
    decode_messages,
    encode_properties,
)

pytestmark = pytest.mark.unit


def by_hand(body: bytes = b"hello", *, magic: int = MAGIC, sys_flag: int = 0) -> bytes:
    topic = b"Topic"
    born = bytes(16) if sys_flag & 0x10 else bytes([127, 0, 0, 1])
    store = bytes(16) if sys_flag & 0x20 else bytes([127, 0, 0, 2])
    rest = b"".join(
        [
            magic.to_bytes(4, "big"),
            zlib.crc32(body).to_bytes(4, "big"),
            struct.pack(">iiqqiq", 3, 0, 42, 4200, sys_flag, 1111),
            born + struct.pack(">i", 5000),
            struct.pack(">q", 2222),
            store + struct.pack(">i", 10911),
            struct.pack(">iq", 0, 0),
            struct.pack(">i", len(body)) + body,
            struct.pack(">H" if magic == MAGIC_V2 else ">B", len(topic)) + topic,
            struct.pack(">H", 7) + b"a\x011\x02b\x012",
        ]
    )
    return struct.pack(">i", len(rest) + 4) + rest


@pytest.mark.parametrize("magic", [MAGIC, MAGIC_V2])
@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_a_message_by_hand(magic: int, sys_flag: int) -> None:
    data = by_hand(magic=magic, sys_flag=sys_flag)
    one, two = decode_messages(data + data)
    assert one == two
    assert (one.queue_id, one.queue_offset, one.offset) == (3, 42, 4200)
    assert (one.topic, one.body, one.stored_ms) == ("Topic", b"hello", 2222)
    assert one.properties == {"a": "1", "b": "2"}
    assert one.is_sound


def test_a_damaged_body_is_seen() -> None:
    [message] = decode_messages(by_hand().replace(b"hello", b"jello"))
    assert message.body == b"jello" and not message.is_sound


@pytest.mark.parametrize("cut", [1, 4, 20, 60, 90, len(by_hand()) - 1])
def test_what_is_cut_is_malformed(cut: int) -> None:
    with pytest.raises(Malformed):
        decode_messages(by_hand()[:cut])


def test_lengths_that_do_not_agree_are_malformed() -> None:
    data = by_hand()
    total = int.from_bytes(data[:4], "big")
    with pytest.raises(Malformed):
        decode_messages((total - 1).to_bytes(4, "big") + data[4:])
    with pytest.raises(Malformed):
        decode_messages(data[:4] + bytes(4) + data[8:])


@given(st.binary(max_size=150))
def test_garbage_is_malformed_and_nothing_else(data: bytes) -> None:
    try:
        decode_messages(data)
    except Malformed:
        pass


@given(
    topic=st.text("abcXYZ09_-%|", min_size=1, max_size=200),
    body=st.binary(max_size=50),
    properties=st.dictionaries(st.text("abc", min_size=1), st.text("xyz "), max_size=3),
    hosts=st.lists(st.sampled_from(["10.0.0.1", "::1"]), min_size=2, max_size=2),
)
def test_what_the_broker_writes(
    topic: str, body: bytes, properties: dict[str, str], hosts: list[str]
) -> None:
    message = Message(
        topic=topic,
        queue_id=1,
        body=body,
        properties=encode_properties(properties),
        born_host=(hosts[0], 1),
        store_host=(hosts[1], 2),
    )
    data = Encoder(1 << 20).encode(message, 500, 7, 99)
    [read] = decode_messages(data)
    assert (read.topic, read.body, read.properties) == (topic, body, properties)
    assert (read.queue_offset, read.offset, read.stored_ms, read.is_sound) == (7, 500, 99, True)
