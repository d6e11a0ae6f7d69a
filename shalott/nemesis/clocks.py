"""Clock faults: they set the clock of a node wrong, make it run wrong, or set it to and fro.

A jump is proved by reading the node's clock beside the true one, a skew by reading it twice, a
strobe by reading it until both of its times were seen. What overlapping faults add up to is in
settings.py. (Jepsen: jepsen.nemesis.time, bump and strobe.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated

import msgspec

from shalott.cluster.parts import SuspendsNodes
from shalott.core.errors import HarnessError
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.processes import PAUSE
from shalott.nemesis.proofs import PROBE_INTERVAL_S, Check, Seen, status_checks, within
from shalott.nemesis.record import Amount, FaultRecord
from shalott.nemesis.weaker import as_kind

SKEW_SPAN_S = 0.2  # between the two readings that show how fast a clock runs
SKEW_TOLERANCE = 0.1  # of the drift, and SKEW_TOLERANCE_PPM
SKEW_TOLERANCE_PPM = 5.0
OFFSET_TOLERANCE_MS = 1.0
# Where a node's clock is read from outside, and made of steps.
ROUGH_SKEW_SPAN_S = 1.5
ROUGH_SKEW_TOLERANCE_PPM = 30.0
FAILED_READINGS = 3
STROBE_READINGS = 24  # at most, until both sides of a strobe were seen
STROBE_SHARE = 0.8  # of twice the amount, that must be between two readings

_SKEWS_PPM = (200.0, -200.0, 2_000.0, -2_000.0, 20_000.0, -20_000.0)
_JUMPS_MS = (500.0, -500.0, 5_000.0, -5_000.0, 60_000.0, -60_000.0, 3_600_000.0, -3_600_000.0)
_YEAR_MS = 365 * 86_400_000.0


async def _skew(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once(
        ctx.settings.add_clock(action.id, node, drift_ppm=action.amount)
        for node in action.nodes or ()
    )


async def _jump(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once(
        ctx.settings.add_clock(action.id, node, offset_ms=action.amount)
        for node in action.nodes or ()
    )


async def _set_right(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once(ctx.settings.remove_clock(action.id, node) for node in action.nodes or ())


def _drift_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [drift_check(ctx, node) for node in action.nodes or ()]


def drift_check(ctx: FaultContext, node: str) -> Check:
    rough = is_rough(ctx)

    async def look() -> Seen:
        first_ms, first_told_ms, first_ns = await _read(ctx, node), told_ms(), ctx.now_ns()
        await asyncio.sleep(ROUGH_SKEW_SPAN_S if rough else SKEW_SPAN_S)
        last_ms, last_told_ms, last_ns = await _read(ctx, node), told_ms(), ctx.now_ns()
        # Other faults may set the clock meanwhile; what is left is how it runs.
        unexplained_ms = (last_ms - first_ms) - (last_told_ms - first_told_ms)
        unexplained_ppm = unexplained_ms * 1e12 / (last_ns - first_ns)
        return round(ctx.settings.drift_ppm(node) + unexplained_ppm, 1)

    def told_ms() -> float:
        return ctx.settings.offset_ms(node)

    def drift() -> Seen:
        return round(ctx.settings.drift_ppm(node), 1)

    least_ppm = ROUGH_SKEW_TOLERANCE_PPM if rough else SKEW_TOLERANCE_PPM
    agrees = within(least_ppm, SKEW_TOLERANCE)
    return Check(node, f"drift {node}", look, drift, agrees=agrees, moot=_unread(ctx, node))


def is_rough(ctx: FaultContext) -> bool:
    """Whether clocks are read from outside, of running nodes only."""
    return ctx.cluster.clocks.error_ms > 0


async def _read(ctx: FaultContext, node: str) -> float:
    """Its offset; 0 if it can't be read since it is down, which makes the check moot.

    Where a clock is read from outside, a node that is just being killed is not down yet: the
    reading is tried again.
    """
    for _ in range(FAILED_READINGS):
        try:
            return await ctx.cluster.clocks.offset_ms(node)
        except HarnessError:
            if await _unread(ctx, node)():
                return 0.0
            if not is_rough(ctx):
                raise
            await asyncio.sleep(PROBE_INTERVAL_S)
    return await ctx.cluster.clocks.offset_ms(node)


def _unread(ctx: FaultContext, node: str) -> Callable[[], Awaitable[bool]]:
    """Whether its clock can't be read, as only a running node's can be."""

    async def is_unread() -> bool:
        if not is_rough(ctx):
            return False
        return await ctx.processes.is_gone(node)

    return is_unread


def _offset_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [_offset_check(ctx, node) for node in action.nodes or ()]


def _offset_check(ctx: FaultContext, node: str) -> Check:
    async def look() -> Seen:
        return round(await _read(ctx, node), 3)

    def offset() -> Seen:
        return round(ctx.settings.offset_ms(node), 3)

    error_ms = OFFSET_TOLERANCE_MS
    if is_rough(ctx):
        error_ms = ctx.cluster.clocks.error_ms
    agrees = within(error_ms)
    return Check(node, f"clock {node}", look, offset, agrees=agrees, moot=_unread(ctx, node))


class Strobing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``period_ms``: between two settings of the clock."""

    period_ms: Annotated[int, msgspec.Meta(ge=10)] = 200


async def _strobe(ctx: FaultContext, action: FaultAction) -> None:
    """Ahead at first; what goes on is ended by ``_stop_strobe``."""
    period_ms = msgspec.convert(action.parameters, Strobing).period_ms

    async def go_on() -> None:
        offset_ms = action.amount
        while True:
            await asyncio.sleep(period_ms / 1000)
            offset_ms = -offset_ms
            await ctx.at_once(
                ctx.settings.add_clock(action.id, node, offset_ms=offset_ms)
                for node in action.nodes or ()
            )

    await _jump(ctx, action)
    ctx.left["strobe"] = asyncio.create_task(go_on())


async def _stop_strobe(ctx: FaultContext, action: FaultAction) -> None:
    task = ctx.left.pop("strobe", None)
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
    await _set_right(ctx, action)


def _strobe_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    period_ms = msgspec.convert(action.parameters, Strobing).period_ms
    return [_strobe_check(ctx, node, action.amount, period_ms) for node in action.nodes or ()]


def _strobe_check(ctx: FaultContext, node: str, amount_ms: float, period_ms: int) -> Check:
    """Whether the clock is seen on both sides of where it would be without the strobe."""
    wanted_ms = 2 * abs(amount_ms) * STROBE_SHARE

    async def look() -> Seen:
        least_ms = most_ms = await _read(ctx, node)
        for _ in range(STROBE_READINGS):
            if most_ms - least_ms >= wanted_ms:
                break
            await asyncio.sleep(period_ms / 3000)
            now_ms = await _read(ctx, node)
            least_ms, most_ms = min(least_ms, now_ms), max(most_ms, now_ms)
        return round(most_ms - least_ms, 3)

    def spread() -> Seen:
        return 2 * abs(amount_ms)

    def agrees(seen: Seen, expected: Seen) -> bool:
        assert isinstance(seen, int | float)
        return seen >= wanted_ms

    return Check(node, f"strobe {node}", look, spread, agrees=agrees, moot=_unread(ctx, node))


def _weaker_than_a_jump(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, SKEW)


def _weaker_than_a_strobe(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, SKEW)
    yield from as_kind(action, JUMP)


SKEW = FaultRecord(
    name="clock-skew",
    summary="a clock that runs wrong",
    needs=("clock",),
    inject=_skew,
    heal=_set_right,
    effective=_drift_checks,
    healed=_drift_checks,
    amount=Amount("ppm", _SKEWS_PPM, mild=len(_SKEWS_PPM), least=-500_000, most=500_000),
    takes="nothing",
    strength=10,
)
JUMP = FaultRecord(
    name="clock-jump",
    summary="a clock that is set wrong, and back",
    needs=("clock",),
    inject=_jump,
    heal=_set_right,
    effective=_offset_checks,
    healed=_offset_checks,
    amount=Amount("ms", _JUMPS_MS, mild=len(_JUMPS_MS), least=-_YEAR_MS, most=_YEAR_MS),
    takes="nothing",
    weaker=_weaker_than_a_jump,
    strength=20,
)

STROBE = FaultRecord(
    name="clock-strobe",
    summary="a clock that is set ahead and back again and again",
    needs=("clock",),
    inject=_strobe,
    heal=_stop_strobe,
    effective=_strobe_checks,
    healed=_offset_checks,
    amount=Amount("ms", (500.0, 5_000.0, 60_000.0), mild=3, least=20, most=_YEAR_MS),
    parameters=Strobing,
    takes="nothing",
    weaker=_weaker_than_a_strobe,
    strength=30,
)


# -- no time at all --------------------------------------------------------------------------------


async def _suspend(ctx: FaultContext, action: FaultAction) -> None:
    clocks = ctx.cluster.clocks
    assert isinstance(clocks, SuspendsNodes), "its world is asked for suspend"
    for node in action.nodes or ():
        await ctx.processes.demand(action.id, node, "pause")
        await clocks.suspend(node)


async def _go_on(ctx: FaultContext, action: FaultAction) -> None:
    clocks = ctx.cluster.clocks
    assert isinstance(clocks, SuspendsNodes)
    ctx.told["stood_ms"] = {node: await clocks.go_on(node) for node in action.nodes or ()}
    for node in action.nodes or ():
        await ctx.processes.withdraw(action.id, node)


SUSPEND = FaultRecord(
    name="suspend",
    summary="a node's time stands still: no timer fires, messages wait, and only its wall clock is"
    " right afterwards",
    needs=("pause", "suspend"),
    inject=_suspend,
    heal=_go_on,
    effective=status_checks,
    healed=status_checks,
    effects=("suspends",),
    weaker=lambda action: as_kind(action, PAUSE),
    strength=35,
)

FAULTS = (SKEW, JUMP, STROBE, SUSPEND)
