"""Partitions: faults that cut links, so that some nodes no longer hear some others.

Proved by probes: what is cut does not arrive, and what is not cut does, in both directions. Which
links a shape cuts is in grudges.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from shalott.core.plan import FaultAction
from shalott.nemesis import grudges
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
    lambda nodes, hit, rng: grudges.halves(nodes),
)
RANDOM_HALVES = _shape(
    "partition-random-halves",
    "two sides, drawn",
    lambda nodes, hit, rng: grudges.random_halves(nodes, rng),
)
ONE = _shape(
    "partition-one",
    "one node alone",
    lambda nodes, hit, rng: grudges.isolate(nodes, hit),
    target=None,
    is_single=True,
)
MAJORITIES_RING = _shape(
    "partition-majorities-ring",
    "each node sees a majority, no two the same one",
    lambda nodes, hit, rng: grudges.majorities_ring(nodes, rng),
    least_nodes=3,
)
BRIDGE = _shape(
    "partition-bridge",
    "two sides that share one node",
    lambda nodes, hit, rng: grudges.bridge(nodes, rng),
    least_nodes=3,
)
ISOLATE_MASTER = _shape(
    "partition-isolate-master",
    "the master of a queue alone, the node that it is by then",
    lambda nodes, hit, rng: grudges.isolate(nodes, hit),
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
    links=lambda nodes, hit, rng: grudges.one_way(nodes, hit),
    strength=40,
)

FAULTS = (HALVES, RANDOM_HALVES, ONE, MAJORITIES_RING, BRIDGE, ONE_WAY, ISOLATE_MASTER)
