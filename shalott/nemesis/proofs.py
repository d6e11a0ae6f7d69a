"""Proofs: probes that show that a fault took hold, and that it was healed.

A fault that was not seen is worth nothing: harnesses have run for years with a partition that never
healed, or one that never was. So each is probed until what is expected is seen or a deadline
passes, and each probe is a row of the history (docs/architecture.md section 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from shalott.core.errors import HarnessError, MissingCapability
from shalott.core.op import NEMESIS, Completion, Invocation

if TYPE_CHECKING:
    from shalott.core.history import Recorder

from collections.abc import Iterable

import msgspec

from shalott.cluster.nodes import LinkShape
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import Link

PROBE_INTERVAL_S = 0.1

Phase = Literal["effective", "healed"]
Seen = bool | str | float | dict[str, Any]  # what JSON can hold


def _same(seen: Seen, expected: Seen) -> bool:
    return seen == expected


async def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at. ``text`` names it in the history, ``node`` is whom it is about.

    ``expected`` is asked anew at each look, for other faults come and go meanwhile; ``agrees``
    compares what was seen with it. A check is ``moot`` while another fault keeps from happening
    what it looks for: a dead node proves nothing of a link.
    """

    node: str
    text: str
    look: Callable[[], Awaitable[Seen]]
    expected: Callable[[], Seen]
    agrees: Callable[[Seen, Seen], bool] = _same
    moot: Callable[[], Awaitable[bool]] = _never


class Prover:
    """Probes one cluster and records what it saw."""

    def __init__(self, recorder: Recorder, timeout_s: float) -> None:
        self._recorder = recorder
        self._timeout_s = timeout_s

    async def prove(self, fault: int, phase: Phase, checks: Sequence[Check]) -> bool | None:
        """Whether everything was as expected; None if there was nothing that could be looked at."""
        outcomes = await asyncio.gather(*(self._probe(fault, phase, check) for check in checks))
        seen = [outcome for outcome in outcomes if outcome is not None]
        return all(seen) if seen else None

    async def _probe(self, fault: int, phase: Phase, check: Check) -> bool | None:
        extra = {
            "fault": fault,
            "phase": phase,
            "check": check.text,
            "expected": check.expected(),
            "seen": None,
        }
        index = self._recorder.invoke(NEMESIS, check.node, Invocation(f="probe", extra=extra))
        seen, expected, error, is_moot = await self._until_expected(check)
        if is_moot:
            seen, error = None, "moot: another fault holds down a node that this looks at"
        passed = error is None and seen is not None and check.agrees(seen, expected)
        kind: Literal["ok", "info"] = "ok" if passed else "info"
        extra |= {"expected": expected, "seen": seen}
        self._recorder.complete(index, Completion(type=kind, error=error, extra=extra))
        return None if is_moot else passed

    async def _until_expected(self, check: Check) -> tuple[Seen | None, Seen, str | None, bool]:
        """(what was seen last, what was expected then, error, whether it was moot)."""
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + self._timeout_s
        while True:
            try:
                seen = await check.look()
                expected = check.expected()
                agreed = check.agrees(seen, expected)
                is_moot = await check.moot()
            except (HarnessError, MissingCapability) as error:
                return None, check.expected(), str(error), False
            left_s = deadline_s - clock()
            if agreed or left_s <= 0 or is_moot:
                return seen, expected, None, is_moot
            await asyncio.sleep(min(PROBE_INTERVAL_S, left_s))


# -- Checks that several families of faults share: whether a link passes, what a process does.
#
# What is expected is what all the faults in force add up to, asked anew at each look.
REACH_TIMEOUT_MS = 500


def reach_check(ctx: FaultContext, link: Link) -> Check:
    """Whether bytes arrive, which they must unless a fault has cut the link."""

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


def as_data(struct: msgspec.Struct) -> dict[str, object]:
    """A setting as a check's row shows it."""
    data: dict[str, object] = msgspec.to_builtins(struct)
    return data


# What a row says of every link; the rest stands there when it is in force.
_ALWAYS_SAID = ("delay_ms", "rate_bytes_s", "loss")


def shape_data(shape: LinkShape) -> dict[str, object]:
    """A link's shape as a check's row shows it."""
    return {name: value for name, value in as_data(shape).items() if value or name in _ALWAYS_SAID}
