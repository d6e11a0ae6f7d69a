"""CountedCuts: which links the faults in force have cut, so that overlapping partitions compose.

A backend counts cuts (cluster/base.py): a link that two faults have cut passes again when both have
mended it. What a fault has cut is known here, so that its end mends that and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shalott.cluster.base import Cluster

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
        await self._cluster.cut(links)
        self._by_fault[fault] = (*self._by_fault.get(fault, ()), *links)
        self._counts.update(links)

    async def mend(self, fault: int) -> None:
        """Mend all that the fault has cut. Harmless if that is nothing. Raises HarnessError."""
        links = self._by_fault.get(fault, ())
        if links:
            await self._cluster.mend(links)
            del self._by_fault[fault]
            self._counts.subtract(links)
