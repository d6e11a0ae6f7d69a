"""Numbered datagrams that are sent over a link, to see what becomes of them.

They carry no UDP checksum, so that a damaged one arrives and is seen. Runs on hosts too (Python
3.9, no libraries).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

SO_NO_CHECK = 11
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 4 << 20
HEAD = struct.Struct("!8sId")  # token, number, when it was sent; then padding and a checksum
PADDING = bytes(40)
CRC_BYTES = 4
BATCH = 10  # sent at once
SPAN_S = 0.2  # in which all are sent: a wait for a CPU meanwhile holds up some, and not all
# Nothing more comes when nothing came for so long, beyond what the shape may hold a packet: on a
# busy machine who carries packets may have to wait for a CPU.
QUIET_S = 0.6
SECOND_COPY_S = 0.05  # after the last packet: its copy is right behind it
# Type of service of the probes that prove cuts: nothing that shapes a link touches them, or a slow
# link would look cut.
UNSHAPED_TOS = 0x14


def pause_s(count: int) -> float:
    """Between two batches of so many datagrams in all."""
    return SPAN_S * BATCH / max(BATCH, count)


def numbered(token: bytes, number: int, sent_s: float) -> bytes:
    """A datagram."""
    content = HEAD.pack(token, number, sent_s) + PADDING
    return content + _sum(content)


def _sum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(CRC_BYTES, "big")


class Tally:
    """What arrived of one measurement of ``count`` datagrams."""

    def __init__(self, token: bytes, count: int) -> None:
        self._token = token
        self._count = count
        self._arrived: dict[int, float] = {}
        self._duplicated = self._overtaken = self._corrupted = 0
        self._last = -1

    @property
    def has_all(self) -> bool:
        return len(self._arrived) + self._corrupted >= self._count

    def add(self, data: bytes, now_s: float) -> None:
        content, checksum = data[:-CRC_BYTES], data[-CRC_BYTES:]
        if _sum(content) != checksum:
            self._corrupted += 1
            return
        token, number, sent_s = HEAD.unpack_from(content)
        if token != self._token:
            return  # another measurement's, late
        if number in self._arrived:
            self._duplicated += 1
            return
        self._arrived[number] = (now_s - sent_s) * 1000
        self._overtaken += number < self._last
        self._last = max(self._last, number)

    def result(self, base_ms: float = 0) -> dict[str, Any]:
        """The fields of ``cluster.nodes.PacketsSeen``. ``base_ms``: what is no lateness, where the
        clocks of sender and receiver differ."""
        times = [max(0.0, each - base_ms) for each in self._arrived.values()]
        return {
            "sent": self._count,
            "arrived": len(times),
            "duplicated": self._duplicated,
            "overtaken": self._overtaken,
            "corrupted": self._corrupted,
            "least_ms": round(min(times), 3) if times else None,
            "most_ms": round(max(times), 3) if times else None,
        }
