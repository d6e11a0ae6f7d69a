"""Relays: every inter-node link of the local backend goes through one, and there it can be cut.

For each ordered pair of nodes and each port there is a listener; the source dials it instead of
the destination, so the listener knows who talks to whom. A connection has two lanes, one on each
direction's link (cluster/local/links.py). A new connection needs both directions, as TCP's
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
from collections.abc import Mapping, Sequence

from shalott.cluster.local.links import DirectedLink, Lane, Mark
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
            self.abort()  # nobody listens there: the dialler sees its connection reset

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
