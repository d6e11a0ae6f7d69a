"""What becomes of each packet of a link: dropped, late, twice, out of its place or damaged.

Pure. Every draw is a function of the seed, the link's name, what is drawn and the packet's number
on the link, so a link's packets meet the same with any traffic on other links. The kinds are
netem's (tc-netem(8)), but a correlation is the probability that a packet meets what the packet
before it met: the share of packets that are hit stays what was asked for. It runs on hosts too
(Python 3.9, no libraries).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shalott.core.rng import draw_float, stream_key

REORDER_HOLD_MS = 10.0  # how long a packet is held back that others shall overtake
NS_PER_MS = 1_000_000
PURPOSES = ("loss", "duplicate", "reorder", "corrupt", "jitter", "repeat")
KINDS = 6  # of draws for one packet: a place in the stream "repeat" for each


class Shape(Protocol):
    """As ``cluster.nodes.LinkShape``, which is one."""

    @property
    def delay_ms(self) -> float: ...
    @property
    def rate_bytes_s(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def jitter_ms(self) -> float: ...
    @property
    def duplicate(self) -> float: ...
    @property
    def reorder(self) -> float: ...
    @property
    def corrupt(self) -> float: ...
    @property
    def correlation(self) -> float: ...


@dataclass(frozen=True)
class PacketShape:
    """The same where there is no msgspec."""

    delay_ms: float = 0
    rate_bytes_s: int = 0
    loss: float = 0
    jitter_ms: float = 0
    duplicate: float = 0
    reorder: float = 0
    corrupt: float = 0
    correlation: float = 0


@dataclass
class Counts:
    """What a link's packets met since its shape was set. ``seen``: all of them."""

    seen: int = 0
    delayed: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0


@dataclass(frozen=True)
class Fate:
    """One packet's. ``at_ns``: when it goes on, on the clock that was given.

    ``damaged``: where in the packet a bit is flipped, as a share of its length in [0, 1); None: it
    is not.
    """

    at_ns: int
    is_lost: bool = False
    is_doubled: bool = False
    damaged: float | None = None


class LinkFates:
    """The packets of one directed link."""

    def __init__(self, seed: int, link: str) -> None:
        self._keys = {name: stream_key(seed, "packets", link, name) for name in PURPOSES}
        self._number = 0
        self._hit: dict[str, bool] = {}  # what the packet before met
        self._jitter = 0.0
        self._free_ns = 0  # when the narrow link has carried what it has
        self.shape: Shape = PacketShape()
        self.counts = Counts()

    def set_shape(self, shape: Shape) -> None:
        """What holds for packets from now on. The counts begin anew."""
        self.shape = shape
        self.counts = Counts()
        self._hit.clear()
        self._free_ns = 0

    @property
    def needs_payload(self) -> bool:
        """Whether packets are changed or copied, so that all of their bytes are needed."""
        return bool(self.shape.corrupt or self.shape.duplicate)

    def decide(self, now_ns: int, size_bytes: int) -> Fate:
        """What becomes of a packet of that size that arrives now."""
        shape, counts = self.shape, self.counts
        number = self._number
        self._number = number + 1
        counts.seen += 1
        if self._hits("loss", shape.loss, number, 0):
            counts.lost += 1
            return Fate(now_ns, is_lost=True)
        late_ns = int(self._late_ms(number) * NS_PER_MS)
        if self._hits("reorder", shape.reorder, number, 2):
            counts.reordered += 1
            late_ns += int(REORDER_HOLD_MS * NS_PER_MS)
        at_ns = now_ns + late_ns
        if shape.rate_bytes_s:
            sent_ns = max(now_ns, self._free_ns) + size_bytes * 1_000_000_000 // shape.rate_bytes_s
            self._free_ns = sent_ns
            at_ns = sent_ns + late_ns
        counts.delayed += at_ns > now_ns
        is_doubled = self._hits("duplicate", shape.duplicate, number, 1)
        counts.duplicated += is_doubled
        damaged = None
        if self._hits("corrupt", shape.corrupt, number, 3):
            counts.corrupted += 1
            damaged = draw_float(self._keys["repeat"], number * KINDS + 5)
        return Fate(at_ns, is_doubled=is_doubled, damaged=damaged)

    def _hits(self, name: str, probability: float, number: int, place: int) -> bool:
        if not probability:
            return False
        if not (self._repeats(number, place) and name in self._hit):
            self._hit[name] = draw_float(self._keys[name], number) < probability
        return self._hit[name]

    def _late_ms(self, number: int) -> float:
        if self.shape.jitter_ms and not self._repeats(number, 4):
            self._jitter = draw_float(self._keys["jitter"], number)
        return self.shape.delay_ms + self._jitter * self.shape.jitter_ms

    def _repeats(self, number: int, place: int) -> bool:
        correlation = self.shape.correlation
        if not correlation:
            return False
        return draw_float(self._keys["repeat"], number * KINDS + place) < correlation


def damage(packet: bytes, place: float) -> bytes:
    """The packet with one bit flipped behind its IP header and the first eight bytes that follow,
    the ports and lengths; in a packet that ends there, its last bit.

    The checksum is not put right: TCP sees it and drops the segment, as with netem.
    """
    header = (packet[0] & 0x0F) * 4 + 8
    first = min(header, len(packet) - 1)
    bit = int(place * (len(packet) - first) * 8)
    changed = bytearray(packet)
    changed[first + bit // 8] ^= 1 << bit % 8
    return bytes(changed)
