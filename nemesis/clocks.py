"""Clock faults: they set the clock of a node wrong, or make it run wrong.

A jump is proved by reading the node's clock beside the true one, a skew by reading it twice. What
overlapping faults add up to is in settings.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from shalott.harness.core.plan import FaultAction
from shalott.nemesis.checks import within
from shalott.nemesis.context import FaultContext
from shalott.nemesis.proofs import Check, Seen
from shalott.nemesis.record import Amount, FaultRecord
from shalott.nemesis.weaker import as_kind

SKEW_SPAN_S = 0.2  # between the two readings that show how fast a clock runs
SKEW_TOLERANCE = 0.1  # of the drift, and SKEW_TOLERANCE_PPM
SKEW_TOLERANCE_PPM = 5.0
OFFSET_TOLERANCE_MS = 1.0

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
    return [_drift_check(ctx, node) for node in action.nodes or ()]


def _drift_check(ctx: FaultContext, node: str) -> Check:
    async def look() -> Seen:
        first_ms, first_ns = await ctx.cluster.clock_offset_ms(node), ctx.now_ns()
        await asyncio.sleep(SKEW_SPAN_S)
        last_ms, last_ns = await ctx.cluster.clock_offset_ms(node), ctx.now_ns()
        return round((last_ms - first_ms) * 1e12 / (last_ns - first_ns), 1)

    def drift() -> Seen:
        return round(ctx.settings.drift_ppm(node), 1)

    agrees = within(SKEW_TOLERANCE_PPM, SKEW_TOLERANCE)
    return Check(node, f"drift {node}", look, drift, agrees=agrees)


def _offset_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [_offset_check(ctx, node) for node in action.nodes or ()]


def _offset_check(ctx: FaultContext, node: str) -> Check:
    async def look() -> Seen:
        return round(await ctx.cluster.clock_offset_ms(node), 3)

    def offset() -> Seen:
        return round(ctx.settings.offset_ms(node), 3)

    return Check(node, f"clock {node}", look, offset, agrees=within(OFFSET_TOLERANCE_MS))


def _weaker_than_a_jump(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, SKEW)


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

FAULTS = (SKEW, JUMP)
