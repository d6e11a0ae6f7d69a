"""SimNetwork: the simulated hosts, the links between them, and how programs and faults reach both.

Host names resolve to addresses of their own, 127.0.0.1 is every host's own. A program's host is the
one that its process is named after; code that belongs to no process runs on ``localhost``. Faults
are directed and cuts are counted. Losing power silences a host: all that its kernel held is gone,
and peers learn of it only from the reset that they get when it is back.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shalott.cluster.nodes import LinkShape
from shalott.cluster.sim.network.addresses import Address, cannot_bind, stream_info, unknown_name
from shalott.cluster.sim.network.connecting import Dial
from shalott.cluster.sim.network.links import MS, Host, Link, NetworkKnobs
from shalott.cluster.sim.network.listening import Listener, SimServer
from shalott.cluster.sim.network.tcp import Socket
from shalott.cluster.sim.network.transport import ProtocolFactory, SimTransport
from shalott.core.rng import draw_float, stream_key

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimLoop
    from shalott.cluster.sim.loop.processes import SimProcess

ANY = "0.0.0.0"
LOOPBACK = "127.0.0.1"
NOBODYS_HOST = "localhost"
FIRST_PORT, LAST_PORT = 32_768, 60_999  # Linux: ip_local_port_range

__all__ = ["NetworkKnobs", "SimNetwork"]


class SimNetwork:
    """One simulation's. ``segments`` and ``bytes`` count what arrived."""

    def __init__(self, loop: SimLoop, seed: int, knobs: NetworkKnobs | None = None) -> None:
        self.loop = loop
        self.knobs = NetworkKnobs() if knobs is None else knobs
        self.segments = 0
        self.bytes = 0
        self._seed = seed
        self._kill_key = stream_key(seed, "network", "kill")
        # Of connections from a host to a port: another host that they come from.
        self.dial_from: dict[tuple[str, int], str] = {}
        self._numbers = 0
        self._hosts: dict[str, Host] = {}
        self._addresses: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], list[Listener]] = {}  # by host and port
        self._sockets: dict[SimProcess | None, dict[int, Socket]] = {}

    # -- hosts -------------------------------------------------------------------------------------

    def add_host(self, name: str) -> None:
        if name not in self._hosts:
            number = len(self._hosts) + 1
            host = Host(name, f"10.0.{number >> 8}.{number & 255}")
            self._hosts[name] = self._addresses[host.address] = host

    def host_up(self, name: str) -> None:
        """Power is back; its kernel answers, with resets to all that is older."""
        host = self._hosts[name]
        if not host.up:
            host.up = True
            for link in self._links_of(host):
                link.unblock()

    def host_down(self, name: str) -> None:
        """Power is lost: nothing answers any more, and all that its kernel held is gone."""
        host = self._hosts[name]
        if not host.up:
            return
        host.up = False
        links = self._links_of(host)
        for link in links:
            link.block()
        for link in links:
            if link.source is host:
                for lane in link.live():
                    lane.sender.vanish()
        for (owner, _), listeners in list(self._listeners.items()):
            if owner == name:
                for listener in list(listeners):
                    self.unbind(listener)

    def process_died(self, process: SimProcess, *, reset: bool) -> None:
        """``reset``: its kernel lives and tells the peers. Else no peer hears, as on power loss."""
        for number, one in list(self._sockets.get(process, {}).items()):
            if one.transport is not None:
                one.transport.freeze()
            if reset:
                one.died(resets=draw_float(self._kill_key, number) < self.knobs.kill_resets)
            else:
                one.vanish()
        self._sockets.pop(process, None)
        for listeners in list(self._listeners.values()):
            for listener in [one for one in listeners if one.process is process]:
                self.unbind(listener)

    def _links_of(self, host: Host) -> list[Link]:
        return [one for one in self._links.values() if host in (one.source, one.destination)]

    # -- faults ------------------------------------------------------------------------------------

    def cut(self, links: Iterable[tuple[str, str]]) -> None:
        """Nothing passes any more, from source to destination. Counted."""
        for source, destination in links:
            assert source != destination, f"{source} can't be cut from itself"
            self._between(source, destination).cut()

    def mend(self, links: Iterable[tuple[str, str]]) -> None:
        for source, destination in links:
            self._between(source, destination).mend()

    def is_cut(self, source: str, destination: str) -> bool:
        return self._between(source, destination).cuts > 0

    def heal(self) -> None:
        """Undo all cuts, shapes and clogs."""
        for link in list(self._links.values()):
            link.heal()

    def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        self._between(source, destination).reshape(shape)

    def shape_of(self, source: str, destination: str) -> LinkShape:
        return self._between(source, destination).shape

    def clog(self, source: str, destination: str, duration_ms: int) -> None:
        """Let nothing depart for so long; it is late, not dropped."""
        self._between(source, destination).clog(self.loop.now_ns + duration_ms * MS)

    def reachable(self, source: str, destination: str) -> bool:
        """Whether what ``source`` sends arrives, this direction only."""
        return self._between(source, destination).blocks == 0

    def _between(self, source: str, destination: str) -> Link:
        return self.link(self._hosts[source], self._hosts[destination])

    # -- what programs ask for ---------------------------------------------------------------------

    async def create_connection(
        self, protocol_factory: ProtocolFactory, host: str | None, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        process, source = self.loop.process, self._dialling_from(int(port))
        address = self._resolve(host or LOOPBACK)
        if address == ANY:
            address = LOOPBACK
        destination = source if address == LOOPBACK else self._addresses[address]
        local = LOOPBACK if address == LOOPBACK else source.address
        dial = Dial(
            self,
            process,
            source,
            destination,
            (local, self._free_port(source)),
            (address, int(port)),
        )
        kernel = await dial.run()
        waiter: asyncio.Future[None] = self.loop.create_future()
        try:
            protocol = protocol_factory()
            transport = SimTransport(self.loop, kernel, protocol, waiter=waiter)
        except BaseException:
            kernel.close()
            raise
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    async def create_server(
        self,
        protocol_factory: ProtocolFactory,
        host: str | Iterable[str] | None,
        port: int,
        *,
        backlog: int = 100,
        start_serving: bool = True,
    ) -> SimServer:
        here = self._here()
        hosts = [host] if host is None or isinstance(host, str) else list(host)
        addresses = [self._bind_address(here, one) for one in hosts]
        server = SimServer(self.loop, self, protocol_factory)
        try:
            for address in dict.fromkeys(addresses):
                listener = Listener(
                    server, self._bind(here, address, int(port)), self.loop.process, backlog
                )
                self._listeners.setdefault((here.name, listener.address[1]), []).append(listener)
                server.add(listener)
        except OSError:
            server.close()
            raise
        if start_serving:
            server.serve()
            await asyncio.sleep(0)
        return server

    async def getaddrinfo(self, host: str | None, port: int) -> list[tuple[object, ...]]:
        address = self._resolve(LOOPBACK if host is None else host)
        return [stream_info((address, port))]

    def _dialling_from(self, port: int) -> Host:
        here = self._here()
        other = self.dial_from.get((here.name, port))
        return here if other is None else self._hosts[other]

    def _here(self) -> Host:
        process = self.loop.process
        name = NOBODYS_HOST if process is None else process.name
        self.add_host(name)
        return self._hosts[name]

    def _resolve(self, name: str) -> str:
        if name in (LOOPBACK, "localhost"):
            return LOOPBACK
        if name == ANY or name in self._addresses:
            return name
        if name in self._hosts:
            return self._hosts[name].address
        raise unknown_name()

    def _bind_address(self, here: Host, name: str | None) -> str:
        address = self._resolve(name) if name else ANY
        if address not in (ANY, LOOPBACK, here.address):
            raise cannot_bind(errno.EADDRNOTAVAIL, (address, 0))
        return address

    def _bind(self, here: Host, address: str, port: int) -> Address:
        if port == 0:
            return address, self._free_port(here)
        for other in self._listeners.get((here.name, port), ()):
            if ANY in (address, other.address[0]) or address == other.address[0]:
                raise cannot_bind(errno.EADDRINUSE, (address, port))
        return address, port

    def _free_port(self, host: Host) -> int:
        while True:
            port = host.next_port
            host.next_port = FIRST_PORT if port >= LAST_PORT else port + 1
            if (host.name, port) not in self._listeners:
                return port

    # -- for sockets, dials and servers ------------------------------------------------------------

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def link(self, source: Host, destination: Host) -> Link:
        key = (source.name, destination.name)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self._seed, source, destination, self.knobs)
        return link

    def listener(self, host: Host, address: Address) -> Listener | None:
        """Who accepts connections to ``address``."""
        for one in self._listeners.get((host.name, address[1]), ()):
            if one.listening and one.address[0] in (ANY, address[0]):
                return one
        return None

    def unbind(self, listener: Listener) -> None:
        listener.listening = False
        for key, listeners in list(self._listeners.items()):
            if listener in listeners:
                listeners.remove(listener)
                if not listeners:
                    del self._listeners[key]

    def remember(self, one: Socket) -> None:
        self._sockets.setdefault(one.process, {})[one.number] = one

    def forget(self, one: Socket) -> None:
        """No program has it any more."""
        self._sockets.get(one.process, {}).pop(one.number, None)

    def close(self) -> None:
        """The simulation is over: no transport calls anybody any more."""
        for sockets in self._sockets.values():
            for one in sockets.values():
                if one.transport is not None:
                    one.transport.freeze()
        self._sockets.clear()
