"""Socket: what a kernel knows of one end of a simulated TCP connection.

Each direction is a queue of bytes that never loses or reorders one while the connection lives. A
segment is one event, at its destination and in the context of the process that reads there; bytes
written at one instant travel in one segment. A segment that can't arrive now (its link is blocked)
is held by its sender's kernel and goes again at the next retransmission timeout after the link is
whole, with everything behind it. A kernel outlives its process: what a killed process had handed to
it still arrives, and then the peer learns that the connection is over. A loss of power takes all
that along; the peer learns of it from the reset that its next segment meets when the host is back.

Acks are not events. What the reader has taken is subtracted from ``unacked`` at once; a writer that
waits for room hears of it one latency later. If the way back is blocked, acks wait as segments do,
so the window fills.

Simplified, on purpose: no congestion window, a loss always costs a full timeout (there is no fast
retransmit), no keepalive, no TIME_WAIT. A sender whose segments or acks were held for as long as
Linux retries (15 timeouts, about a quarter of an hour) gets ETIMEDOUT; its peer is not told.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING

from cluster.sim.links import Link, give_up_after_ns, next_backoff

if TYPE_CHECKING:
    from cluster.sim.listening import Listener
    from cluster.sim.loop import SimHandle
    from cluster.sim.network import SimNetwork
    from cluster.sim.processes import SimProcess
    from cluster.sim.transport import SimTransport

DATA, FIN, RESET, OPEN = range(4)  # OPEN: the end of the handshake, accepted by the listener
PIECES_PER_S = 20  # of a big write over a throttled link: it arrives bit by bit
PIECE_BYTES_MIN = 1_460

Address = tuple[str, int]


class Segment:
    """Bytes, or one of the signs, on their way."""

    __slots__ = ("arrival_ns", "chunks", "depart_ns", "first_ns", "handle", "kind", "lost", "size")

    def __init__(self, kind: int, chunks: list[bytes], size: int, first_ns: int) -> None:
        self.kind = kind
        self.chunks = chunks
        self.size = size
        self.first_ns = first_ns
        self.depart_ns = first_ns  # of its last transmission
        self.arrival_ns = 0
        self.lost = 0  # times
        self.handle: SimHandle | None = None


class Socket:
    """One end. ``peer`` is the other; ``out`` the link that leads to it, ``back`` the one from it.

    ``closed``: no program has it any more. ``inbox``: what arrived and nobody reads yet.
    """

    __slots__ = (
        "_ack_timer",
        "_acks_held",
        "_acks_held_since_ns",
        "_fresh",
        "_fresh_ns",
        "_give_up_timer",
        "_held",
        "_held_since_ns",
        "_last_arrival_ns",
        "_network",
        "_release_timer",
        "_unacked",
        "_wake_set",
        "_wire",
        "back",
        "closed",
        "error",
        "fin_received",
        "fin_sent",
        "inbox",
        "listener",
        "local",
        "number",
        "out",
        "peer",
        "process",
        "reading",
        "remote",
        "reset_sent",
        "transport",
    )

    peer: Socket

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess | None,
        local: Address,
        remote: Address,
        out: Link,
        back: Link,
    ) -> None:
        self._network = network
        self.number = network.next_number()
        self.process = process
        self.local = local
        self.remote = remote
        self.out = out
        self.back = back
        self.transport: SimTransport | None = None
        self.listener: Listener | None = None
        self.inbox: deque[bytes | int] = deque()
        self.reading = False
        self.closed = False
        self.error: OSError | None = None  # what the next call on it raises
        self.fin_sent = self.fin_received = self.reset_sent = False
        self._wire: deque[Segment] = deque()  # under way, or parked at a paused receiver
        self._held: deque[Segment] = deque()
        self._held_since_ns = 0
        self._last_arrival_ns = 0
        self._fresh: Segment | None = None  # the last one, if bytes may be added to it
        self._fresh_ns = 0
        self._unacked = 0
        self._acks_held = 0  # for the peer
        self._acks_held_since_ns = 0
        self._wake_set = False
        self._release_timer: SimHandle | None = None
        self._ack_timer: SimHandle | None = None
        self._give_up_timer: SimHandle | None = None
        out.add(self)

    def __repr__(self) -> str:
        return f"<Socket {self.number} {self.local} -> {self.remote}>"

    @property
    def is_finished(self) -> bool:
        """Whether nothing of it matters to anybody any more."""
        return self.closed and not self._wire and not self._held and not self._acks_held

    # -- sending -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> int:
        """Take what there is room for; says how much."""
        size = min(len(data), self._network.knobs.window_bytes - self._unacked)
        if size <= 0:
            return 0
        if size < len(data):
            data = data[:size]
        self._unacked += size
        now_ns = self._network.loop.now_ns
        fresh = self._fresh
        if fresh is not None and self._fresh_ns == now_ns:
            fresh.chunks.append(data)
            fresh.size += size
            return size
        rate = self.out.shape.rate_bytes_s
        if rate:
            self._send_pieces(data, max(PIECE_BYTES_MIN, rate // PIECES_PER_S), now_ns)
            return size
        self._fresh = fresh = Segment(DATA, [data], size, now_ns)
        self._fresh_ns = now_ns
        self._submit(fresh)
        return size

    def _send_pieces(self, data: bytes, piece_bytes: int, now_ns: int) -> None:
        for start in range(0, len(data), piece_bytes):
            piece = data[start : start + piece_bytes]
            self._submit(Segment(DATA, [piece], len(piece), now_ns))

    def send_open(self) -> None:
        """The third step of the handshake."""
        self._send_sign(OPEN)

    def shutdown(self) -> None:
        """No more bytes from here."""
        if not self.fin_sent and not self.reset_sent and self.error is None:
            self.fin_sent = True
            self._send_sign(FIN)

    def reset(self) -> None:
        """Tell the peer, after what the kernel already has, that the connection is gone."""
        if not self.reset_sent and self.error is None:
            self.reset_sent = True
            self._send_sign(RESET)

    def _send_sign(self, kind: int) -> None:
        self._fresh = None
        self._submit(Segment(kind, [], 0, self._network.loop.now_ns))

    def _submit(self, segment: Segment) -> None:
        if self.out.blocks or self._held:
            self._hold(segment)
        else:
            self._transmit(segment)

    def _transmit(self, segment: Segment) -> None:
        loop = self._network.loop
        arrival_ns = self.out.transit(segment, loop.now_ns)
        if arrival_ns < self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns
        self._last_arrival_ns = segment.arrival_ns = arrival_ns
        self._wire.append(segment)
        peer = self.peer
        process = None if peer.closed else peer.process
        segment.handle = loop.call_at_ns(arrival_ns, peer.arrive, segment, process=process)

    # -- receiving ---------------------------------------------------------------------------------

    def arrive(self, segment: Segment) -> None:
        """A segment is here; runs in the process that has this end, if one has."""
        network = self._network
        first = self.peer._wire.popleft()
        assert first is segment, "segments overtook each other"
        network.segments += 1
        kind = segment.kind
        if kind == DATA:
            chunks = segment.chunks
            payload = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            network.bytes += segment.size
            network.loop.trace.segment(network.loop.now_ns, payload)
            if self.closed:
                self.reset()
            elif self.reading and not self.inbox:
                self.taken(segment.size)
                self.transport.receive(payload)  # type: ignore[union-attr]
            else:
                self.inbox.append(payload)
            return
        network.loop.trace.segment(network.loop.now_ns, SIGNS[kind])
        if kind == OPEN:
            self._accept()
        elif self.closed:
            if kind == RESET:
                self._drop_output()
        elif kind == RESET:
            self._fail(errno.EPIPE if self.fin_received else errno.ECONNRESET)
        else:
            self.fin_received = True
            self._notify(FIN)

    def _accept(self) -> None:
        if self.closed or self.listener is None:
            self.reset()
        else:
            self.listener.accept(self)

    def _notify(self, sign: int) -> None:
        if self.reading and not self.inbox and self.transport is not None:
            self.transport.receive_sign(sign)
        else:
            self.inbox.append(sign)

    def _fail(self, code: int) -> None:
        """The connection is dead; whoever has it hears of it when he reads, or writes."""
        self.error = os_error(code)
        self._drop_output()
        transport = self.transport
        if transport is not None and transport.get_write_buffer_size():
            transport.receive_sign(RESET)  # a writer that waits is woken by the error
        else:
            self._notify(RESET)

    def taken(self, size: int) -> None:
        """The program has read ``size`` bytes: ack them."""
        if self.out.blocks:
            if not self._acks_held:
                self._acks_held_since_ns = self._network.loop.now_ns
                self.peer._expect_give_up()
            self._acks_held += size
        elif self._acks_held:
            self._acks_held += size
            self._release_acks()
        else:
            self.peer._acked(size)

    def _acked(self, size: int) -> None:
        self._unacked -= size
        transport = self.transport
        if transport is None or self._wake_set or self.closed:
            return
        if transport.get_write_buffer_size():
            self._wake_set = True
            loop = self._network.loop
            at_ns = loop.now_ns + self.back.latency_ns
            loop.call_at_ns(at_ns, self._wake, process=self.process)

    def _wake(self) -> None:
        self._wake_set = False
        if self.transport is not None and not self.closed:
            self.transport.writable()

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """The program gives it up. As Linux: unread bytes make a reset of it."""
        if self.closed:
            return
        self._end(resets=False)

    def died(self, *, resets: bool) -> None:
        """Its process was killed; the kernel closes what it had."""
        if self.closed:
            return
        self._end(resets=self.peer._drop_wire(since_ns=0) or resets)

    def _end(self, *, resets: bool) -> None:
        unread = any(isinstance(item, bytes) for item in self.inbox)
        self._forget()
        if unread or resets:
            self.reset()
        else:
            self.shutdown()

    def vanish(self) -> None:
        """Its host lost power, or its process died in silence: nobody is told."""
        if not self.closed:
            self._forget()
        now_ns = self._network.loop.now_ns
        self._drop_output()
        self._drop_wire(since_ns=now_ns + 1)
        self._acks_held = 0
        self.peer._lost_its_peer(now_ns)

    def _lost_its_peer(self, now_ns: int) -> None:
        """What was not read never will be. It sends what has not arrived again, and what waited
        for room too, until somebody answers."""
        self._recall([one for one in self._wire if one.arrival_ns > now_ns], now_ns)
        self._drop_wire(since_ns=0)
        self._stop_giving_up()
        if not self.out.blocks:
            self._schedule_release(now_ns)
        if not self.closed:
            self._unacked = 0
            self._acked(0)

    def _forget(self) -> None:
        self.closed = True
        self.reading = False
        self.inbox.clear()
        self._network.forget(self)

    def _drop_output(self) -> None:
        self._held.clear()
        self._fresh = None
        for timer in (self._release_timer, self._give_up_timer):
            if timer is not None:
                timer.cancel()
        self._release_timer = self._give_up_timer = None

    def _drop_wire(self, *, since_ns: int) -> bool:
        """Drop what arrives then or later. Whether there was any."""
        self._fresh = None
        dropped = False
        while self._wire and self._wire[-1].arrival_ns >= since_ns:
            handle = self._wire.pop().handle
            assert handle is not None
            handle.cancel()
            dropped = True
        return dropped

    # -- links that break --------------------------------------------------------------------------

    def link_blocked(self) -> None:
        """Nothing arrives any more: what is under way comes back into the kernel."""
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        now_ns = self._network.loop.now_ns
        self._recall([one for one in self._wire if one.arrival_ns > now_ns], now_ns)

    def link_unblocked(self) -> None:
        """Try again at the next timeout."""
        now_ns = self._network.loop.now_ns
        self._schedule_release(now_ns)
        if self._acks_held:
            at_ns = next_backoff(self._acks_held_since_ns, now_ns, self.out.rto_ns)
            self._ack_timer = self._network.loop.call_at_ns(at_ns, self._release_acks)

    def link_reshaped(self) -> None:
        """What has not yet left for the last time is sent over the link as it is now."""
        now_ns = self._network.loop.now_ns
        late = [one for one in self._wire if one.depart_ns > now_ns]
        if not late:
            return
        first = next(n for n, one in enumerate(self._wire) if one is late[0])
        since_ns = late[0].first_ns if late[0].lost else now_ns
        self._recall(list(self._wire)[first:], since_ns)
        if not self.out.blocks:
            self._schedule_release(now_ns)

    def _recall(self, segments: list[Segment], since_ns: int) -> None:
        """Take the last ``segments`` of the wire back, before what is already held."""
        if not segments:
            return
        for segment in segments:
            assert segment.handle is not None
            segment.handle.cancel()
            self._wire.pop()
        behind, self._held = self._held, deque()
        self._fresh = None
        self._last_arrival_ns = self._wire[-1].arrival_ns if self._wire else 0
        for segment in (*segments, *behind):
            self._hold(segment)
        self._held_since_ns = since_ns

    def _hold(self, segment: Segment) -> None:
        if not self._held:
            self._held_since_ns = self._network.loop.now_ns
            self._expect_give_up()
        elif segment.kind == DATA and self._held[-1].kind == DATA:
            self._held[-1].chunks.extend(segment.chunks)
            self._held[-1].size += segment.size
            self._fresh = None
            return
        self._held.append(segment)

    def _schedule_release(self, now_ns: int) -> None:
        if self._held and self._release_timer is None:
            at_ns = next_backoff(self._held_since_ns, now_ns, self.out.rto_ns)
            self._release_timer = self._network.loop.call_at_ns(at_ns, self._release)

    def _release(self) -> None:
        self._release_timer = None
        self._fresh = None
        held, self._held = self._held, deque()
        self._stop_giving_up()
        for segment in held:
            self._transmit(segment)

    def _release_acks(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        size, self._acks_held = self._acks_held, 0
        self.peer._stop_giving_up()
        self.peer._acked(size)

    def _expect_give_up(self) -> None:
        if self._give_up_timer is None:
            loop = self._network.loop
            at_ns = loop.now_ns + give_up_after_ns(self.out.rto_ns)
            process = None if self.closed else self.process
            self._give_up_timer = loop.call_at_ns(at_ns, self._give_up, process=process)

    def _stop_giving_up(self) -> None:
        if self._give_up_timer is not None and not self._held and not self.peer._acks_held:
            self._give_up_timer.cancel()
            self._give_up_timer = None

    def _give_up(self) -> None:
        self._give_up_timer = None
        if self.closed:
            self._drop_output()
        elif self.error is None:
            self._fail(errno.ETIMEDOUT)


SIGNS = {FIN: b"FIN", RESET: b"RST", OPEN: b"ACK"}


def os_error(code: int) -> OSError:
    """ConnectionResetError and its like."""
    return OSError(code, os.strerror(code))
