"""Checks that several families of faults share: whether a link passes, what a process does.

What is expected is what all the faults in force add up to, asked anew at each look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from shalott.cluster.nodes import LinkShape
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link
from shalott.nemesis.proofs import Check, Seen

REACH_TIMEOUT_MS = 500


def reach_check(ctx: FaultContext, link: Link) -> Check:
    """Whether bytes arrive, which they must unless somebody has cut the link."""

    async def look() -> Seen:
        return await ctx.cluster.links.reach(*link, REACH_TIMEOUT_MS)

    def reaches() -> Seen:
        return not ctx.cuts.is_cut(link)

    return Check(link[0], f"reach {link[0]}->{link[1]}", look, reaches, moot=moot(ctx, link))


def status_check(ctx: FaultContext, node: str) -> Check:
    """Whether the process runs, is paused or is down, as the faults want it."""

    async def look() -> Seen:
        await ctx.processes.is_gone(node)  # which starts it if it has no excuse to be down
        state = (await ctx.cluster.processes.status(node)).state
        return "down" if state in ("exited", "absent") else state

    def state() -> Seen:
        return ctx.processes.wanted(node)

    def agrees(seen: Seen, expected: Seen) -> bool:
        return seen == expected or (seen == "down" and ctx.processes.may_be_exited(node))

    return Check(node, f"status {node}", look, state, agrees=agrees)


def status_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    """Of every node that the fault hits."""
    return [status_check(ctx, node) for node in action.nodes or ()]


def moot(ctx: FaultContext, link: Link) -> Callable[[], Awaitable[bool]]:
    """Whether an end of the link is down: then looking at it proves nothing."""

    async def is_moot() -> bool:
        return any([await ctx.processes.is_gone(node) for node in link])

    return is_moot


def living(ctx: FaultContext, links: Iterable[Link]) -> list[Link]:
    """Those of the links that have no end that is down."""
    return [link for link in links if all(ctx.processes.state(n) != "down" for n in link)]


def within(least: float, share: float = 0) -> Callable[[Seen, Seen], bool]:
    """Compares numbers: they may differ by ``least``, and by ``share`` of what is expected."""

    def agrees(seen: Seen, expected: Seen) -> bool:
        assert isinstance(seen, int | float) and isinstance(expected, int | float)
        return abs(seen - expected) <= least + share * abs(expected)

    return agrees


def as_data(struct: msgspec.Struct) -> dict[str, Any]:
    """A setting as a check's row shows it."""
    data: dict[str, Any] = msgspec.to_builtins(struct)
    return data


# What a row says of every link; the rest stands there when it is in force.
_ALWAYS_SAID = ("delay_ms", "rate_bytes_s", "loss")


def shape_data(shape: LinkShape) -> dict[str, Any]:
    """A link's shape as a check's row shows it."""
    return {name: value for name, value in as_data(shape).items() if value or name in _ALWAYS_SAID}
