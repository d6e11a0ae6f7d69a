"""Link faults: they delay, lose, throttle or spoil what the links of a node carry.

Proved by asking where it works (the kernel's queues, the packet engine, the relay, the simulated
link) what is in force and, in a world that can, by sending packets to see what becomes of them
(packet_proofs.py). What overlapping faults add up to is in settings.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import msgspec

from shalott.cluster.capabilities import Capability
from shalott.cluster.nodes import LinkShape
from shalott.cluster.parts import MeasuresPackets
from shalott.core.parameters import NoParameters
from shalott.core.plan import FaultAction
from shalott.nemesis.checks import living, moot, shape_data
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.grudges import touching
from shalott.nemesis.packet_proofs import packets_check
from shalott.nemesis.partitions import one_direction
from shalott.nemesis.proofs import Check, Seen
from shalott.nemesis.record import Amount, FaultRecord, Takes
from shalott.nemesis.weaker import as_kind

SHAPE_TOLERANCE = 0.02  # tools round what they are told
ONE_WAY = "-one-way"

ShapeOf = Callable[[float, float], LinkShape]  # of an amount and a correlation


class Related(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``correlation``: the probability that a packet meets what the packet before it met."""

    correlation: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0


async def _remove(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once(ctx.settings.remove_shape(action.id, link) for link in action.links or ())


def _effective(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return _checks(ctx, living(ctx, action.links or ()))


def _healed(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return _checks(ctx, action.links or ())


def _checks(ctx: FaultContext, links: Sequence[Link]) -> list[Check]:
    shapes = [_shape_check(ctx, link) for link in links]
    if not isinstance(ctx.cluster.links, MeasuresPackets):
        return shapes
    return [*shapes, *(packets_check(ctx, ctx.cluster.links, link) for link in links)]


def _shape_check(ctx: FaultContext, link: Link) -> Check:
    async def look() -> Seen:
        return shape_data(await ctx.cluster.links.shape_of(*link))

    def shape() -> Seen:
        return shape_data(ctx.settings.shape(link))

    text = f"shape {link[0]}->{link[1]}"
    return Check(link[0], text, look, shape, agrees=_shapes_agree, moot=moot(ctx, link))


def _shapes_agree(seen: Seen, expected: Seen) -> bool:
    assert isinstance(seen, dict) and isinstance(expected, dict)
    return all(
        abs(seen.get(name, 0) - expected.get(name, 0)) <= SHAPE_TOLERANCE * expected.get(name, 0)
        for name in {**seen, **expected}
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
    weaker: Sequence[tuple[FaultRecord, FaultRecord]] = (),
    parameters: type[msgspec.Struct] = NoParameters,
) -> tuple[FaultRecord, FaultRecord]:
    """The fault of both directions, and that of what a node sends.

    ``strength`` and ``weaker`` are in this order too.
    """

    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        told = msgspec.convert(action.parameters, Related)
        shape = shape_of(action.amount, told.correlation)
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
        parameters=parameters,
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
        parameters=parameters,
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
    lambda ms, _: LinkShape(delay_ms=ms),
    Amount("ms", (10, 50, 200, 1_000, 3_000), mild=3, least=0.001, most=600_000),
    takes="nothing-if-mild",
    strength=(12, 10),
)
LOSS, LOSS_ONE_WAY = _both(
    "loss",
    "packets from and to a node are lost and sent again",
    "loss",
    lambda probability, related: LinkShape(loss=probability, correlation=related),
    Amount("probability", (0.01, 0.05, 0.2, 0.5), mild=2, least=0.0001, most=1),
    takes="nothing-if-mild",
    strength=(22, 20),
    weaker=((DELAY, DELAY_ONE_WAY),),
    parameters=Related,
)
CLOG, CLOG_ONE_WAY = _both(
    "clog",
    "the links of a node carry next to nothing",
    "throttle",
    lambda rate, _: LinkShape(rate_bytes_s=int(rate)),
    Amount("bytes/s", (20_000, 2_000, 200), least=1, most=1_000_000_000),
    takes="contact",
    strength=(26, 24),
    weaker=((DELAY, DELAY_ONE_WAY),),
)

JITTER, JITTER_ONE_WAY = _both(
    "jitter",
    "packets from and to a node take up to so much longer, each another time",
    "jitter",
    lambda ms, related: LinkShape(jitter_ms=ms, correlation=related),
    Amount("ms", (10, 50, 200, 1_000), mild=3, least=0.001, most=600_000),
    takes="nothing-if-mild",
    strength=(8, 6),
    parameters=Related,
)
DUPLICATE, DUPLICATE_ONE_WAY = _both(
    "duplicate",
    "packets from and to a node arrive twice",
    "duplicate",
    lambda probability, related: LinkShape(duplicate=probability, correlation=related),
    Amount("probability", (0.02, 0.1, 0.5), mild=3, least=0.0001, most=1),
    takes="nothing",
    strength=(9, 7),
    parameters=Related,
)
REORDER, REORDER_ONE_WAY = _both(
    "reorder",
    "packets from and to a node are overtaken by those behind them",
    "reorder",
    lambda probability, related: LinkShape(reorder=probability, correlation=related),
    Amount("probability", (0.05, 0.25, 0.5), mild=3, least=0.0001, most=1),
    takes="nothing",
    strength=(15, 13),
    weaker=((JITTER, JITTER_ONE_WAY),),
    parameters=Related,
)
CORRUPT, CORRUPT_ONE_WAY = _both(
    "corrupt",
    "bits of packets from and to a node are flipped, which TCP sees and sends again",
    "corrupt",
    lambda probability, related: LinkShape(corrupt=probability, correlation=related),
    Amount("probability", (0.02, 0.1, 0.3), mild=2, least=0.0001, most=1),
    takes="nothing-if-mild",
    strength=(25, 23),
    weaker=((DELAY, DELAY_ONE_WAY), (LOSS, LOSS_ONE_WAY)),
    parameters=Related,
)
RATE, RATE_ONE_WAY = _both(
    "rate",
    "the links of a node are narrow",
    "throttle",
    lambda rate, _: LinkShape(rate_bytes_s=int(rate)),
    Amount("bytes/s", (10_000_000, 1_000_000, 100_000), mild=2, least=1, most=1_000_000_000),
    takes="nothing-if-mild",
    strength=(18, 16),
    weaker=((DELAY, DELAY_ONE_WAY),),
)

FAULTS = (
    *(LOSS, LOSS_ONE_WAY, DELAY, DELAY_ONE_WAY, CLOG, CLOG_ONE_WAY),
    *(JITTER, JITTER_ONE_WAY, DUPLICATE, DUPLICATE_ONE_WAY, REORDER, REORDER_ONE_WAY),
    *(CORRUPT, CORRUPT_ONE_WAY, RATE, RATE_ONE_WAY),
)
