"""Stored messages of RocketMQ's logs, as oracles find them on a disk (MessageExtEncoder.java)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\xda\xa3\x20"  # of both versions
HEAD = struct.Struct(">12xi4xqq")  # queue, its offset, the log's
SIZE = struct.Struct(">i")  # what every message and every filler begins with
_TAIL = struct.Struct(">qi")  # where a half message lay, and the body's size
_FLAGS_AT, _HOST_BYTES = 39, {0x10: 12, 0x20: 12}  # flags of hosts that are so much longer
_UNDECIDED = 0x4  # of transactions that are open or rolled back, also a leader's no-op
_TAIL_AT = 76


@dataclass(frozen=True, slots=True)
class Found:
    """``prepared``: where in the log the half message lies whose transaction was committed.
    ``is_undecided``: it is in no queue."""

    topic: str
    queue: int
    queue_offset: int
    offset: int
    prepared: int
    is_undecided: bool
    body: bytes


def messages_in(log: bytes) -> Iterator[Found]:
    """Those that are there as a whole."""
    at = log.find(_MAGIC)
    while at >= 0:
        start = at - SIZE.size
        size = SIZE.unpack_from(log, start)[0] if start >= 0 else 0
        if _TAIL_AT + _TAIL.size < size <= len(log) - start:
            yield _found(log[start : start + size])
            at = log.find(_MAGIC, start + size)
        else:
            at = log.find(_MAGIC, at + 1)


def is_border(log: bytes) -> bool:
    """Whether a log's file that begins with a message ends with one, or with what fills it."""
    at = 0
    while 0 <= at < len(log):
        size = SIZE.unpack_from(log, at)[0] if at + SIZE.size <= len(log) else 0
        at = at + size if size > 0 else len(log) + 1
    return at == len(log)


def _found(message: bytes) -> Found:
    queue, queue_offset, offset = HEAD.unpack_from(message)
    flags = message[_FLAGS_AT]
    at = _TAIL_AT + sum(more for flag, more in _HOST_BYTES.items() if flags & flag)
    prepared, body_bytes = _TAIL.unpack_from(message, at)
    body_at = at + _TAIL.size
    at = body_at + body_bytes
    begins = at + (1 if message[4:8] == _MAGIC + b"\xa7" else 2)  # longer topics have two bytes
    topic = message[begins : begins + int.from_bytes(message[at:begins])].decode()
    is_undecided = bool(flags & _UNDECIDED)
    body = message[body_at:at]
    return Found(topic, queue, queue_offset, offset, prepared, is_undecided, body)
