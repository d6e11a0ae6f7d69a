"""Listeners and servers: who accepts connections on a simulated host, as asyncio's own Server does.

The kernel completes handshakes by itself, also while the process is paused, until the backlog is
full; the process then accepts in its own time. A listener ends with its server or its process; what
it had not accepted is reset.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

from shalott.cluster.sim.network.addresses import ANY, Address, SocketName, cannot_bind
from shalott.cluster.sim.network.links import Host
from shalott.cluster.sim.network.tcp import Socket
from shalott.cluster.sim.network.transport import ProtocolFactory, SimTransport

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimLoop
    from shalott.cluster.sim.loop.processes import SimProcess

FIRST_PORT, LAST_PORT = 32_768, 60_999  # Linux: ip_local_port_range


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


class Ports:
    """The bound ports of all hosts."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], list[Listener]] = {}  # by host and port

    def open(self, host: Host, listener: Listener) -> None:
        self._listeners.setdefault((host.name, listener.address[1]), []).append(listener)

    def unbind(self, listener: Listener) -> None:
        listener.listening = False
        for key, listeners in list(self._listeners.items()):
            if listener in listeners:
                listeners.remove(listener)
                if not listeners:
                    del self._listeners[key]

    def unbind_host(self, name: str) -> None:
        for (owner, _), listeners in list(self._listeners.items()):
            if owner == name:
                for listener in list(listeners):
                    self.unbind(listener)

    def unbind_process(self, process: SimProcess) -> None:
        for listeners in list(self._listeners.values()):
            for listener in [one for one in listeners if one.process is process]:
                self.unbind(listener)

    def listener(self, host: Host, address: Address) -> Listener | None:
        """The one that accepts connections to ``address``."""
        for one in self._listeners.get((host.name, address[1]), ()):
            if one.listening and one.address[0] in (ANY, address[0]):
                return one
        return None

    def bind(self, here: Host, address: str, port: int) -> Address:
        """Raises OSError if the port is in use; 0 stands for a free one."""
        if port == 0:
            return address, self.free(here)
        for other in self._listeners.get((here.name, port), ()):
            if ANY in (address, other.address[0]) or address == other.address[0]:
                raise cannot_bind(errno.EADDRINUSE, (address, port))
        return address, port

    def free(self, host: Host) -> int:
        """The host's next port that no listener has."""
        while True:
            port = host.next_port
            host.next_port = FIRST_PORT if port >= LAST_PORT else port + 1
            if (host.name, port) not in self._listeners:
                return port


class SimServer(asyncio.AbstractServer):
    """What ``create_server`` returns."""

    def __init__(self, loop: SimLoop, ports: Ports, factory: ProtocolFactory) -> None:
        self._loop = loop
        self._ports = ports
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
            self._ports.unbind(listener)
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
