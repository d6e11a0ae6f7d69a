"""Link faults: they delay, lose or throttle what the links of a node carry.

Proved by asking where it works (the kernel's queues, the relay, the simulated link) what is in
force; a single packet would prove nothing. What overlapping faults add up to is in settings.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from shalott.cluster.base import Capability, LinkShape
from shalott.harness.core.plan import FaultAction
from shalott.nemesis.checks import as_data, living, moot
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.grudges import touching
from shalott.nemesis.partitions import one_direction
from shalott.nemesis.proofs import Check, Seen
from shalott.nemesis.record import Amount, FaultRecord, Takes
from shalott.nemesis.weaker import as_kind

SHAPE_TOLERANCE = 0.02  # tools round what they are told
ONE_WAY = "-one-way"

ShapeOf = Callable[[float], LinkShape]  # of an amount


async def _remove(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once(ctx.settings.remove_shape(action.id, link) for link in action.links or ())


def _effective(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [_shape_check(ctx, link) for link in living(ctx, action.links or ())]


def _healed(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [_shape_check(ctx, link) for link in action.links or ()]


def _shape_check(ctx: FaultContext, link: Link) -> Check:
    async def look() -> Seen:
        return as_data(await ctx.cluster.link_shape(*link))

    def shape() -> Seen:
        return as_data(ctx.settings.shape(link))

    text = f"shape {link[0]}->{link[1]}"
    return Check(link[0], text, look, shape, agrees=_shapes_agree, moot=moot(ctx, link))


def _shapes_agree(seen: Seen, expected: Seen) -> bool:
    assert isinstance(seen, dict) and isinstance(expected, dict)
    return all(
        abs(seen[name] - value) <= SHAPE_TOLERANCE * abs(value) for name, value in expected.items()
    )


def _one_direction_as(other: FaultRecord, action: FaultAction) -> Iterator[FaultAction]:
    """As a fault of one direction, each of the two in turn."""
    for way in one_direction(action.links):
        yield from as_kind(msgspec.structs.replace(action, links=way), other)


def _both(
    name: str,
    summary: str,
    need: Capability,
    shape_of: ShapeOf,
    amount: Amount,
    *,
    takes: Takes,
    strength: tuple[int, int],
    weaker: Sequence[tuple[FaultRecord, FaultRecord]],
) -> tuple[FaultRecord, FaultRecord]:
    """The fault of both directions, and that of what a node sends.

    ``strength`` and ``weaker`` are in this order too.
    """

    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        shape = shape_of(action.amount)
        await ctx.at_once(
            ctx.settings.add_shape(action.id, link, shape) for link in action.links or ()
        )

    def weaker_one_way(action: FaultAction) -> Iterator[FaultAction]:
        for _, other in weaker:
            yield from as_kind(action, other)

    def weaker_both_ways(action: FaultAction) -> Iterator[FaultAction]:
        for two_way, one_way in weaker:
            yield from _one_direction_as(one_way, action)
            yield from as_kind(action, two_way)
        yield from _one_direction_as(outgoing, action)

    outgoing = FaultRecord(
        name=f"{name}{ONE_WAY}",
        summary=f"{summary}, of what it sends only",
        needs=(need,),
        inject=inject,
        heal=_remove,
        effective=_effective,
        healed=_healed,
        amount=amount,
        links=lambda nodes, hit, rng: touching(nodes, hit, outgoing_only=True),
        takes=takes,
        weaker=weaker_one_way,
        strength=strength[1],
    )
    both = FaultRecord(
        name=name,
        summary=summary,
        needs=(need,),
        inject=inject,
        heal=_remove,
        effective=_effective,
        healed=_healed,
        amount=amount,
        links=lambda nodes, hit, rng: touching(nodes, hit, outgoing_only=False),
        takes=takes,
        weaker=weaker_both_ways,
        strength=strength[0],
    )
    return both, outgoing


DELAY, DELAY_ONE_WAY = _both(
    "delay",
    "packets from and to a node arrive later",
    "delay",
    lambda ms: LinkShape(delay_ms=ms),
    Amount("ms", (10, 50, 200, 1_000, 3_000), mild=3, least=0.001, most=600_000),
    takes="nothing-if-mild",
    strength=(12, 10),
    weaker=(),
)
LOSS, LOSS_ONE_WAY = _both(
    "loss",
    "packets from and to a node are lost and sent again",
    "loss",
    lambda probability: LinkShape(loss=probability),
    Amount("probability", (0.01, 0.05, 0.2, 0.5), mild=2, least=0.0001, most=1),
    takes="nothing-if-mild",
    strength=(22, 20),
    weaker=((DELAY, DELAY_ONE_WAY),),
)
CLOG, CLOG_ONE_WAY = _both(
    "clog",
    "the links of a node carry next to nothing",
    "throttle",
    lambda rate: LinkShape(rate_bytes_s=int(rate)),
    Amount("bytes/s", (20_000, 2_000, 200), least=1, most=1_000_000_000),
    takes="contact",
    strength=(26, 24),
    weaker=((DELAY, DELAY_ONE_WAY),),
)

FAULTS = (LOSS, LOSS_ONE_WAY, DELAY, DELAY_ONE_WAY, CLOG, CLOG_ONE_WAY)
