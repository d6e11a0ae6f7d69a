"""SimNetwork: the simulated hosts, the links between them, and how programs and faults reach both.

Host names resolve to addresses of their own, 127.0.0.1 is every host's own. A program's host is the
one that its process is named after; code that belongs to no process runs on ``localhost``. Faults
are directed and cuts are counted. Losing power silences a host: all that its kernel held is gone,
and peers learn of it only from the reset that they get when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shalott.cluster.nodes import LinkShape
from shalott.cluster.sim.loop.order import Order
from shalott.cluster.sim.network.addresses import ANY, LOOPBACK, Hosts, stream_info
from shalott.cluster.sim.network.connecting import Dial
from shalott.cluster.sim.network.links import MS, Host, Link, NetworkKnobs, Watch
from shalott.cluster.sim.network.listening import Listener, Ports, SimServer
from shalott.cluster.sim.network.tcp import Sockets
from shalott.cluster.sim.network.transport import ProtocolFactory, SimTransport
from shalott.core.rng import draw_float, stream_key

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimLoop
    from shalott.cluster.sim.loop.processes import SimProcess

NO_PROCESS_HOST = "localhost"

__all__ = ["NetworkKnobs", "SimNetwork"]


class SimNetwork:
    """One simulation's. ``segments`` and ``bytes`` count what arrived."""

    def __init__(self, loop: SimLoop, seed: int, knobs: NetworkKnobs | None = None) -> None:
        self.loop = loop
        self.knobs = NetworkKnobs() if knobs is None else knobs
        self.segments = 0
        self.bytes = 0
        self.order: Order | None = None  # told of what happens, if anybody asks about it
        self._seed = seed
        self._kill_key = stream_key(seed, "network", "kill")
        # Of connections from a host to a port: another host that they come from.
        self.dial_from: dict[tuple[str, int], str] = {}
        self.ports = Ports()
        self.sockets = Sockets()
        self._hosts = Hosts()
        self._links: dict[tuple[str, str], Link] = {}
        # By link, what sees all that goes over it. To watch makes no link: faults find links in the
        # order in which they were made.
        self.watches: dict[tuple[str, str], list[Watch]] = {}

    # -- hosts -------------------------------------------------------------------------------------

    def add_host(self, name: str) -> None:
        self._hosts.add(name)

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
        self.ports.unbind_host(name)

    def process_died(self, process: SimProcess, *, reset: bool) -> None:
        """``reset``: its kernel lives and tells the peers. Else no peer hears, as on power loss."""
        for one in self.sockets.of(process):
            if one.transport is not None:
                one.transport.freeze()
            if reset:
                one.died(resets=draw_float(self._kill_key, one.number) < self.knobs.kill_resets)
            else:
                one.vanish()
        self.sockets.forget_process(process)
        self.ports.unbind_process(process)

    def _links_of(self, host: Host) -> list[Link]:
        return [one for one in self._links.values() if host in (one.source, one.destination)]

    # -- faults ------------------------------------------------------------------------------------

    def cut(self, links: Iterable[tuple[str, str]]) -> None:
        """Nothing passes any more, from source to destination. Counted."""
        for source, destination in links:
            assert source != destination, f"{source} can't be cut from itself"
            self.between(source, destination).cut()

    def mend(self, links: Iterable[tuple[str, str]]) -> None:
        for source, destination in links:
            self.between(source, destination).mend()

    def is_cut(self, source: str, destination: str) -> bool:
        return self.between(source, destination).cuts > 0

    def heal(self) -> None:
        """Undo all cuts, shapes and clogs."""
        for link in list(self._links.values()):
            link.heal()

    def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        self.between(source, destination).reshape(shape)

    def shape_of(self, source: str, destination: str) -> LinkShape:
        return self.between(source, destination).shape

    def clog(self, source: str, destination: str, duration_ms: int) -> None:
        """Let nothing depart for so long; it is late, not dropped."""
        self.between(source, destination).clog(self.loop.now_ns + duration_ms * MS)

    def reachable(self, source: str, destination: str) -> bool:
        """Whether what ``source`` sends arrives, this direction only."""
        return self.between(source, destination).blocks == 0

    def between(self, source: str, destination: str) -> Link:
        return self.link(self._hosts[source], self._hosts[destination])

    # -- what programs ask for ---------------------------------------------------------------------

    async def create_connection(
        self, protocol_factory: ProtocolFactory, host: str | None, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        process, source = self.loop.process, self._dialling_from(int(port))
        address = self._hosts.resolve(host or LOOPBACK)
        if address == ANY:
            address = LOOPBACK
        destination = source if address == LOOPBACK else self._hosts.at(address)
        local = LOOPBACK if address == LOOPBACK else source.address
        dial = Dial(
            self,
            process,
            source,
            destination,
            (local, self.ports.free(source)),
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
        addresses = [self._hosts.bind_address(here, one) for one in hosts]
        server = SimServer(self.loop, self.ports, protocol_factory)
        try:
            for address in dict.fromkeys(addresses):
                listener = Listener(
                    server, self.ports.bind(here, address, int(port)), self.loop.process, backlog
                )
                self.ports.open(here, listener)
                server.add(listener)
        except OSError:
            server.close()
            raise
        if start_serving:
            server.serve()
            await asyncio.sleep(0)
        return server

    async def getaddrinfo(self, host: str | None, port: int) -> list[tuple[object, ...]]:
        address = self._hosts.resolve(LOOPBACK if host is None else host)
        return [stream_info((address, port))]

    def _dialling_from(self, port: int) -> Host:
        here = self._here()
        other = self.dial_from.get((here.name, port))
        return here if other is None else self._hosts[other]

    def _here(self) -> Host:
        process = self.loop.process
        return self._hosts.add(NO_PROCESS_HOST if process is None else process.name)

    # -- for dials ---------------------------------------------------------------------------------

    def link(self, source: Host, destination: Host) -> Link:
        key = (source.name, destination.name)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self._seed, source, destination, self.knobs)
            link.watches = self.watches.setdefault(key, [])
        return link

    def close(self) -> None:
        """The simulation is over."""
        self.sockets.close()
