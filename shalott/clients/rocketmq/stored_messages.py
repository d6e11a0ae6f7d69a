"""Messages as RocketMQ's clients see them: properties as text, and pulled messages as bytes.

A reader of its own, apart from the broker's: what a broker writes wrong must not be read wrong in
the same way. The layout is RocketMQ's MessageDecoder's, big-endian:

    total 4 | magic 4 | CRC 4 | queue 4 | flag 4 | queue offset 8 | offset 8 | sysFlag 4 | born 8 |
    born host 8 or 20 | stored 8 | store host 8 or 20 | reconsumed 4 | transaction 8 |
    length 4, body | length 1 or 2, topic | length 2, properties
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

MAGIC, MAGIC_V2 = 0xDAA320A7, 0xDAA320AB  # a topic's length has 1 byte, 2 bytes
_BORN_HOST_V6, _STORE_HOST_V6 = 0x10, 0x20
_HOST_BYTES, _HOST_V6_BYTES = 8, 20
_HEAD = struct.Struct(">IIIiiqqiq")
_TAIL = struct.Struct(">iqI")  # reconsumed, transaction, length of the body
_KEY_END, _VALUE_END = "\x01", "\x02"


class Malformed(Exception):
    """The bytes are no stored messages."""


@dataclass(frozen=True, slots=True)
class PulledMessage:
    """``is_sound``: the body is what the CRC that was stored with it says. ``reconsumed``: how
    often it was sent back before.
    """

    queue_id: int
    queue_offset: int
    offset: int  # in the log
    topic: str
    body: bytes
    properties: Mapping[str, str]
    stored_ms: int
    is_sound: bool
    reconsumed: int = 0


def decode_messages(data: bytes) -> list[PulledMessage]:
    """All messages of a pull's body. Raises Malformed."""
    messages = []
    start = 0
    while start < len(data):
        message, start = _decode_message(data, start)
        messages.append(message)
    return messages


def _decode_message(data: bytes, start: int) -> tuple[PulledMessage, int]:
    try:
        total, magic, crc, queue_id, _, queue_offset, offset, sys_flag, _ = _HEAD.unpack_from(
            data, start
        )
        if magic not in (MAGIC, MAGIC_V2) or start + total > len(data):
            raise Malformed(f"no message of {total} bytes begins with {magic:#x} at {start}")
        at = start + _HEAD.size
        at += _HOST_V6_BYTES if sys_flag & _BORN_HOST_V6 else _HOST_BYTES
        (stored_ms,) = struct.unpack_from(">q", data, at)
        at += 8 + (_HOST_V6_BYTES if sys_flag & _STORE_HOST_V6 else _HOST_BYTES)
        reconsumed, _, body_length = _TAIL.unpack_from(data, at)
        body, at = _take(data, at + _TAIL.size, body_length)
        topic, at = _take_counted(data, at, 2 if magic == MAGIC_V2 else 1)
        properties, at = _take_counted(data, at, 2)
        if at != start + total:
            raise Malformed(f"a message of {total} bytes has {at - start}")
        message = PulledMessage(
            queue_id=queue_id,
            queue_offset=queue_offset,
            offset=offset,
            topic=topic.decode(),
            body=body,
            properties=decode_properties(properties.decode()),
            stored_ms=stored_ms,
            is_sound=zlib.crc32(body) & 0x7FFFFFFF == crc & 0x7FFFFFFF,
            reconsumed=reconsumed,
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"a message at {start} can't be read: {error}") from error
    return message, at


def _take(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(data):
        raise Malformed(f"{length} bytes are wanted at {at} of {len(data)}")
    return data[at : at + length], at + length


def _take_counted(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    begin = at + width
    end = begin + int.from_bytes(data[at:begin], "big")
    if end > len(data):
        raise Malformed(f"{end - begin} bytes are wanted at {begin} of {len(data)}")
    return data[begin:end], end


def encode_properties(properties: Mapping[str, str]) -> str:
    """As a send's header has them."""
    return "".join(f"{key}{_KEY_END}{value}{_VALUE_END}" for key, value in properties.items())


def decode_properties(text: str) -> dict[str, str]:
    """Of a message, as ``encode_properties`` wrote them."""
    found = {}
    for pair in text.split(_VALUE_END):
        key, is_pair, value = pair.partition(_KEY_END)
        if is_pair:
            found[key] = value
    return found
