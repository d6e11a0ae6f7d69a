"""A fault as somebody else writes it: a link that comes and goes, and then stays down."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.partitions import ONE, isolate
from shalott.nemesis.proofs import Check, living, reach_check
from shalott.nemesis.record import FaultRecord
from shalott.nemesis.weaker import as_kind


class Flapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    times: int = 3
    apart_ms: int = 10


async def flap(ctx: FaultContext, action: FaultAction) -> None:
    told = msgspec.convert(action.parameters, Flapping)
    for _ in range(told.times - 1):
        await ctx.cuts.cut(action.id, action.links or ())
        await ctx.wait_ms(told.apart_ms)
        await ctx.cuts.mend(action.id)
        await ctx.wait_ms(told.apart_ms)
    await ctx.cuts.cut(action.id, action.links or ())


async def mend(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.cuts.mend(action.id)


def passes(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [reach_check(ctx, link) for link in living(ctx, action.links or ())]


def weaker(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, ONE)


FLAP = FaultRecord(
    name="flap",
    summary="the links of a node come and go",
    inject=flap,
    heal=mend,
    effective=passes,
    healed=passes,
    needs=("cut",),
    parameters=Flapping,
    choices={"times": (2, 5, 20), "apart_ms": (10, 100)},
    links=lambda nodes, hit, rng: isolate(nodes, hit),
    is_single=True,
    weaker=weaker,
    strength=60,
)
