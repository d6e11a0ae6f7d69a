"""Buggify: legal misbehaviour of the broker, drawn for each site and seed, recorded.

Theory. A site is a line of the broker where the design allows something unpleasant that seldom
happens: a batch of one record, a late broadcast, a slow promotion. FoundationDB's scheme (Zhou et
al., "FoundationDB: A Distributed Unbundled Transactional Key Value Store", SIGMOD 2021, section 4)
decides on two levels: in each run only some sites are active, and an active one fires only now and
then. With one level every run would misbehave a little everywhere, and never badly in one way.

Draws are keyed: whether a site is active depends on (seed, site) alone and so holds for all nodes
of a run; its n-th firing on a node depends on (seed, site, node, n). Switching one site off for a
smaller plan leaves every other site as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shalott.core.rng import draw_float, draw_u64, stream_key

ACTIVATION = 0.25  # that a site is active in a run
FIRING = 0.25  # that an active site fires when it is asked


@dataclass(slots=True)
class Site:
    """One site on one node. ``key`` is None while it is inactive."""

    key: int | None
    asked: int = 0
    fired: int = 0


class Buggify:
    """One node's answers, for all its lives. Call it: ``buggify("site")``.

    ``disabled`` sites never fire; the other ``enabled`` ones are active in every run.
    """

    def __init__(
        self,
        seed: int,
        node: str,
        *,
        disabled: Iterable[str] = (),
        enabled: Iterable[str] = (),
        activation: float = ACTIVATION,
        firing: float = FIRING,
    ) -> None:
        self._seed = seed
        self._node = node
        self._disabled = tuple(disabled)
        self._enabled = tuple(enabled)
        self._activation = activation
        self._firing_below = firing * (1 << 53)
        self._sites: dict[str, Site] = {}

    def __call__(self, site: str) -> bool:
        found = self._sites.get(site)
        if found is None:
            found = self._sites[site] = Site(self._firing_key(site))
        position = found.asked
        found.asked = position + 1
        # draw_float, written out: every process of the broker asks whenever its mailbox is empty.
        if found.key is None or (draw_u64(found.key, position) >> 11) >= self._firing_below:
            return False
        found.fired += 1
        return True

    @property
    def asked(self) -> Mapping[str, int]:
        """How often each site was asked; sites that were never reached are absent."""
        return {name: site.asked for name, site in sorted(self._sites.items())}

    @property
    def fired(self) -> Mapping[str, int]:
        """How often each site fired; only those that did."""
        return {name: site.fired for name, site in sorted(self._sites.items()) if site.fired}

    def _firing_key(self, site: str) -> int | None:
        if site in self._disabled:
            return None
        is_drawn = draw_float(stream_key(self._seed, "buggify", site), 0) < self._activation
        if not is_drawn and site not in self._enabled:
            return None
        return stream_key(self._seed, "buggify", site, self._node)


def fired_in_run(nodes: Iterable[Buggify]) -> Mapping[str, int]:
    """How often each site fired on all the nodes of a run together."""
    total: dict[str, int] = {}
    for node in nodes:
        for site, count in node.fired.items():
            total[site] = total.get(site, 0) + count
    return dict(sorted(total.items()))
