"""Aiming: from a drafted action to the nodes and links that it hits, as far as they can be known
before the run, and from a role (master, mirrors, ...) to its nodes when the fault fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.errors import ClientError, HarnessError
from shalott.core.parameters import make_parameters, to_plan
from shalott.core.plan import FaultAction
from shalott.core.rng import Stream
from shalott.nemesis.record import FAULTS, FaultRecord, members
from shalott.nemesis.targets import (
    draw_nodes,
    is_named,
    is_role,
    is_single,
    minority_of,
    role_nodes,
)
from shalott.nemesis.waiting import Skipped

OBSERVE_TIMEOUT_S = 2.0
RESTART_JITTER_MS = 3000  # within which nodes start that were all down


def draw_member(name: str, nodes: Sequence[str], rng: Stream) -> FaultRecord:
    """The fault of that name, or of a group one that so many nodes allow."""
    found = members(name)
    if len(found) == 1:
        return found[0]
    return rng.choice([record for record in found if record.least_nodes <= len(nodes)])


def draw_parameters(record: FaultRecord, stream_of: Callable[[str], Stream]) -> dict[str, object]:
    """A value for each field of the record's struct, each from the field's own stream."""
    drawn = {name: stream_of(name).choice(choices) for name, choices in record.choices.items()}
    return to_plan(make_parameters(record.parameters, drawn))


def aim(
    draft: FaultAction,
    record: FaultRecord,
    nodes: Sequence[str],
    rng: Stream,
    *,
    atlas: Sequence[str],
) -> FaultAction:
    """Resolve nodes and links. ``atlas``: the nodes for faults that do not heal, the first of them
    for those that may hit one only."""
    target = draft.target
    if record.target is not None:
        target = record.target
    elif record.may_hit_minority:
        if not is_named(target, nodes):
            target = "+".join(atlas[:1] if target == "one" else atlas)
    elif record.does_not_heal:
        target = atlas[0]
    elif target == "one" or (record.is_single and not is_single(target)):
        target = record.one
    hit = None if is_role(target) else draw_nodes(target, nodes, rng) if target else ()
    links = None
    if record.links is not None and hit is not None:
        links = record.links(nodes, hit, rng)
    return msgspec.structs.replace(
        draft,
        target=target,
        nodes=hit,
        links=links,
        jitter_ms=RESTART_JITTER_MS if record.hits_all else 0,
    )


def draw_atlas(seed: int, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes that this seed's plan may do lasting harm to, a minority of them."""
    draws = Stream(seed, "atlas")
    first = draws.choice(nodes)
    others = [node for node in nodes if node != first]
    return (first, *draws.sample(others, minority_of(nodes) - 1))


def renumbered(actions: Sequence[FaultAction]) -> Iterator[FaultAction]:
    for number, action in enumerate(actions, start=1):
        yield msgspec.structs.replace(action, id=number)


class Roles:
    """Who plays which role on a cluster that runs, as its nodes say when they are asked."""

    def __init__(self, cluster: Cluster, system: System) -> None:
        self._cluster = cluster
        self._system = system

    async def resolve(self, action: FaultAction) -> FaultAction:
        """The action with its nodes and links as they are now. Raises Skipped: it has no target."""
        if action.nodes is None:
            answers = await self._observe_all() if is_role(action.target) else {}
            nodes = role_nodes(action.target, answers, Stream(action.seed, "target"))
            if not nodes:
                raise Skipped(f"no node says that it is {action.target} of anything")
            action = msgspec.structs.replace(action, nodes=nodes)
        links_of = FAULTS.find(action.kind).links
        if links_of is not None:
            if action.links is None:
                rng = Stream(action.seed, "shape")
                links = links_of(self._cluster.nodes, action.nodes or (), rng)
                action = msgspec.structs.replace(action, links=links)
            if not action.links:
                raise Skipped("it has no link to hit")
        elif not action.nodes:
            raise Skipped("it has no node to hit")
        return action

    async def _observe_all(self) -> dict[str, Mapping[str, object]]:
        nodes = self._cluster.nodes
        answers = await asyncio.gather(*(self.observe(node) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def observe(self, node: str) -> Mapping[str, object]:
        """{} if it can't be asked."""
        try:
            async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                return await self._system.observe(self._cluster, node)
        except (ClientError, HarnessError, OSError, TimeoutError):
            return {}

    async def serves(self, node: str) -> bool:
        return bool(await self.observe(node))
