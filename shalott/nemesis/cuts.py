"""Which links the faults in force have cut, so that overlapping partitions compose.

A backend counts cuts (cluster/parts.py): a link that two faults have cut passes again when both
have mended it. What a fault has cut is known here, so that its end mends that and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shalott.cluster.cluster import Cluster
from shalott.cluster.parts import CutsClients
from shalott.core.errors import MissingCapability

Link = tuple[str, str]  # source, destination: directed


class CountedCuts:
    """The cuts of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counts: Counter[Link] = Counter()
        self._by_fault: dict[int, tuple[Link, ...]] = {}

    def is_cut(self, link: Link) -> bool:
        return self._counts[link] > 0

    async def cut(self, fault: int, links: Sequence[Link]) -> None:
        """Cut links for a fault. Raises HarnessError."""
        await self._cluster.links.cut(links)
        self._by_fault[fault] = (*self._by_fault.get(fault, ()), *links)
        self._counts.update(links)

    async def mend(self, fault: int) -> None:
        """Mend all that the fault has cut. Harmless if that is nothing. Raises HarnessError."""
        links = self._by_fault.get(fault, ())
        if links:
            await self._cluster.links.mend(links)
            del self._by_fault[fault]
            self._counts.subtract(links)


class ClientCuts:
    """The same of the links between clients and nodes. ``ports``: names of those that clients use.

    A cluster is told of all that is cut, so a link is whole again when no fault cuts it any more.
    """

    def __init__(self, cluster: Cluster, ports: Sequence[str]) -> None:
        self.ports = tuple(ports)
        self._cluster = cluster
        self._by_fault: dict[int, tuple[Link, ...]] = {}

    @property
    def in_force(self) -> tuple[Link, ...]:
        """Sorted, each once."""
        return tuple(sorted({link: None for links in self._by_fault.values() for link in links}))

    async def cut(self, fault: int, links: Sequence[Link]) -> None:
        """Raises HarnessError or MissingCapability."""
        self._by_fault[fault] = tuple(links)
        await self._apply()

    async def mend(self, fault: int) -> None:
        """Mend what only this fault has cut. Harmless if that is nothing. Raises HarnessError."""
        if fault in self._by_fault:
            del self._by_fault[fault]
            await self._apply()

    async def seen(self) -> tuple[Link, ...]:
        """What is cut, as the cluster reads it. Raises HarnessError or MissingCapability."""
        return tuple(await self._of_cluster().client_cuts())

    async def _apply(self) -> None:
        await self._of_cluster().set_client_cuts(self.in_force, self.ports)

    def _of_cluster(self) -> CutsClients:
        links = self._cluster.links
        if not isinstance(links, CutsClients):
            raise MissingCapability(
                f"the {self._cluster.backend} cluster can't part clients from nodes"
            )
        return links
