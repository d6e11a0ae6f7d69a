"""A stored message as brokers send it, written out by hand."""

from __future__ import annotations

import struct
import zlib

from shalott.core.message_body import encode_body


def stored_message(
    *, topic: str, queue_id: int, queue_offset: int, offset: int, value: int, reconsumed: int = 0
) -> bytes:
    body, name = encode_body(value, 16), topic.encode()
    crc = zlib.crc32(body) & 0x7FFFFFFF
    fixed = struct.pack(">IIiiqqiq", 0xDAA320A7, crc, queue_id, 0, queue_offset, offset, 0, 0)
    hosts = bytes((10, 0, 0, 1)) + struct.pack(">i", 99)
    tail = struct.pack(">q", 0) + hosts + struct.pack(">iqI", reconsumed, 0, len(body)) + body
    whole = fixed + hosts + tail + bytes((len(name),)) + name + struct.pack(">H", 0)
    return struct.pack(">I", len(whole) + 4) + whole
