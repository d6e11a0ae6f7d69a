"""Dial: the handshake of a simulated TCP connection, seen from the side that connects.

SYN, SYN-ACK and the last ACK are one event each. A SYN that is not answered, because it or its
answer is lost, its link cut, the host without power or the backlog full, is sent again after 1 s,
2 s, 4 s and so on, until the caller stops waiting or the kernel gives up after 127 s (Linux,
tcp_syn_retries 6). Only a kernel that is there can refuse.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Protocol

from shalott.cluster.sim.network.addresses import MESSAGES, Address
from shalott.cluster.sim.network.links import OPEN
from shalott.cluster.sim.network.tcp import Network, Socket

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.processes import SimHandle, SimProcess
    from shalott.cluster.sim.network.links import Host, Link
    from shalott.cluster.sim.network.listening import Listener, Ports

SECOND_NS = 1_000_000_000
SYN_RETRIES = 6
NO_LISTENER = "nobody"  # the trace's word


class DialledNetwork(Network, Protocol):
    """What an attempt needs of the network (network.py)."""

    def link(self, source: Host, destination: Host) -> Link: ...

    @property
    def ports(self) -> Ports: ...


class Dial:
    """One attempt. ``connected`` gets the socket, or the error."""

    def __init__(
        self,
        network: DialledNetwork,
        process: SimProcess | None,
        source: Host,
        destination: Host,
        local: Address,
        remote: Address,
    ) -> None:
        self._network = network
        self._loop = network.loop
        self._process = process
        self._host = destination
        self._local = local
        self._remote = remote
        self._out = network.link(source, destination)
        self._back = network.link(destination, source)
        self._sent = 0
        self._timer: SimHandle | None = None
        self.connected: asyncio.Future[Socket] = self._loop.create_future()

    async def run(self) -> Socket:
        """Raises ConnectionRefusedError, TimeoutError."""
        self._send_syn()
        try:
            return await self.connected
        finally:
            if self._timer is not None:
                self._timer.cancel()

    @property
    def _is_over(self) -> bool:
        process = self._process
        return self.connected.done() or (process is not None and process.state == "dead")

    def _send_syn(self) -> None:
        if self._is_over:
            return
        if self._sent > SYN_RETRIES:
            self._end(errno.ETIMEDOUT)
            return
        now_ns = self._loop.now_ns
        again_ns = now_ns + (SECOND_NS << self._sent)
        self._sent += 1
        self._timer = self._loop.call_at_ns(again_ns, self._send_syn)
        arrival_ns = self._out.single(now_ns)
        if arrival_ns is not None:
            self._loop.call_at_ns(arrival_ns, self._syn_arrives)

    def _syn_arrives(self) -> None:
        """At the other host's kernel."""
        if self._out.blocks:
            return
        listener = self._network.ports.listener(self._host, self._remote)
        self._tell("SYN", listener)
        if listener is not None and listener.is_full:
            return
        arrival_ns = self._back.single(self._loop.now_ns)
        if arrival_ns is not None:
            self._loop.call_at_ns(arrival_ns, self._answered, listener)

    def _answered(self, listener: Listener | None) -> None:
        """Back at the kernel of the one that dials."""
        if self._is_over or self._back.blocks:
            return
        self._tell("answer to SYN", listener)
        if listener is None:
            self._end(errno.ECONNREFUSED)
            return
        if listener.is_full:  # by now; it takes no notice of the last ACK
            return
        client, server = self._pair(listener)
        if listener.listening:
            listener.pending += 1
        else:
            server.closed = True
            self._network.sockets.forget(server)
        client.lane.send_sign(OPEN)  # the third step of the handshake
        self.connected.set_result(client)

    def _tell(self, what: str, listener: Listener | None) -> None:
        """Note in the trace what arrived, and whether a program listens."""
        met = (
            NO_LISTENER
            if listener is None
            else "a full backlog"
            if listener.is_full
            else "listener"
        )
        way = f"{self._out.source}:{self._local[1]} -> {self._host}:{self._remote[1]}"
        self._loop.trace.event(self._loop.now_ns, f"{way} {what}, {met}")

    def _pair(self, listener: Listener) -> tuple[Socket, Socket]:
        network, local, remote = self._network, self._local, self._remote
        client = Socket(network, self._process, local, remote, self._out, self._back)
        server = Socket(network, listener.process, remote, local, self._back, self._out)
        client.peer, server.peer = server, client
        server.listener = listener
        network.sockets.remember(client)
        network.sockets.remember(server)
        return client, server

    def _end(self, code: int) -> None:
        if not self.connected.done():
            message = f"Connect call failed {self._remote}"
            if code == errno.ETIMEDOUT:
                message = f"{MESSAGES[code]}: {message}"
            self.connected.set_exception(OSError(code, message))
