"""Aiming: from a drafted action to the nodes and links that it hits, as far as they can be known
before the run. Pure.

A role (master, mirrors, ...) is known only when the fault fires; then the runner aims once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from shalott.core.parameters import make_parameters, to_plan
from shalott.core.plan import FaultAction
from shalott.core.rng import Stream
from shalott.nemesis.record import FaultRecord, members
from shalott.nemesis.targets import draw_nodes, is_role, is_single

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
    atlas: str,
) -> FaultAction:
    """Resolve nodes and links. ``atlas``: the only node for faults that do not heal."""
    target = draft.target
    if record.target is not None:
        target = record.target
    elif record.does_not_heal:
        target = atlas
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


def draw_atlas(seed: int, nodes: Sequence[str]) -> str:
    """The only node that this seed's plan may do lasting harm to."""
    return Stream(seed, "atlas").choice(nodes)


def renumbered(actions: Sequence[FaultAction]) -> Iterator[FaultAction]:
    for number, action in enumerate(actions, start=1):
        yield msgspec.structs.replace(action, id=number)
