"""Link faults: they delay, lose, throttle or spoil what the links of a node carry.

Proved by asking where it works (the kernel's queues, the packet engine, the relay, the simulated
link) what is in force and, in a world that can, by sending packets to see what becomes of them.
What overlapping faults add up to is in settings.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec

from shalott.cluster.capabilities import Capability
from shalott.cluster.nodes import LinkShape
from shalott.cluster.parts import HoldsBack, MeasuresPackets
from shalott.core.errors import HarnessError
from shalott.core.parameters import NoParameters
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.partitions import one_direction, touching
from shalott.nemesis.proofs import Check, Seen, as_data, living, moot, shape_data
from shalott.nemesis.record import Amount, Checks, FaultRecord, Takes
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


@dataclass(frozen=True, slots=True)
class _Shrinks:
    """How a fault of both directions, and that of one, are shrunk: in this order."""

    strength: tuple[int, int]
    weaker: Sequence[tuple[FaultRecord, FaultRecord]] = ()


def _both(
    name: str,
    summary: str,
    need: Capability,
    shape_of: ShapeOf,
    amount: Amount,
    *,
    takes: Takes,
    shrinks: _Shrinks,
    parameters: type[msgspec.Struct] = NoParameters,
) -> tuple[FaultRecord, FaultRecord]:
    """The fault of both directions, and that of what a node sends."""
    weaker, strength = shrinks.weaker, shrinks.strength

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


# -- some connections ------------------------------------------------------------------------------


async def _hold_back(ctx: FaultContext, action: FaultAction) -> None:
    links = ctx.cluster.links
    assert isinstance(links, HoldsBack), "its world is asked for hold-back"
    await ctx.at_once([links.hold_back(action.links or (), action.seed)])


async def _let_pass(ctx: FaultContext, action: FaultAction) -> None:
    links = ctx.cluster.links
    assert isinstance(links, HoldsBack)
    await ctx.at_once([links.let_pass(action.links or ())])


def _holds_checks(expected: bool) -> Checks:
    def checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
        links = ctx.cluster.links
        assert isinstance(links, HoldsBack)
        return [
            Check(link[0], f"held back {link[0]}->{link[1]}", partial(links.holds_back, link), told)
            for link in action.links or ()
        ]

    def told() -> Seen:
        return expected

    return checks


HOLD_BACK = FaultRecord(
    name="hold-back",
    summary="some connections of a node carry nothing, and the others overtake them",
    needs=("hold-back",),
    inject=_hold_back,
    heal=_let_pass,
    effective=_holds_checks(True),
    healed=_holds_checks(False),
    links=lambda nodes, hit, rng: touching(nodes, hit, outgoing_only=rng.random() < 0.5),
    lane="hold-back",
    effects=("cuts-links",),
    strength=25,
)

DELAY, DELAY_ONE_WAY = _both(
    "delay",
    "packets from and to a node arrive later",
    "delay",
    lambda ms, _: LinkShape(delay_ms=ms),
    Amount("ms", (10, 50, 200, 1_000, 3_000), mild=3, least=0.001, most=600_000),
    takes="nothing-if-mild",
    shrinks=_Shrinks((12, 10)),
)
LOSS, LOSS_ONE_WAY = _both(
    "loss",
    "packets from and to a node are lost and sent again",
    "loss",
    lambda probability, related: LinkShape(loss=probability, correlation=related),
    Amount("probability", (0.01, 0.05, 0.2, 0.5), mild=2, least=0.0001, most=1),
    takes="nothing-if-mild",
    shrinks=_Shrinks((22, 20), weaker=((DELAY, DELAY_ONE_WAY),)),
    parameters=Related,
)
CLOG, CLOG_ONE_WAY = _both(
    "clog",
    "the links of a node carry next to nothing",
    "throttle",
    lambda rate, _: LinkShape(rate_bytes_s=int(rate)),
    Amount("bytes/s", (20_000, 2_000, 200), least=1, most=1_000_000_000),
    takes="contact",
    shrinks=_Shrinks((26, 24), weaker=((DELAY, DELAY_ONE_WAY),)),
)

JITTER, JITTER_ONE_WAY = _both(
    "jitter",
    "packets from and to a node take up to so much longer, each another time",
    "jitter",
    lambda ms, related: LinkShape(jitter_ms=ms, correlation=related),
    Amount("ms", (10, 50, 200, 1_000), mild=3, least=0.001, most=600_000),
    takes="nothing-if-mild",
    shrinks=_Shrinks((8, 6)),
    parameters=Related,
)
DUPLICATE, DUPLICATE_ONE_WAY = _both(
    "duplicate",
    "packets from and to a node arrive twice",
    "duplicate",
    lambda probability, related: LinkShape(duplicate=probability, correlation=related),
    Amount("probability", (0.02, 0.1, 0.5), mild=3, least=0.0001, most=1),
    takes="nothing",
    shrinks=_Shrinks((9, 7)),
    parameters=Related,
)
REORDER, REORDER_ONE_WAY = _both(
    "reorder",
    "packets from and to a node are overtaken by those behind them",
    "reorder",
    lambda probability, related: LinkShape(reorder=probability, correlation=related),
    Amount("probability", (0.05, 0.25, 0.5), mild=3, least=0.0001, most=1),
    takes="nothing",
    shrinks=_Shrinks((15, 13), weaker=((JITTER, JITTER_ONE_WAY),)),
    parameters=Related,
)
CORRUPT, CORRUPT_ONE_WAY = _both(
    "corrupt",
    "bits of packets from and to a node are flipped, which TCP sees and sends again",
    "corrupt",
    lambda probability, related: LinkShape(corrupt=probability, correlation=related),
    Amount("probability", (0.02, 0.1, 0.3), mild=2, least=0.0001, most=1),
    takes="nothing-if-mild",
    shrinks=_Shrinks((25, 23), weaker=((DELAY, DELAY_ONE_WAY), (LOSS, LOSS_ONE_WAY))),
    parameters=Related,
)
RATE, RATE_ONE_WAY = _both(
    "rate",
    "the links of a node are narrow",
    "throttle",
    lambda rate, _: LinkShape(rate_bytes_s=int(rate)),
    Amount("bytes/s", (10_000_000, 1_000_000, 100_000), mild=2, least=1, most=1_000_000_000),
    takes="nothing-if-mild",
    shrinks=_Shrinks((18, 16), weaker=((DELAY, DELAY_ONE_WAY),)),
)

FAULTS = (
    *(LOSS, LOSS_ONE_WAY, DELAY, DELAY_ONE_WAY, CLOG, CLOG_ONE_WAY),
    *(JITTER, JITTER_ONE_WAY, DUPLICATE, DUPLICATE_ONE_WAY, REORDER, REORDER_ONE_WAY),
    *(CORRUPT, CORRUPT_ONE_WAY, RATE, RATE_ONE_WAY, HOLD_BACK),
)


# -- Proving link faults by packets: numbered ones are sent over a link, and what became of them
# must
# be what the faults in force want.
#
# What a fault does with a probability is proved when it was seen once, and proved healed when it
# was
# not seen any more. Enough packets are sent that it should be seen a few times. A link that a
# partition has cut, that is narrow, or that other faults keep changing carries no packets that
# prove
# anything.
FAILED_LOOKS = 3
UNSTEADY_LOOKS = 2  # after so many the link is left to the proof of its shape
LEAST_COUNT, MOST_COUNT = 20, 1000
EXPECTED_HITS = 8
LATE_MS = 25.0  # a packet may be so late on a busy machine, and so may the clock that it is read by
LATE_SHARE = 0.5  # and by so much of what it is late by
SPREAD_SHARE = 0.3  # of a jitter, that a few dozen packets show at least


def packets_check(ctx: FaultContext, links: MeasuresPackets, link: Link) -> Check:
    """What becomes of packets, beside the shape that the faults add up to."""
    is_down = moot(ctx, link)
    unsteady = 0  # looks during which other faults changed the link
    failed = 0  # looks that failed: a node that is just being killed is not down yet

    async def proves_nothing() -> bool:
        is_narrow = bool(ctx.settings.shape(link).rate_bytes_s)
        return ctx.cuts.is_cut(link) or is_narrow or await is_down()

    async def is_moot() -> bool:
        return unsteady >= UNSTEADY_LOOKS or await proves_nothing()

    async def look() -> Seen:
        nonlocal unsteady, failed
        shape = ctx.settings.shape(link)
        if await proves_nothing():
            return {}
        try:
            seen = await links.measure(*link, packets_for(shape))
        except HarnessError:
            failed += 1
            if failed < FAILED_LOOKS or await is_down():
                return {}
            raise
        if shape != ctx.settings.shape(link) or await proves_nothing():
            unsteady += 1
            return {}
        return as_data(seen)

    def shape() -> Seen:
        return shape_data(ctx.settings.shape(link))

    text = f"packets {link[0]}->{link[1]}"
    return Check(link[0], text, look, shape, agrees=packets_agree, moot=is_moot)


def packets_for(shape: LinkShape) -> int:
    """How many packets show what the shape does."""
    rare = [p for p in (shape.loss, shape.duplicate, shape.reorder, shape.corrupt) if p]
    wanted = int(EXPECTED_HITS / min(rare)) if rare else LEAST_COUNT
    return max(LEAST_COUNT, min(wanted, MOST_COUNT))


def packets_agree(seen: Seen, expected: Seen) -> bool:
    """Whether what became of the packets (``PacketsSeen``) is what the shape does."""
    assert isinstance(seen, dict) and isinstance(expected, dict)
    if not seen:
        return False
    lost = seen["sent"] - seen["arrived"] - seen["corrupted"]
    happened = {
        "loss": lost > 0,
        "duplicate": seen["duplicated"] > 0,
        "corrupt": seen["corrupted"] > 0,
    }
    # A damaged packet that is doubled counts twice, so little can be said of the lost.
    both = expected.get("corrupt", 0) and expected.get("duplicate", 0)
    told = ("duplicate", "corrupt") if both else ("loss", "duplicate", "corrupt")
    if any(happened[name] != bool(expected.get(name, 0)) for name in told):
        return False
    moves = bool(expected.get("reorder", 0) or expected.get("jitter_ms", 0))
    if expected.get("reorder", 0) and not seen["overtaken"]:
        return False
    if seen["overtaken"] and not moves:
        return False
    return seen["arrived"] == 0 or _times_agree(seen, expected)


def _times_agree(seen: dict[str, float], expected: dict[str, float]) -> bool:
    delay_ms, jitter_ms = expected.get("delay_ms", 0), expected.get("jitter_ms", 0)
    least_ms, most_ms = seen["least_ms"], seen["most_ms"]
    if least_ms < 0.95 * delay_ms:
        return False
    if least_ms > delay_ms + jitter_ms + LATE_MS + LATE_SHARE * delay_ms:
        return False
    return not jitter_ms or most_ms - least_ms >= SPREAD_SHARE * jitter_ms
