"""Message bodies: a run-unique id, a CRC, and padding.

Eight bytes of id and four of CRC-32 (over the id and the padding), big-endian, then padding up to
the size that was asked for. The padding follows from the id, so that a body spliced from two
messages is seen as corrupted.
"""

from __future__ import annotations

import struct
import zlib

_HEAD = struct.Struct(">QI")
SMALLEST_BYTES = _HEAD.size


def encode_body(value: int, size_bytes: int) -> bytes:
    """A body of ``size_bytes`` (at least 12) that carries ``value``."""
    identity = value.to_bytes(8, "big")
    padding = _padding(identity, max(0, size_bytes - SMALLEST_BYTES))
    return _HEAD.pack(value, zlib.crc32(padding, zlib.crc32(identity))) + padding


def decode_body(body: bytes) -> int | None:
    """The value that a body carries; None if it is none of ours or damaged."""
    if len(body) < SMALLEST_BYTES:
        return None
    value, checksum = _HEAD.unpack_from(body)
    padding = body[SMALLEST_BYTES:]
    if zlib.crc32(padding, zlib.crc32(body[:8])) != checksum:
        return None
    return int(value) if value < 1 << 63 else None


def _padding(identity: bytes, size_bytes: int) -> bytes:
    return (identity * (size_bytes // 8 + 1))[:size_bytes]
