"""The links between local nodes: relays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shalott.cluster.capabilities import WORLDS, refusal
from shalott.cluster.cut_counts import LinkCounts
from shalott.cluster.local.nodes import LocalNodes
from shalott.cluster.local.relay_link import RelayProcess
from shalott.cluster.nodes import Link, LinkShape
from shalott.cluster.stalls import Stall


class LocalLinks:
    """See ``Links`` and ``CarriesTraffic``."""

    capabilities = WORLDS["local"]["links"]

    def __init__(self, run: LocalNodes, relays: RelayProcess) -> None:
        self._nodes = run.nodes
        self._relays = relays
        self._counts = LinkCounts()
        self._dark: dict[str, None] = {}  # nodes without power
        self.are_alive: Callable[[Link], bool] = lambda link: False  # both of its ends

    async def cut(self, links: Sequence[Link]) -> None:
        self._counts.cut(links)
        await self._apply_cuts()

    async def mend(self, links: Sequence[Link]) -> None:
        self._counts.mend(links)
        await self._apply_cuts()

    async def set_power(self, node: str, *, is_on: bool) -> None:
        """A node without power is heard no more: its relays say nothing of its end."""
        if is_on and node not in self._dark:
            return
        if is_on:
            del self._dark[node]
        else:
            self._dark[node] = None
        await self._apply_cuts()

    def forget_power(self) -> None:
        """All nodes have ended, and have power when they start."""
        self._dark.clear()

    async def _apply_cuts(self) -> None:
        pairs = [(a, b) for a in self._nodes for b in self._nodes if a != b]
        dark = [link for link in pairs if any(node in self._dark for node in link)]
        await self._relays.cut(tuple(dict.fromkeys((*self._counts.cut_links(), *dark))))

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        self._relays.tell_stalls(tell)

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        delay_ms, rate_bytes_s = shape.delay_ms, shape.rate_bytes_s
        if shape.loss:
            raise refusal("local", "loss")
        if shape != LinkShape(delay_ms=delay_ms, rate_bytes_s=rate_bytes_s):
            raise refusal("local", "packets")
        await self._relays.shape((source, destination), delay_ms / 1000, rate_bytes_s)

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        return await self._relays.shape_of((source, destination))

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        if not self.are_alive((source, destination)):
            return False
        return await self._relays.probe(source, destination, timeout_ms)

    async def heal(self) -> None:
        self._counts.clear()
        await self._apply_cuts()
        await self._relays.restore_shapes()

    async def close(self) -> None:
        self._counts.clear()
        self._dark.clear()
        await self._relays.close()
