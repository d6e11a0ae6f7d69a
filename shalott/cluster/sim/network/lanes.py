"""Lane: one direction of a simulated TCP connection: a queue that never loses or reorders a byte.

A segment is one event, at its destination and in the context of the process that reads there; bytes
written at one instant travel in one segment. A segment that can't arrive now (its link is blocked)
is held by its sender's kernel and goes again, with everything behind it, at the first
retransmission timeout after the link is whole: 200 ms, 600 ms, 1.4 s, ... after it was held, as
TCP's timeout doubles.

Acks are not events. What the reader takes is subtracted from what its peer has under way at once;
only if the way of the acks is blocked do they wait as segments do, so the peer's window fills.

Simplified, on purpose: no congestion window; a loss always costs a full timeout (there is no fast
retransmit); no keepalive. A kernel whose segments, or the acks of them, were held for as long as
Linux retries (15 timeouts, a quarter of an hour) gives the connection up with ETIMEDOUT.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from shalott.cluster.sim.network.links import (
    DATA,
    OPEN,
    Link,
    Segment,
    give_up_after_ns,
    next_backoff,
)

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimLoop
    from shalott.cluster.sim.loop.processes import SimHandle, SimProcess

PIECES_PER_S = 20  # of a big write over a throttled link: it arrives bit by bit
PIECE_BYTES_MIN = 1_460


class End(Protocol):
    """What a lane needs of the socket that sends over it, and of its peer (tcp.py)."""

    @property
    def closed(self) -> bool: ...

    @property
    def process(self) -> SimProcess | None: ...

    @property
    def peer(self) -> End: ...

    @property
    def lane(self) -> Lane: ...

    def arrive(self, segment: Segment) -> None: ...

    def acked(self, size: int) -> None: ...

    def never_accepted(self) -> None: ...

    def gave_up(self) -> None: ...

    def vanish(self) -> None: ...


class Acks:
    """The acks that travel with a lane. ``held``: bytes that its sender has read and its peer does
    not know of, for the way is blocked."""

    __slots__ = ("_held_since_ns", "_lane", "_loop", "_timer", "held")

    def __init__(self, loop: SimLoop, lane: Lane) -> None:
        self._loop = loop
        self._lane = lane
        self.held = 0
        self._held_since_ns = 0
        self._timer: SimHandle | None = None

    def send(self, size: int) -> None:
        """The sender has read so many bytes of its peer's."""
        peer = self._lane.sender.peer
        if self._lane.link.blocks:
            if not self.held:
                self._held_since_ns = self._loop.now_ns
                peer.lane.retries.expect()
            self.held += size
        elif self.held:
            self.held += size
            self._release()
        else:
            peer.acked(size)

    def blocked(self) -> None:
        self._timer = _cancelled(self._timer)

    def unblocked(self) -> None:
        """Try again at the next timeout."""
        if self.held:
            link = self._lane.link
            at_ns = next_backoff(self._held_since_ns, self._loop.now_ns, link.rto_ns)
            self._timer = self._loop.call_at_ns(at_ns, self._release)

    def drop(self) -> None:
        self.held = 0
        self._timer = _cancelled(self._timer)

    def _release(self) -> None:
        self._timer = _cancelled(self._timer)
        size, self.held = self.held, 0
        peer = self._lane.sender.peer
        peer.lane.retries.stop()
        peer.acked(size)


class Retries:
    """How long a lane's kernel goes on to send again: while segments, or their acks, are held."""

    __slots__ = ("_lane", "_loop", "_timer")

    def __init__(self, loop: SimLoop, lane: Lane) -> None:
        self._loop = loop
        self._lane = lane
        self._timer: SimHandle | None = None

    def expect(self) -> None:
        """A timeout runs: something is not acked."""
        if self._timer is None:
            at_ns = self._loop.now_ns + give_up_after_ns(self._lane.link.rto_ns)
            self._timer = self._loop.call_at_ns(at_ns, self._give_up)

    def stop(self) -> None:
        """Unless something is still held."""
        if not self._lane.held and not self._lane.sender.peer.lane.acks.held:
            self.cancel()

    def cancel(self) -> None:
        self._timer = _cancelled(self._timer)

    def _give_up(self) -> None:
        self._timer = None
        self._lane.gave_up()


class Lane:
    """What ``sender`` sends over ``link``, and the acks that travel with it."""

    __slots__ = (
        "_fresh",
        "_fresh_ns",
        "_held_since_ns",
        "_kept",
        "_last_arrival_ns",
        "_loop",
        "_release_timer",
        "acks",
        "held",
        "link",
        "retries",
        "sender",
        "wire",
    )

    def __init__(self, loop: SimLoop, link: Link, sender: End) -> None:
        self._loop = loop
        self.link = link
        self.sender = sender
        self.wire: deque[Segment] = deque()  # under way, or parked at a paused receiver
        self.held: deque[Segment] = deque()
        self._held_since_ns = 0
        self._last_arrival_ns = 0
        self._fresh: Segment | None = None  # the last one, if bytes may be added to it
        self._fresh_ns = 0
        self.acks = Acks(loop, self)
        self.retries = Retries(loop, self)
        self._release_timer: SimHandle | None = None
        self._kept = False  # held back, while others of the link pass

    @property
    def is_finished(self) -> bool:
        """Whether nothing will come of it any more."""
        return self.sender.closed and not self.wire and not self.held and not self.acks.held

    # -- sending -----------------------------------------------------------------------------------

    def send(self, data: bytes, told: int) -> None:
        """Bytes written at one instant make one segment. ``told``: see Segment."""
        now_ns = self._loop.now_ns
        fresh = self._fresh
        if fresh is not None and self._fresh_ns == now_ns:
            fresh.chunks.append(data)
            fresh.size += len(data)
            fresh.told |= told
            return
        rate = self.link.shape.rate_bytes_s
        if rate:
            piece_bytes = max(PIECE_BYTES_MIN, rate // PIECES_PER_S)
            for start in range(0, len(data), piece_bytes):
                piece = data[start : start + piece_bytes]
                self._submit(Segment(DATA, [piece], len(piece), now_ns, now_ns, told=told))
            return
        self._fresh = fresh = Segment(DATA, [data], len(data), now_ns, now_ns, told=told)
        self._fresh_ns = now_ns
        if self.link.blocks or self.held or self._kept:
            self._hold(fresh)
        else:
            self._transmit(fresh)

    def send_sign(self, kind: int) -> None:
        self._fresh = None
        now_ns = self._loop.now_ns
        self._submit(Segment(kind, [], 0, now_ns, now_ns))

    def _submit(self, segment: Segment) -> None:
        if self.link.blocks or self.held or self._kept:
            self._hold(segment)
        else:
            self._transmit(segment)

    def _transmit(self, segment: Segment) -> None:
        arrival_ns = self.link.transit(segment, self._loop.now_ns)
        if arrival_ns < self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns
        self._last_arrival_ns = segment.arrival_ns = arrival_ns
        self.wire.append(segment)
        peer = self.sender.peer
        process = None if peer.closed else peer.process
        segment.handle = self._loop.call_at_ns(arrival_ns, peer.arrive, segment, process=process)

    # -- links that break --------------------------------------------------------------------------

    def blocked(self) -> None:
        """Nothing arrives any more: what is under way comes back into the kernel."""
        self._release_timer = _cancelled(self._release_timer)
        self.acks.blocked()
        self.recall_under_way()

    def unblocked(self) -> None:
        """Try again at the next timeout."""
        self.schedule_release()
        self.acks.unblocked()

    def hold_back(self, is_so: bool) -> None:
        """What is sent while it is so, or under way then, goes when it is so no more, at once if
        the link is whole.
        """
        was_kept, self._kept = self._kept, is_so
        if is_so:
            self._release_timer = _cancelled(self._release_timer)
            self.recall_under_way()
        elif was_kept and self.held and not self.link.blocks:
            self._release()

    def reshaped(self) -> None:
        """What has not yet left for the last time is sent over the link as it is now."""
        now_ns = self._loop.now_ns
        for number, segment in enumerate(self.wire):
            if segment.depart_ns > now_ns:
                since_ns = segment.first_ns if segment.lost else now_ns
                self._recall(len(self.wire) - number, since_ns)
                break
        if not self.link.blocks:
            self.schedule_release()

    def recall_under_way(self) -> None:
        """Take back what has not arrived."""
        now_ns = self._loop.now_ns
        count = sum(segment.arrival_ns > now_ns for segment in self.wire)
        self._recall(count, now_ns)

    def _recall(self, count: int, since_ns: int) -> None:
        """Hold the last ``count`` segments of the wire, before what is already held."""
        if not count:
            return
        self._fresh = None
        recalled = [self.wire.pop() for _ in range(count)][::-1]
        self._last_arrival_ns = self.wire[-1].arrival_ns if self.wire else 0
        behind, self.held = self.held, deque()
        for segment in recalled:
            assert segment.handle is not None
            segment.handle.cancel()
            self._hold(segment)
        for segment in behind:
            self._hold(segment)
        self._held_since_ns = since_ns

    def _hold(self, segment: Segment) -> None:
        if not self.held:
            self._held_since_ns = self._loop.now_ns
            self.retries.expect()
        elif segment.kind == DATA and self.held[-1].kind == DATA:
            self.held[-1].chunks.extend(segment.chunks)
            self.held[-1].size += segment.size
            self.held[-1].told |= segment.told
            self._fresh = None
            return
        self.held.append(segment)

    def schedule_release(self) -> None:
        if self.held and self._release_timer is None and not self._kept:
            at_ns = next_backoff(self._held_since_ns, self._loop.now_ns, self.link.rto_ns)
            self._release_timer = self._loop.call_at_ns(at_ns, self._release)

    def _release(self) -> None:
        self._release_timer = None
        self._fresh = None
        held, self.held = self.held, deque()
        self.retries.stop()
        for segment in held:
            self._transmit(segment)

    # -- the end -----------------------------------------------------------------------------------

    def drop_held(self) -> None:
        """The kernel forgets what it had to send."""
        for segment in self.held:
            self._dropped(segment)
        self.held.clear()
        self._fresh = None
        self._release_timer = _cancelled(self._release_timer)
        self.retries.cancel()

    def drop_under_way(self) -> None:
        """What has not arrived never will."""
        now_ns = self._loop.now_ns
        self._drop([one for one in self.wire if one.arrival_ns > now_ns])

    def outlive_reader(self) -> None:
        """The reader has closed its end: what is under way to it reaches its kernel, also if its
        process is gone by then."""
        arrive, now_ns = self.sender.peer.arrive, self._loop.now_ns
        for segment in self.wire:
            assert segment.handle is not None
            segment.handle.cancel()
            at_ns = max(segment.arrival_ns, now_ns)
            segment.handle = self._loop.call_at_ns(at_ns, arrive, segment)

    def drop_wire(self) -> bool:
        """No program is there to read it. Whether there was any."""
        return self._drop(list(self.wire))

    def _drop(self, segments: Iterable[Segment]) -> bool:
        """The last ones of the wire."""
        self._fresh = None
        dropped = False
        for segment in segments:
            assert segment.handle is not None
            segment.handle.cancel()
            self.wire.pop()
            self._dropped(segment)
            dropped = True
        return dropped

    def _dropped(self, segment: Segment) -> None:
        if segment.kind == OPEN:
            self.sender.peer.never_accepted()

    def gave_up(self) -> None:
        self.drop_held()
        self.sender.gave_up()


def _cancelled(timer: SimHandle | None) -> SimHandle | None:
    """What to keep instead of the timer: nothing."""
    if timer is not None:
        timer.cancel()
    return None
