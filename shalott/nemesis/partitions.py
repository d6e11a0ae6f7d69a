"""Partitions: faults that cut links, so that some nodes no longer hear some others.

Proved by probes: what is cut does not arrive, and what is not cut does, in both directions.

A grudge is a tuple of directed links (source, destination): what the source sends no longer
arrives. The shapes and their names are Jepsen's (jepsen/src/jepsen/nemesis.clj). In the majorities
ring every node still sees a majority, itself included, but no two nodes see the same one. Unlike
Jepsen's, ours is symmetric also for three nodes, where it is a path: over TCP a link that works in
one direction only carries nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.core.rng import Stream
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.proofs import Check, living, reach_check
from shalott.nemesis.record import FaultRecord, LinksOf


async def _cut(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once([ctx.cuts.cut(action.id, action.links or ())])


async def _mend(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once([ctx.cuts.mend(action.id)])


def _effective(ctx: FaultContext, action: FaultAction) -> list[Check]:
    links = action.links or ()
    turned = [(destination, source) for source, destination in links]
    return [reach_check(ctx, link) for link in living(ctx, dict.fromkeys([*links, *turned]))]


def _healed(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [reach_check(ctx, link) for link in action.links or ()]


def one_direction(links: Iterable[Link] | None) -> list[tuple[Link, ...]]:
    """Of links hit in both directions only the ones towards later names, or only the others."""
    both = tuple(links or ())
    ways = (
        tuple(link for link in both if link[0] < link[1]),
        tuple(link for link in both if link[0] > link[1]),
    )
    return [way for way in ways if way and len(way) < len(both)]


def _as_one_way(action: FaultAction) -> Iterator[FaultAction]:
    for way in one_direction(action.links):
        yield msgspec.structs.replace(action, kind=ONE_WAY.name, links=way)


def _shape(
    name: str,
    summary: str,
    links: LinksOf,
    *,
    target: str | None = "",
    is_single: bool = False,
    least_nodes: int = 1,
) -> FaultRecord:
    """A partition that cuts both directions."""
    return FaultRecord(
        name=name,
        summary=summary,
        needs=("cut",),
        inject=_cut,
        heal=_mend,
        effective=_effective,
        healed=_healed,
        effects=("cuts-links",),
        group="partition",
        least_nodes=least_nodes,
        target=target,
        is_single=is_single,
        links=links,
        is_usual=True,
        weaker=_as_one_way,
    )


HALVES = _shape(
    "partition-halves",
    "two sides, in the order of the nodes",
    lambda nodes, hit, rng: halves(nodes),
)
RANDOM_HALVES = _shape(
    "partition-random-halves",
    "two sides, drawn",
    lambda nodes, hit, rng: random_halves(nodes, rng),
)
ONE = _shape(
    "partition-one",
    "one node alone",
    lambda nodes, hit, rng: isolate(nodes, hit),
    target=None,
    is_single=True,
)
MAJORITIES_RING = _shape(
    "partition-majorities-ring",
    "each node sees a majority, no two the same one",
    lambda nodes, hit, rng: majorities_ring(nodes, rng),
    least_nodes=3,
)
BRIDGE = _shape(
    "partition-bridge",
    "two sides that share one node",
    lambda nodes, hit, rng: bridge(nodes, rng),
    least_nodes=3,
)
ISOLATE_MASTER = _shape(
    "partition-isolate-master",
    "the master of a queue alone, the node that it is by then",
    lambda nodes, hit, rng: isolate(nodes, hit),
    target="master",
)
ONE_WAY = FaultRecord(
    name="partition-one-way",
    summary="one node hears the others and is not heard",
    needs=("cut", "cut-one-way"),
    inject=_cut,
    heal=_mend,
    effective=_effective,
    healed=_healed,
    effects=("cuts-links",),
    group="partition",
    is_single=True,
    links=lambda nodes, hit, rng: one_way(nodes, hit),
    strength=40,
)

FAULTS = (HALVES, RANDOM_HALVES, ONE, MAJORITIES_RING, BRIDGE, ONE_WAY, ISOLATE_MASTER)


Links = tuple[tuple[str, str], ...]
STOCHASTIC_TRIES = 50


def split(sides: Sequence[Sequence[str]]) -> Links:
    """Cut every side off from every other, both ways."""
    return _ordered(
        (source, destination)
        for here, side in enumerate(sides)
        for there, other in enumerate(sides)
        if here != there
        for source in side
        for destination in other
    )


def halves(nodes: Sequence[str]) -> Links:
    """The first half, the smaller one, against the rest, in the order given."""
    _require("partition-halves", nodes, 2)
    middle = len(nodes) // 2
    return split((nodes[:middle], nodes[middle:]))


def random_halves(nodes: Sequence[str], rng: Stream) -> Links:
    """Halves of shuffled nodes."""
    _require("partition-random-halves", nodes, 2)
    return halves(rng.shuffled(nodes))


def isolate(nodes: Sequence[str], isolated: Iterable[str]) -> Links:
    """The isolated nodes on one side, together; all others on the other."""
    _require("isolating a node", nodes, 2)
    apart = tuple(isolated)
    rest = [node for node in nodes if node not in apart]
    if not rest:
        raise UsageError(f"isolating {'+'.join(apart)} leaves no node to isolate them from")
    return split((apart, rest))


def one_way(nodes: Sequence[str], silenced: Iterable[str]) -> Links:
    """The silenced nodes hear the others and are not heard."""
    both = isolate(nodes, silenced)
    apart = tuple(silenced)
    return tuple(link for link in both if link[0] in apart)


def touching(nodes: Sequence[str], hit: Iterable[str], *, outgoing_only: bool) -> Links:
    """Every link that leads from, or unless ``outgoing_only`` to, one of the nodes hit."""
    ends = tuple(hit)
    return _ordered(
        (source, destination)
        for source in nodes
        for destination in nodes
        if source != destination and (source in ends or (destination in ends and not outgoing_only))
    )


def bridge(nodes: Sequence[str], rng: Stream) -> Links:
    """Two halves that don't see each other, and one node that sees, and is seen by, both."""
    _require("partition-bridge", nodes, 3)
    middle, *others = rng.shuffled(nodes)
    assert middle not in others
    return halves(others)


def majorities_ring(nodes: Sequence[str], rng: Stream) -> Links:
    """Every node sees a majority, no two the same: exact up to five nodes, drawn above."""
    _require("partition-majorities-ring", nodes, 3)
    shuffled = rng.shuffled(nodes)
    majority = len(nodes) // 2 + 1
    if len(nodes) == 3:
        return _cut_all_but(nodes, list(zip(shuffled, shuffled[1:], strict=False)))
    if len(nodes) <= 5:
        return _cut_all_but(nodes, _circle(shuffled, majority))
    for _ in range(STOCHASTIC_TRIES):
        kept = _drawn_majorities(nodes, majority, rng)
        if _all_see_different(nodes, kept):
            return _cut_all_but(nodes, kept)
    return _cut_all_but(nodes, _circle(shuffled, majority))


def seen_by(node: str, nodes: Sequence[str], links: Links) -> frozenset[str]:
    """Whom a node still hears under a grudge, itself included."""
    cut = set(links)
    return frozenset(other for other in nodes if other == node or (other, node) not in cut)


def _circle(shuffled: Sequence[str], majority: int) -> list[tuple[str, str]]:
    """Pairs of neighbours on a circle, as near as it takes for each to see a majority."""
    reach = majority // 2
    return [
        (node, shuffled[(place + step) % len(shuffled)])
        for place, node in enumerate(shuffled)
        for step in range(1, reach + 1)
    ]


def _drawn_majorities(nodes: Sequence[str], majority: int, rng: Stream) -> list[tuple[str, str]]:
    """Join the two least connected strangers until everyone sees a majority."""
    friends: dict[str, set[str]] = {node: {node} for node in nodes}
    kept: list[tuple[str, str]] = []
    while min(len(seen) for seen in friends.values()) < majority:
        ranked = sorted(rng.shuffled(nodes), key=lambda node: len(friends[node]))
        node = ranked[0]
        other = next(candidate for candidate in ranked if candidate not in friends[node])
        friends[node].add(other)
        friends[other].add(node)
        kept.append((node, other))
    return kept


def _all_see_different(nodes: Sequence[str], kept: Iterable[tuple[str, str]]) -> bool:
    links = _cut_all_but(nodes, kept)
    views = {seen_by(node, nodes, links) for node in nodes}
    return len(views) == len(nodes)


def _cut_all_but(nodes: Sequence[str], kept: Iterable[tuple[str, str]]) -> Links:
    whole = {frozenset(pair) for pair in kept}
    return _ordered(
        (source, destination)
        for source in nodes
        for destination in nodes
        if source != destination and frozenset((source, destination)) not in whole
    )


def _ordered(links: Iterable[tuple[str, str]]) -> Links:
    return tuple(sorted(links))


def _require(what: str, nodes: Sequence[str], least: int) -> None:
    if len(nodes) < least:
        raise UsageError(f"{what} needs at least {least} nodes, there are {len(nodes)}")
