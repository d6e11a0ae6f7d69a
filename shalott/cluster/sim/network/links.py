"""Link: one direction between two simulated hosts: how long a segment takes, and whether it passes.

Every latency, loss and clog is drawn from (seed, link, number of the segment on this link), so what
happens on one link never shifts what another draws. Arithmetic is on integers only.

A lost segment is sent again after TCP's timeout, which doubles each time (``backoffs``): loss is
lateness, never a hole. A throttled link serialises segments; a clogged one lets none depart for a
while. A link is blocked while it is cut, however many times over, or while one of its hosts is
down; then nothing arrives at all, and what was under way is its sender's again (lanes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from shalott.cluster.nodes import LinkShape
from shalott.core.draws import draw_many
from shalott.core.rng import draw_u64, stream_key

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.processes import SimHandle

DATA, FIN, RESET, OPEN = range(4)  # OPEN: the end of the handshake, accepted by the listener
US = 1_000
MS = 1_000_000
RTO_MAX_NS = 120_000 * MS  # Linux: TCP_RTO_MAX
RETRIES_MAX = 15  # Linux: tcp_retries2
PRUNE_MIN = 64
WORD = 1 << 32
DRAWN_AT_ONCE = 128  # a power of two


class NetworkKnobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The network when nothing is broken, and its own small unreliability."""

    latency_us: int = 300  # one way, between hosts
    spread_us: int = 0  # a direction of a link is slower by a constant of up to this
    jitter_us: int = 0  # a segment takes up to so much longer
    loopback_us: int = 20  # one way, within a host
    loss: float = 0.0  # probability that a transmission is lost
    clog: float = 0.0  # probability that a segment finds its link clogged from now on
    clog_ms_max: int = 1_000  # for up to so long
    rto_ms: int = 200  # TCP's first retransmission timeout
    window_bytes: int = 256 * 1024  # that kernels hold of one direction: sent, and not read yet
    kill_resets: float = 1.0  # share of a killed process's connections that end with RST, not FIN


class Host:
    """A machine. ``up`` is whether it has power."""

    __slots__ = ("address", "name", "next_port", "up")

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.up = True
        self.next_port = 32_768

    def __repr__(self) -> str:
        return self.name


def threshold(probability: float) -> int:
    """What a 32-bit draw must be below."""
    return int(max(0.0, min(1.0, probability)) * WORD)


def backoffs(rto_ns: int) -> Iterator[int]:
    """When a segment is sent again, counted from its first transmission."""
    interval, at_ns = rto_ns, 0
    while True:
        at_ns += interval
        yield at_ns
        interval = min(2 * interval, RTO_MAX_NS)


def next_backoff(since_ns: int, now_ns: int, rto_ns: int) -> int:
    """The first retransmission after ``now_ns`` of a segment first sent at ``since_ns``."""
    for offset_ns in backoffs(rto_ns):
        if since_ns + offset_ns > now_ns:
            return since_ns + offset_ns
    raise AssertionError("backoffs never end")


def give_up_after_ns(rto_ns: int) -> int:
    """How long a kernel sends a segment again before it declares the connection dead: 15 minutes
    for 200 ms, as Linux."""
    for number, offset_ns in enumerate(backoffs(rto_ns)):
        if number == RETRIES_MAX:
            return offset_ns
    raise AssertionError("backoffs never end")


class Segment(msgspec.Struct, eq=False):
    """Bytes, or one of the signs, on their way."""

    kind: int
    chunks: list[bytes]
    size: int
    first_ns: int
    depart_ns: int  # of its last transmission
    arrival_ns: int = 0
    lost: int = 0  # times
    handle: SimHandle | None = None  # None: it has arrived
    was_stopped: bool = False  # by a watch, before its delivery
    told: int = 0  # what had happened when it was sent (order.py)


class End(Protocol):
    """What a watch may know of the end of a connection that sends or receives (tcp.py)."""

    number: int
    local: tuple[str, int]
    remote: tuple[str, int]

    @property
    def listener(self) -> object | None: ...


# (which end, its bytes, which of SENT, BEFORE and AFTER their delivery): whether both ends stand
# still from now on
Watch = Callable[["End", bytes, str], bool]


def stops(watches: list[Watch], end: End, data: bytes, moment: str) -> bool:
    """Whether who sends and who receives stand still now."""
    return sum(watch(end, data, moment) for watch in tuple(watches)) > 0


class Vanishes(Protocol):
    def vanish(self) -> None: ...


class Crossing(Protocol):
    """What a link needs of the connections that lead over it (lanes.py)."""

    @property
    def is_finished(self) -> bool: ...

    @property
    def sender(self) -> Vanishes: ...

    def blocked(self) -> None: ...

    def unblocked(self) -> None: ...

    def reshaped(self) -> None: ...

    def hold_back(self, is_so: bool) -> None: ...


class Link:
    """One direction between two hosts. ``lanes`` are the connections' that lead over it."""

    __slots__ = (
        "_base_ns",
        "_busy_until_ns",
        "_clog",
        "_clog_max_ns",
        "_clog_key",
        "_clogged_until_ns",
        "_drawn",
        "_jitter_draw",
        "_jitter_draws",
        "_jitter_ns",
        "_key",
        "_loss",
        "_loss_draws",
        "_loss_key",
        "_lost_before",
        "_own_jitter_ns",
        "_own_loss",
        "_plain",
        "_prune_at",
        "_repeat",
        "_repeat_key",
        "blocks",
        "cuts",
        "destination",
        "held_back",
        "lanes",
        "latency_ns",
        "rto_ns",
        "shape",
        "source",
        "watches",
    )

    def __init__(self, seed: int, source: Host, destination: Host, knobs: NetworkKnobs) -> None:
        self.source = source
        self.destination = destination
        name = f"{source.name}->{destination.name}"
        self._key = stream_key(seed, "link", name)
        self._loss_key = stream_key(seed, "link", name, "loss")
        self._clog_key = stream_key(seed, "link", name, "clog")
        self._repeat_key = stream_key(seed, "link", name, "repeat")
        self._drawn = 0  # segments
        # For the segments of the present stretch, made at once.
        self._jitter_draws: list[int] = []
        self._loss_draws: list[int] = []
        loopback = source is destination
        if loopback:
            self._base_ns = max(1, knobs.loopback_us * US)
        else:
            spread_key = stream_key(seed, "link", name, "spread")
            spread_ns = draw_u64(spread_key, 0) % (knobs.spread_us * US + 1)
            self._base_ns = max(1, knobs.latency_us * US + spread_ns)
        self._own_jitter_ns = 0 if loopback else knobs.jitter_us * US
        self._own_loss = 0.0 if loopback else knobs.loss
        self._clog = 0 if loopback else threshold(knobs.clog)
        self._clog_max_ns = knobs.clog_ms_max * MS
        self._clogged_until_ns = 0
        self._busy_until_ns = 0
        self.rto_ns = knobs.rto_ms * MS
        self.cuts = 0
        self.blocks = (not source.up) + (not destination.up and not loopback)
        self.lanes: dict[int, Crossing] = {}
        self._prune_at = PRUNE_MIN
        self.watches: list[Watch] = []
        self.held_back: int | None = None  # the seed of which connections are
        self.set_shape(LinkShape())

    def __repr__(self) -> str:
        return f"{self.source.name}->{self.destination.name}"

    # -- timing ------------------------------------------------------------------------------------

    def set_shape(self, shape: LinkShape) -> None:
        """What holds for segments that depart from now on."""
        self.shape = shape
        self.latency_ns = self._base_ns + int(shape.delay_ms * MS)
        self._jitter_ns = self._own_jitter_ns + int(shape.jitter_ms * MS)
        self._repeat = threshold(shape.correlation)
        self._lost_before: bool | None = None
        self._jitter_draw: int | None = None
        # Lost by the shape or, having passed that, by the link itself.
        self._loss = threshold(shape.loss + (1 - shape.loss) * self._own_loss)
        self._busy_until_ns = 0
        self._settle()

    def clog(self, until_ns: int) -> None:
        """Let nothing depart before that."""
        self._clogged_until_ns = max(self._clogged_until_ns, until_ns)
        self._settle()

    def _settle(self) -> None:
        """Plain: a segment departs at once, unless it is lost by a draw of its own."""
        self._plain = not (
            self._repeat or self._clog or self.shape.rate_bytes_s or self._clogged_until_ns
        )

    def transit(self, segment: Segment, now_ns: int) -> int:
        """When a segment sent now arrives. Notes in it when it departs for the last time."""
        number = self._drawn
        self._drawn = number + 1
        at = number % DRAWN_AT_ONCE
        if not at:
            self._jitter_draws, self._loss_draws = _drawn(self._key, self._loss_key, number)
        if self._plain and self._loss_draws[at] >= self._loss:
            segment.lost = 0
            depart_ns = now_ns
        else:
            depart_ns = self._departure(segment, now_ns, number)
        segment.depart_ns = depart_ns
        arrival_ns = depart_ns + self.latency_ns
        if self._jitter_ns:
            if self._repeat:
                arrival_ns += self._jitter(number)
            else:
                arrival_ns += self._jitter_draws[at] * self._jitter_ns >> 32
        return arrival_ns

    def _jitter(self, number: int) -> int:
        draw = self._jitter_draws[number % DRAWN_AT_ONCE]
        if self._repeat:
            if self._jitter_draw is not None and self._repeats(2 * number):
                draw = self._jitter_draw
            self._jitter_draw = draw
        return draw * self._jitter_ns >> 32

    def _repeats(self, number: int) -> bool:
        """Whether a segment meets what the one before it met."""
        return draw_u64(self._repeat_key, number) >> 32 < self._repeat

    def _departure(self, segment: Segment, now_ns: int, number: int) -> int:
        depart_ns = now_ns
        if self._clog or self._clogged_until_ns:
            depart_ns = max(now_ns, self._unclogged_ns(now_ns, number))
        rate = self.shape.rate_bytes_s
        if rate:
            depart_ns = max(depart_ns, self._busy_until_ns) + segment.size * 1_000_000_000 // rate
            self._busy_until_ns = depart_ns
        lost = 0
        if self._loss:
            interval_ns = self.rto_ns
            loses = self._loses if self._repeat else self._draws_loss
            while lost < RETRIES_MAX and loses(number, lost):
                lost += 1
                depart_ns += interval_ns
                interval_ns = min(2 * interval_ns, RTO_MAX_NS)
        segment.lost = lost
        return depart_ns

    def _loses(self, number: int, attempt: int) -> bool:
        if self._repeat and not attempt:
            if self._lost_before is None or not self._repeats(2 * number + 1):
                self._lost_before = self._draws_loss(number, 0)
            return self._lost_before
        return self._draws_loss(number, attempt)

    def _draws_loss(self, number: int, attempt: int) -> bool:
        return draw_u64(self._loss_key, number * (RETRIES_MAX + 1) + attempt) >> 32 < self._loss

    def _unclogged_ns(self, now_ns: int, number: int) -> int:
        if self._clog:
            draw = draw_u64(self._clog_key, number)
            if draw >> 32 < self._clog and self._clogged_until_ns <= now_ns:
                self._clogged_until_ns = now_ns + ((draw & (WORD - 1)) * self._clog_max_ns >> 32)
        return self._clogged_until_ns

    def single(self, now_ns: int) -> int | None:
        """When a segment sent once arrives; None: it does not. For handshakes and bare acks."""
        if self.blocks:
            return None
        number = self._drawn
        self._drawn = number + 1
        if not number % DRAWN_AT_ONCE:
            self._jitter_draws, self._loss_draws = _drawn(self._key, self._loss_key, number)
        if self._loss and self._loses(number, 0):
            return None
        at_ns = max(now_ns, self._clogged_until_ns) + self.latency_ns
        if self._jitter_ns:
            at_ns += self._jitter(number)
        return at_ns

    # -- who sends over it -------------------------------------------------------------------------

    def add(self, lane: Crossing, number: int) -> None:
        self.lanes[number] = lane
        if self.held_back is not None:
            lane.hold_back(is_held_back(self, number))
        if len(self.lanes) >= self._prune_at:
            self.live()
            self._prune_at = max(PRUNE_MIN, 2 * len(self.lanes))

    def live(self) -> list[Crossing]:
        """In order of creation; forgets those that are finished."""
        self.lanes = {number: one for number, one in self.lanes.items() if not one.is_finished}
        return list(self.lanes.values())

    def block(self) -> None:
        """One more reason why nothing passes."""
        self.blocks += 1
        if self.blocks == 1:
            for lane in self.live():
                lane.blocked()

    def unblock(self) -> None:
        """One reason less; with the last, senders try again at their next timeouts."""
        assert self.blocks > 0, f"{self} is not blocked"
        self.blocks -= 1
        if self.blocks == 0:
            for lane in self.live():
                lane.unblocked()

    def hold_back(self, seed: int | None) -> None:
        """Of half of the connections nothing passes from now on, whichever the seed says; None: of
        all everything does. Those that are made later are drawn as well."""
        self.held_back = seed
        self.live()
        for number, lane in list(self.lanes.items()):
            lane.hold_back(is_held_back(self, number))

    def cut(self) -> None:
        self.cuts += 1
        self.block()

    def mend(self) -> None:
        """Of what is not cut: nothing, it comes late."""
        if self.cuts:
            self.cuts -= 1
            self.unblock()

    def reshape(self, shape: LinkShape) -> None:
        """What waits for a retransmission or in the old shape's queue is sent by the new one."""
        self.set_shape(shape)
        for lane in self.live():
            lane.reshaped()

    def heal(self) -> None:
        self._clogged_until_ns = 0
        if self.held_back is not None:
            self.hold_back(None)
        self.reshape(LinkShape())
        while self.cuts:
            self.mend()


def _drawn(jitter_key: int, loss_key: int, first: int) -> tuple[list[int], list[int]]:
    """For the next stretch of segments: what their jitters and their first losses are drawn by."""
    jitters = draw_many(jitter_key, range(first, first + DRAWN_AT_ONCE))
    step = RETRIES_MAX + 1
    losses = draw_many(loss_key, range(first * step, (first + DRAWN_AT_ONCE) * step, step))
    return [word & (WORD - 1) for word in jitters], [word >> 32 for word in losses]


def is_held_back(link: Link, number: int) -> bool:
    """Whether that connection of the link is: about half of them are."""
    if link.held_back is None:
        return False
    return draw_u64(stream_key(link.held_back, "held back", str(link)), number) & 1 == 1
