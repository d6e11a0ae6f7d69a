"""Relays: every inter-node link of the local backend goes through one, and there it can be cut.

For each ordered pair of nodes and each port there is a listener; the source dials it instead of
the destination, so the listener knows who talks to whom. A connection has two lanes, one on each
direction's link (``DirectedLink``). A new connection needs both directions, as TCP's
handshake does: while either is cut, it is accepted by the kernel but goes nowhere until both are
mended. All relays of a cluster run in a process of their own (relay_process.py).

A probe is a connection from a port that this object has announced to itself. It passes the
listener and one lane as any other bytes do, and ends in a future instead of the destination, so
the broker never sees it.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from shalott.cluster.nodes import Endpoint, Link
from shalott.core.errors import HarnessError

HOST = "127.0.0.1"


class Relays:
    """The relays between all nodes of one cluster."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.links: dict[Link, DirectedLink] = {
            (a, b): DirectedLink() for a in nodes for b in nodes if a != b
        }
        self._servers: dict[tuple[str, str, str], asyncio.Server] = {}
        self._connections: dict[RelayedConnection, None] = {}
        self._probes: dict[tuple[str, int], ProbeEnd] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False

    async def open(self, targets: Mapping[str, Mapping[str, Endpoint]]) -> None:
        """Listen for every pair and port. ``targets[node][port]``: where the node really
        listens."""
        for source, destination in self.links:
            for port, target in targets[destination].items():
                await self._listen(source, destination, port, target)

    async def _listen(self, source: str, destination: str, port: str, target: Endpoint) -> None:
        loop = asyncio.get_running_loop()

        def accept() -> asyncio.Protocol:
            return Near(self, source, destination, target)

        try:
            server = await loop.create_server(accept, HOST, 0, backlog=256)
        except OSError as error:
            raise HarnessError(f"cannot listen on {HOST}: {error.strerror}") from error
        self._servers[source, destination, port] = server

    def endpoint(self, source: str, destination: str, port: str) -> Endpoint:
        """Where ``source`` dials ``destination``."""
        host, number = self._servers[source, destination, port].sockets[0].getsockname()[:2]
        return Endpoint(host, number)

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._closing = True
        for connection in list(self._connections):
            connection.abort()
        # Transports tell of their end in callbacks; their sockets are closed once those have run.
        await self._idle.wait()
        await asyncio.gather(*(server.wait_closed() for server in self._servers.values()))
        self._servers.clear()

    async def probe(self, source: str, destination: str, timeout_ms: int) -> bool:
        """Whether a byte sent by ``source`` comes out at ``destination``'s end of the link."""
        port = next(p for a, b, p in self._servers if (a, b) == (source, destination))
        at = self.endpoint(source, destination, port)
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sender:
            sender.setblocking(False)
            sender.bind((HOST, 0))
            end = ProbeEnd(secrets.token_bytes(16))
            self._probes[sender.getsockname()] = end
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await loop.sock_connect(sender, (at.host, at.port))
                    await loop.sock_sendall(sender, end.token)
                    await end.arrived
            except (TimeoutError, OSError):
                return False
            finally:
                del self._probes[sender.getsockname()]
        return True

    @property
    def is_closing(self) -> bool:
        return self._closing

    def probe_end(self, peer: tuple[str, int]) -> ProbeEnd | None:
        """The end of the probe that was announced for this address, if there is one."""
        return self._probes.get(peer)

    def add(self, connection: RelayedConnection) -> None:
        self._connections[connection] = None
        self._idle.clear()

    def discard(self, connection: RelayedConnection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._idle.set()


class ProbeEnd:
    """The far end of a probe: a sink that knows its token."""

    def __init__(self, token: bytes) -> None:
        self.token = token
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._seen = b""

    def write(self, data: bytes) -> None:
        self._seen += data
        if self._seen == self.token and not self.arrived.done():
            self.arrived.set_result(None)

    def write_eof(self) -> None:
        return

    def abort(self) -> None:
        return

    def is_closing(self) -> bool:
        return False


class RelayedConnection:
    """Both lanes of one connection and the two transports between which they run."""

    def __init__(self, relays: Relays, source: str, destination: str, target: Endpoint) -> None:
        self._relays = relays
        self._target = target
        self._links = (relays.links[source, destination], relays.links[destination, source])
        self.forth = Lane(self._links[0], self._lane_ended)
        self.back = Lane(self._links[1], self._lane_ended)
        self.near: asyncio.Transport | None = None
        self.far: asyncio.Transport | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._lanes_ended = 0
        self._gone = 0  # transports that are closed for good
        relays.add(self)

    def opened(self, near: asyncio.Transport) -> None:
        self.near = near
        self.forth.source = near
        if self._relays.is_closing:
            near.abort()
            return
        end = self._relays.probe_end(near.get_extra_info("peername"))
        if end is not None:
            self.forth.connect(near, end)
        else:
            self._dial_when_whole()

    def _dial_when_whole(self) -> None:
        for link in self._links:
            if link.is_cut:
                link.when_mended(self._dial_when_whole)
                return
        if self.near is not None and not self.near.is_closing():
            self._dialling = asyncio.create_task(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: Far(self), *(self._target.host, self._target.port))
        except OSError:
            self.abort()  # no server listens there: the dialler sees its connection reset

    def joined(self, far: asyncio.Transport) -> None:
        assert self.near is not None
        self.far = far
        if self.near.is_closing():
            far.abort()
            return
        self.forth.connect(self.near, far)
        self.back.connect(far, self.near)

    def near_ended(self) -> bool:
        """The dialler closed its side. Returns whether the transport stays open for the way
        back."""
        if self.far is None:
            return False  # it gave up before the connection was there
        self.forth.feed(Mark.END)
        return True

    def _lane_ended(self) -> None:
        """Closed in order in one direction; with the second the connection is over."""
        self._lanes_ended += 1
        if self._lanes_ended == 2:
            for transport in (self.near, self.far):
                if transport is not None:
                    transport.close()

    def abort(self) -> None:
        """Reset both sides now."""
        if self._dialling is not None:
            self._dialling.cancel()
        for transport in (self.near, self.far):
            if transport is not None:
                transport.abort()

    def lost(self, lane: Lane, error: Exception | None) -> None:
        """A transport is gone. If it broke, its peer learns of it through the lane: late, if that
        is cut."""
        if error is not None:
            lane.feed(Mark.RESET)
        self._gone += 1
        if self.far is None and self._dialling is not None:
            self._dialling.cancel()
        if self._gone == 1 + (self.far is not None):
            self.forth.close()
            self.back.close()
            self._relays.discard(self)


class Near(asyncio.Protocol):
    """The dialler's side."""

    def __init__(self, relays: Relays, source: str, destination: str, target: Endpoint) -> None:
        self._connection = RelayedConnection(relays, source, destination, target)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection.opened(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.forth.feed(data)

    def eof_received(self) -> bool:
        return self._connection.near_ended()

    def pause_writing(self) -> None:
        self._connection.back.sink_is_full(True)

    def resume_writing(self) -> None:
        self._connection.back.sink_is_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        connection = self._connection
        connection.lost(connection.forth, error)


class Far(asyncio.Protocol):
    """The destination's side."""

    def __init__(self, connection: RelayedConnection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection.joined(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.back.feed(data)

    def eof_received(self) -> bool:
        self._connection.back.feed(Mark.END)
        return True

    def pause_writing(self) -> None:
        self._connection.forth.sink_is_full(True)

    def resume_writing(self) -> None:
        self._connection.forth.sink_is_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        connection = self._connection
        connection.lost(connection.back, error)


# -- DirectedLink and Lane: what one direction of a relayed connection does with its bytes.
#
# A link is what a fault speaks of: (source, destination), cut or not, with a delay and a rate. A
# lane is one direction of one TCP connection over it. A cut link holds its bytes as TCP would:
# nothing more is read from the sender, so its buffers fill and it hangs; what was read already
# waits here; all of it goes on in order after the mend, the end of the stream too. So a node that
# dies behind a cut is not noticed on the other side until the cut ends.
HELD_BYTES_MAX = 256 * 1024  # per lane; then the sender is no longer read
SLICE_S = 0.02  # a throttled lane sends at most this much worth of bytes at once


class Mark(Enum):
    """What a lane carries besides bytes, in their order."""

    END = "the sender closed its side"
    RESET = "the sender's connection broke"


class Sink(Protocol):
    """Where a lane's bytes go: a transport, or a probe."""

    def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool: ...


class Source(Protocol):
    """Where a lane's bytes come from: a transport."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool: ...


class DirectedLink:
    """All that is sent from one node to another, over all connections."""

    def __init__(self) -> None:
        self.is_cut = False
        self.delay_s = 0.0
        self.rate_bytes_s = 0
        self.free_at = 0.0  # when the throttled line has sent what it was given
        self._lanes: dict[Lane, None] = {}
        self._on_mend: list[Callable[[], None]] = []

    def add(self, lane: Lane) -> None:
        self._lanes[lane] = None

    def discard(self, lane: Lane) -> None:
        self._lanes.pop(lane, None)

    def set_cut(self, is_cut: bool) -> None:
        self.is_cut = is_cut
        self._wake()
        if not is_cut:
            waiting, self._on_mend = self._on_mend, []
            for callback in waiting:
                callback()

    def set_shape(self, delay_s: float, rate_bytes_s: int) -> None:
        self.delay_s, self.rate_bytes_s, self.free_at = delay_s, rate_bytes_s, 0.0
        self._wake()

    def when_mended(self, callback: Callable[[], None]) -> None:
        """Call back once, at the next mend."""
        self._on_mend.append(callback)

    def _wake(self) -> None:
        for lane in list(self._lanes):
            lane.pump()


class Lane:
    """One direction of one connection. ``sink`` is None until the far side is connected.

    ``on_end`` is called when the end of the stream has been passed on.
    """

    def __init__(self, link: DirectedLink, on_end: Callable[[], None]) -> None:
        self.link = link
        self._on_end = on_end
        self.source: Source | None = None
        self.sink: Sink | None = None
        self._sink_full = False
        self._reading = True
        self._queue: deque[tuple[float, bytes | Mark]] = deque()  # each when it is due
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        link.add(self)

    def feed(self, item: bytes | Mark) -> None:
        """Something from the sender."""
        self._queue.append((self._loop.time() + self.link.delay_s, item))
        self._held_bytes += len(item) if isinstance(item, bytes) else 0
        self.pump()

    def connect(self, source: Source, sink: Sink) -> None:
        self.source, self.sink = source, sink
        self.pump()

    def sink_is_full(self, full: bool) -> None:
        """The receiver's side says whether it takes more."""
        self._sink_full = full
        self.pump()

    def close(self) -> None:
        self.link.discard(self)
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def pump(self) -> None:
        """Send what may go now; come back when more may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and self.sink is not None and not (self.link.is_cut or self._sink_full):
            due, item = self._queue[0]
            wait_until = max(due, self.link.free_at if self.link.rate_bytes_s else 0)
            if wait_until > self._loop.time():
                self._timer = self._loop.call_at(wait_until, self.pump)
                break
            self._queue.popleft()
            if isinstance(item, Mark):
                self._pass_on(self.sink, item)
            else:
                self._send(self.sink, due, item)
        self._regulate()

    def _pass_on(self, sink: Sink, mark: Mark) -> None:
        if mark is Mark.RESET:
            sink.abort()
        else:
            sink.write_eof()
            self._on_end()

    def _send(self, sink: Sink, due: float, data: bytes) -> None:
        rate = self.link.rate_bytes_s
        if rate:
            size = max(1, int(rate * SLICE_S))
            if len(data) > size:
                self._queue.appendleft((due, data[size:]))
                data = data[:size]
            self.link.free_at = max(self._loop.time(), self.link.free_at) + len(data) / rate
        self._held_bytes -= len(data)
        if not sink.is_closing():  # else the receiver is gone, and its reset is on its way back
            sink.write(data)

    def _regulate(self) -> None:
        """Read from the sender only while there is room and the link is whole."""
        # Before the far side is connected reading goes on: a dialler that gives up must be noticed.
        blocked = self.sink is not None and (self.link.is_cut or self._sink_full)
        wanted = not blocked and self._held_bytes < HELD_BYTES_MAX
        if self.source is None or wanted == self._reading or self.source.is_closing():
            return
        self._reading = wanted
        if wanted:
            self.source.resume_reading()
        else:
            self.source.pause_reading()
