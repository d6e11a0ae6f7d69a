"""LinkCounts: which directed links are cut, and how many times over.

Overlapping faults may cut one link twice; it is whole again only when both have ended. A heal
forgets every count, so a fault that ends after it mends nothing, and that is not an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shalott.cluster.nodes import Link


class LinkCounts:
    """Counts cuts; ``cut_links`` is what must be dropped now."""

    def __init__(self) -> None:
        self._counts: Counter[Link] = Counter()

    def cut(self, links: Iterable[Link]) -> None:
        for source, destination in links:
            assert source != destination, f"{source} can't be cut from itself"
            self._counts[source, destination] += 1

    def mend(self, links: Iterable[Link]) -> None:
        for link in links:
            if self._counts[link] <= 1:
                del self._counts[link]
            else:
                self._counts[link] -= 1

    def clear(self) -> None:
        self._counts.clear()

    def cut_links(self) -> tuple[Link, ...]:
        """Sorted, each once."""
        return tuple(sorted(self._counts))

    def is_cut(self, source: str, destination: str) -> bool:
        return (source, destination) in self._counts
