"""Socket: what a kernel knows of one end of a simulated TCP connection.

A kernel outlives its process: what a killed process had handed to it still arrives, and then the
peer learns that the connection is over. A loss of power takes all that along; the peer learns of it
from the reset that its next segment meets when the host is back. As on Linux, closing with unread
bytes resets the connection, and so do bytes for a socket that is closed. Resets keep their place
behind the bytes sent before, and are sent again like these; a real one may be lost for good.

What is written and not read yet, wherever it is, is limited by a window; a writer that waits for
room hears of it one latency after the reader has made some.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sized
from typing import TYPE_CHECKING, Protocol

from shalott.cluster.sim.loop.trace import way_of
from shalott.cluster.sim.network.addresses import Address, os_error
from shalott.cluster.sim.network.lanes import Lane
from shalott.cluster.sim.network.links import (
    DATA,
    FIN,
    OPEN,
    RESET,
    Link,
    NetworkKnobs,
    Segment,
    stops,
)

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimLoop
    from shalott.cluster.sim.loop.order import Order
    from shalott.cluster.sim.loop.processes import SimProcess

SIGNS = {FIN: "FIN", RESET: "reset", OPEN: "ACK of the handshake"}


class Network(Protocol):
    """What a socket needs of the network (network.py)."""

    loop: SimLoop
    knobs: NetworkKnobs
    segments: int
    bytes: int
    order: Order | None

    @property
    def sockets(self) -> Sockets: ...


class Reader(Protocol):
    """What a socket needs of the program's end of it (transport.py)."""

    @property
    def buffered(self) -> Sized: ...

    def receive(self, payload: bytes) -> None: ...

    def receive_sign(self, sign: int) -> None: ...

    def writable(self) -> None: ...

    def freeze(self) -> None: ...


class Acceptor(Protocol):
    """What a socket needs of the port that it was dialled at (listening.py)."""

    pending: int

    def accept(self, socket: Socket) -> None: ...


class Socket:
    """One end. ``peer`` is the other, ``lane`` leads there and ``back`` is the link from there.

    ``closed``: no program has it any more. ``inbox``: what arrived and was not read yet.
    ``way``: where that comes from and goes to, for the trace.
    """

    __slots__ = (
        "_fin_received",
        "_fin_sent",
        "_network",
        "_reset_sent",
        "_unacked",
        "_wake_set",
        "back",
        "closed",
        "error",
        "inbox",
        "lane",
        "listener",
        "local",
        "number",
        "peer",
        "process",
        "reading",
        "remote",
        "transport",
        "way",
    )

    peer: Socket

    def __init__(
        self,
        network: Network,
        process: SimProcess | None,
        local: Address,
        remote: Address,
        out: Link,
        back: Link,
    ) -> None:
        self._network = network
        self.number = network.sockets.next_number()
        self.process = process
        self.local = local
        self.remote = remote
        self.lane = Lane(network.loop, out, self)
        self.back = back
        self.way = way_of(f"{back.source}:{remote[1]}", f"{back.destination}:{local[1]}")
        self.transport: Reader | None = None
        self.listener: Acceptor | None = None
        self.inbox: deque[bytes | int] = deque()
        self.reading = False
        self.closed = False
        self.error: OSError | None = None  # what the next call on it raises
        self._fin_sent = self._fin_received = self._reset_sent = False
        self._unacked = 0
        self._wake_set = False
        out.add(self.lane, self.number)

    def __repr__(self) -> str:
        return f"<Socket {self.number} {self.local} -> {self.remote}>"

    # -- sending -----------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many bytes the kernels take now."""
        return max(0, self._network.knobs.window_bytes - self._unacked)

    def send(self, data: bytes) -> int:
        """Take what there is room for; says how much."""
        size = min(len(data), self._network.knobs.window_bytes - self._unacked)
        if size <= 0:
            return 0
        if size < len(data):
            data = data[:size]
        self._unacked += size
        lane = self.lane
        process, order = self.process, self._network.order
        lane.send(data, 0 if process is None or order is None else order.told(process.name))
        if lane.link.watches:
            stops(lane.link.watches, self, data, "sent")
        return size

    def shutdown(self) -> None:
        """No more bytes from here."""
        if not self._fin_sent and not self._reset_sent and self.error is None:
            self._fin_sent = True
            self.lane.send_sign(FIN)

    def reset(self) -> None:
        """Tell the peer, after what the kernel already has, that the connection is gone."""
        if not self._reset_sent and self.error is None:
            self._reset_sent = True
            self.lane.send_sign(RESET)

    # -- receiving ---------------------------------------------------------------------------------

    def arrive(self, segment: Segment) -> None:
        """A segment is here; runs in the process that has this end, if one has."""
        network, loop = self._network, self._network.loop
        is_watched = bool(self.back.watches) and segment.kind == DATA
        if is_watched and not segment.was_stopped and self._stops(segment, "before"):
            # It has not arrived yet: should its sender lose power or the link, it is not here. Nor
            # is what was to come in the same instant behind it.
            segment.was_stopped = True
            now_ns, process = loop.now_ns, loop.process
            for each in self.peer.lane.wire:
                if each.arrival_ns <= now_ns and each.handle is not None:
                    each.handle.cancel()
                    each.arrival_ns = now_ns + 1
                    each.handle = loop.call_at_ns(now_ns, self.arrive, each, process=process)
            return
        first = self.peer.lane.wire.popleft()
        assert first is segment, "segments overtook each other"
        segment.handle = None  # its arguments hold the segment: a cycle less for the collector
        network.segments += 1
        kind = segment.kind
        if kind != DATA:
            loop.trace.event(loop.now_ns, f"{self.way[1]} {SIGNS[kind]}")
            self._receive_sign(kind)
            return
        chunks = segment.chunks
        payload = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        network.bytes += segment.size
        loop.trace.segment(loop.now_ns, self.way, payload)
        if network.order is not None and self.process is not None:
            network.order.heard(self.process.name, segment.told)
        if self.closed:
            self.reset()
        elif self.reading and not self.inbox:
            lane = self.lane
            if lane.link.blocks or lane.acks.held:
                lane.acks.send(segment.size)
            else:
                # ``acked``, written out: mostly no writer waits for room.
                peer = self.peer
                peer._unacked -= segment.size
                if peer.transport is not None and peer.transport.buffered:
                    peer.acked(0)
            self.transport.receive(payload)  # type: ignore[union-attr]
        else:
            self.inbox.append(payload)
        if is_watched:
            self._stops(segment, "after")

    def _stops(self, segment: Segment, moment: str) -> bool:
        return stops(self.back.watches, self, b"".join(segment.chunks), moment)

    def _receive_sign(self, kind: int) -> None:
        if kind == OPEN:
            if self.closed or self.listener is None:
                self.reset()
            else:
                self.listener.accept(self)
        elif self.closed:
            if kind == RESET:
                self.lane.drop_held()
        elif kind == RESET:
            self._fail(errno.EPIPE if self._fin_received else errno.ECONNRESET)
        else:
            self._fin_received = True
            self._notify(FIN)

    def never_accepted(self) -> None:
        """The end of the handshake is lost for good; it keeps no place in the backlog."""
        if self.listener is not None:
            self.listener.pending -= 1

    def _notify(self, sign: int) -> None:
        if self.reading and not self.inbox and self.transport is not None:
            self.transport.receive_sign(sign)
        else:
            self.inbox.append(sign)

    def _fail(self, code: int) -> None:
        """The connection is dead; its owner hears of it when it reads, or writes."""
        self.error = os_error(code)
        self.lane.drop_held()
        transport = self.transport
        if transport is not None and transport.buffered:
            transport.receive_sign(RESET)  # a writer that waits is woken by the error
        else:
            self._notify(RESET)

    def acked(self, size: int) -> None:
        """The peer has read so many bytes; there is room for more."""
        self._unacked -= size
        transport = self.transport
        if transport is None or self._wake_set or self.closed:
            return
        if transport.buffered:
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
        """The program gives it up."""
        if not self.closed:
            self._end(resets=False)

    def died(self, *, resets: bool) -> None:
        """Its process was killed; the kernel closes what it had."""
        if not self.closed:
            unread = self.peer.lane.drop_wire()
            self._end(resets=unread or resets)

    def _end(self, *, resets: bool) -> None:
        unread = any(isinstance(item, bytes) for item in self.inbox)
        self._forget()
        if unread or resets:
            self.reset()
        else:
            self.shutdown()

    def vanish(self) -> None:
        """Its host lost power, or its process died in silence: no peer is told."""
        self._forget()
        self.lane.drop_held()
        self.lane.drop_under_way()
        self.lane.acks.drop()
        self.peer._is_alone()

    def _is_alone(self) -> None:
        """What was not read never will be. What has not arrived is sent again, and what waited for
        room is sent too, until the peer answers."""
        lane = self.lane
        lane.recall_under_way()
        lane.drop_wire()
        lane.retries.stop()
        if not lane.link.blocks:
            lane.schedule_release()
        if not self.closed:
            self._unacked = 0
            self.acked(0)

    def _forget(self) -> None:
        self.closed = True
        self.reading = False
        self.inbox.clear()
        self.peer.lane.outlive_reader()
        self._network.sockets.forget(self)

    def gave_up(self) -> None:
        """The kernel has sent its last retransmission."""
        if not self.closed and self.error is None:
            process = self.process
            loop = self._network.loop
            loop.call_at_ns(loop.now_ns, self._time_out, process=process)

    def _time_out(self) -> None:
        if not self.closed and self.error is None:
            self._fail(errno.ETIMEDOUT)


class Sockets:
    """All that programs have, by process."""

    def __init__(self) -> None:
        self._numbers = 0
        self._by_process: dict[SimProcess | None, dict[int, Socket]] = {}

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def remember(self, one: Socket) -> None:
        self._by_process.setdefault(one.process, {})[one.number] = one

    def forget(self, one: Socket) -> None:
        """No program has it any more."""
        self._by_process.get(one.process, {}).pop(one.number, None)

    def of(self, process: SimProcess) -> list[Socket]:
        return list(self._by_process.get(process, {}).values())

    def forget_process(self, process: SimProcess) -> None:
        self._by_process.pop(process, None)

    def close(self) -> None:
        """The simulation is over: no transport calls its program any more."""
        for sockets in self._by_process.values():
            for one in sockets.values():
                if one.transport is not None:
                    one.transport.freeze()
        self._by_process.clear()
