"""HAService's packets: what travels between a master's HA port and its slaves, big-endian.

After store/ha/{DefaultHAConnection,DefaultHAClient}.java; docs/protocols.md 1.1. There is no
handshake, no version and no identity:

    slave -> master   int64 end of the slave's log      request, acknowledgement and heartbeat
    master -> slave   int64 offset, int32 size, body    size 0 is a heartbeat

Both readers take bytes as they come: split anywhere, or merged.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from shalott.broker.base.errors import BrokerError

REPORT = struct.Struct(">q")
HEADER = struct.Struct(">qi")
# Upstream's slave reads into 4 MB; a frame that does not fit never becomes whole there.
BODY_BYTES_MAX = (4 << 20) - HEADER.size
NOWHERE = -1  # where an original's log is before its first file: its heartbeats say so


class HaProtocolError(BrokerError):
    """The peer said what no HAService says."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of the master's log, or its heartbeat (an empty body)."""

    offset: int
    body: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.body)


def encode_report(offset: int) -> bytes:
    return REPORT.pack(offset)


def encode_frame(offset: int, body: bytes) -> bytes:
    return HEADER.pack(offset, len(body)) + body


class ReportReader:
    """A slave's reports. Only the last whole one of what has arrived counts."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> int | None:
        """The last whole report, None while there is none that is new."""
        data = self._tail + data
        end = len(data) - len(data) % REPORT.size
        self._tail = data[end:]
        if end == 0:
            return None
        (offset,) = REPORT.unpack_from(data, end - REPORT.size)
        return int(offset)


class FrameReader:
    """A master's frames, each when it is whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that became whole. Raises HaProtocolError."""
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while len(self._buffer) - position >= HEADER.size:
            offset, size = HEADER.unpack_from(self._buffer, position)
            if offset < (NOWHERE if size == 0 else 0) or not 0 <= size <= BODY_BYTES_MAX:
                raise HaProtocolError(f"a frame of {size} bytes at offset {offset}")
            body_at = position + HEADER.size
            if len(self._buffer) < body_at + size:
                break
            frames.append(Frame(offset, bytes(self._buffer[body_at : body_at + size])))
            position = body_at + size
        del self._buffer[:position]
        return frames
