"""Listeners and servers: who accepts connections on a simulated host, as asyncio's own Server does.

The kernel completes handshakes by itself, also while the process is paused, until the backlog is
full; the process then accepts in its own time. A listener ends with its server or its process; what
it had not accepted is reset.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from shalott.cluster.sim.network.addresses import Address, SocketName
from shalott.cluster.sim.network.tcp import Socket
from shalott.cluster.sim.network.transport import ProtocolFactory, SimTransport

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimLoop
    from shalott.cluster.sim.loop.processes import SimProcess


class Listener:
    """One bound port. ``pending``: connections whose handshake is done and that no program
    accepted."""

    __slots__ = ("_backlog", "address", "listening", "pending", "process", "server")

    def __init__(
        self, server: SimServer, address: Address, process: SimProcess | None, backlog: int
    ) -> None:
        self.server = server
        self.address = address
        self.process = process
        self.listening = False
        self.pending = 0
        self._backlog = backlog

    @property
    def is_full(self) -> bool:
        return self.pending > self._backlog

    def accept(self, socket: Socket) -> None:
        """Runs in the listener's process."""
        self.pending -= 1
        if self.listening:
            self.server.accept(socket)
        else:
            socket.died(resets=True)


class HasPorts(Protocol):
    def unbind(self, listener: Listener) -> None: ...


class SimServer(asyncio.AbstractServer):
    """What ``create_server`` returns."""

    def __init__(self, loop: SimLoop, network: HasPorts, factory: ProtocolFactory) -> None:
        self._loop = loop
        self._network = network
        self._factory = factory
        self._listeners: list[Listener] | None = []
        self._active = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._serving = False
        self._forever: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<SimServer {self.sockets!r}>"

    def add(self, listener: Listener) -> None:
        assert self._listeners is not None
        self._listeners.append(listener)

    @property
    def sockets(self) -> tuple[SocketName, ...]:
        if self._listeners is None:
            return ()
        return tuple(SocketName(listener.address) for listener in self._listeners)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._serving

    def close(self) -> None:
        listeners, self._listeners = self._listeners, None
        if listeners is None:
            return
        for listener in listeners:
            self._network.unbind(listener)
        self._serving = False
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
            self._forever = None
        self._wake_if_done()

    async def start_serving(self) -> None:
        self.serve()
        await asyncio.sleep(0)

    def serve(self) -> None:
        if self._listeners is None:
            raise RuntimeError(f"server {self!r} is closed")
        self._serving = True
        for listener in self._listeners:
            listener.listening = True

    async def serve_forever(self) -> None:
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        self.serve()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    async def wait_closed(self) -> None:
        """Returns at once if the server is closed, as in CPython 3.11, and on every version: a plan
        gives one run. Since 3.12 asyncio's own waits for the connections too.
        """
        if self._listeners is None:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def accept(self, socket: Socket) -> None:
        """Make the program's end of a connection."""
        try:
            protocol = self._factory()
        except BaseException:
            socket.close()
            raise
        SimTransport(self._loop, socket, protocol, server=self)

    def attach(self) -> None:
        self._active += 1

    def detach(self) -> None:
        self._active -= 1
        self._wake_if_done()

    def _wake_if_done(self) -> None:
        if self._listeners is None and self._active == 0:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
