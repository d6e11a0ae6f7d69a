"""The links between simulated machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shalott.cluster.capabilities import WORLDS, refusal
from shalott.cluster.nodes import (
    CLIENTS,
    Link,
    LinkShape,
)
from shalott.cluster.parts import MessageReader, ReaderOf, TellMoment
from shalott.cluster.sim.network.links import End
from shalott.cluster.sim.nodes import SimPart, Simulation
from shalott.core.errors import HarnessError

_MOMENTS = {"sent": "sent", "before": "not delivered yet", "after": "delivered"}


class SimLinks(SimPart):
    """See ``Links``, ``CutsClients``, ``WatchesMessages`` and ``HoldsBack``."""

    capabilities = WORLDS["sim"]["links"]

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self._uneven: dict[Link, None] = {}  # links that had more than delay, rate and loss

    async def cut(self, links: Sequence[Link]) -> None:
        self._sim.tell(f"cut {' '.join(map('->'.join, links))}")
        self._sim.network.cut(links)
        for _, destination in links:
            self._sim.happened(destination, "cut")

    async def mend(self, links: Sequence[Link]) -> None:
        self._sim.tell(f"mend {' '.join(map('->'.join, links))}")
        self._sim.network.mend(links)

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        """Raises MissingCapability for what happens to single packets."""
        if shape.duplicate or shape.reorder or shape.corrupt:
            raise refusal("sim", "packets")
        delay_ms, rate_bytes_s, loss = shape.delay_ms, shape.rate_bytes_s, shape.loss
        words = f"{delay_ms=} {rate_bytes_s=} {loss=}"
        plain = LinkShape(delay_ms=delay_ms, rate_bytes_s=rate_bytes_s, loss=loss)
        if shape != plain or (source, destination) in self._uneven:
            self._uneven[source, destination] = None
            words = str(shape)
        self._sim.tell(f"shape {source}->{destination} {words}")
        self._sim.network.shape(source, destination, shape)

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        return self._sim.network.shape_of(source, destination)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        machines = self._sim.machines
        both = machines[source].is_alive and machines[destination].is_alive
        return both and self._sim.network.reachable(source, destination)

    def watch_messages(
        self, link: Link, moment: str, what: str, reader_of: ReaderOf, tell: TellMoment
    ) -> Callable[[], None]:
        readers: dict[int, MessageReader | None] = {}
        way = f"from {link[0]} to {link[1]}, {_MOMENTS[moment]}"

        def watch(end: End, data: bytes, now: str) -> bool:
            if now != moment:
                return False
            if end.number not in readers:
                has_dialled = end.listener is None
                port = (end.remote if has_dialled else end.local)[1]
                readers[end.number] = reader_of(port, has_dialled is (moment == "sent"))
            read = readers[end.number]
            names = [name for name in read(data) if what in ("", name)] if read else []
            return sum(tell(f"{name} {way}") for name in names) > 0

        watches = self._sim.network.watches.setdefault(link, [])
        watches.append(watch)
        return lambda: watches.remove(watch)

    async def hold_back(self, links: Sequence[Link], seed: int) -> None:
        self._sim.tell(f"hold back on {' '.join(map('->'.join, links))}")
        for link in links:
            self._sim.network.between(*link).hold_back(seed)

    async def let_pass(self, links: Sequence[Link]) -> None:
        self._sim.tell(f"let pass on {' '.join(map('->'.join, links))}")
        for link in links:
            self._sim.network.between(*link).hold_back(None)

    async def holds_back(self, link: Link) -> bool:
        return self._sim.network.between(*link).held_back is not None

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        network = self._sim.network
        if not network.dial_from:
            raise HarnessError("the simulation was not told that clients will be cut off")
        self._sim.tell(f"cut clients {' '.join(map('->'.join, links))}")
        before = await self.client_cuts()
        network.mend([link for link in before if link not in links])
        network.cut([link for link in links if link not in before])

    async def client_cuts(self) -> Sequence[Link]:
        nodes = self._sim.machines
        ways = [link for node in nodes for link in ((CLIENTS, node), (node, CLIENTS))]
        return sorted(link for link in ways if self._sim.network.is_cut(*link))

    async def heal(self) -> None:
        self._sim.tell("heal")
        self._sim.network.heal()
