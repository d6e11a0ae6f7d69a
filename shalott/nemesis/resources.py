"""Resource faults: a node's machine runs short of CPU, memory, files, processes or temporary room.

Proved by reading from the kernel what is in force; what overlapping faults add up to is in
settings.py. A node may end because of most of them, by the kernel's hand or its own; it is started
when the fault ends (process_states.py). One process of a node that stands still is here too: its
machine, its connections and its other processes go on, unlike those of a paused node.

``slow-node`` is what virtual machines and dying hardware do: clock and disk are late together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated

import msgspec

from shalott.cluster.capabilities import Capability
from shalott.cluster.nodes import DiskFaults, Shortage
from shalott.core.plan import Effect, FaultAction
from shalott.nemesis import clocks, disks
from shalott.nemesis.context import FaultContext
from shalott.nemesis.proofs import Check, Seen, as_data, status_checks
from shalott.nemesis.record import Amount, FaultRecord, Step, Takes
from shalott.nemesis.weaker import as_kind

LANE = "resources"
TOLERANCE = 0.02  # kernels round: pages of memory, microseconds of CPU

ShortageOf = Callable[[float], Shortage]  # by the action's amount


def _starve(shortage_of: ShortageOf, may_exit: bool) -> Step:
    async def starve(ctx: FaultContext, action: FaultAction, node: str) -> None:
        if may_exit:
            await ctx.processes.demand(action.id, node, "starve")
        await ctx.settings.add_shortage(action.id, node, shortage_of(action.amount))

    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        await ctx.at_once(starve(ctx, action, node) for node in action.nodes or ())

    return inject


async def _relieve(ctx: FaultContext, action: FaultAction) -> None:
    async def relieve(node: str) -> None:
        await ctx.settings.remove_shortage(action.id, node)
        await ctx.processes.withdraw(action.id, node)

    await ctx.at_once(relieve(node) for node in action.nodes or ())


def _shortage_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [_shortage_check(ctx, node) for node in action.nodes or ()]


def _shortage_and_status_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [*_shortage_checks(ctx, action), *status_checks(ctx, action)]


def _shortage_check(ctx: FaultContext, node: str) -> Check:
    async def look() -> Seen:
        return as_data(await ctx.cluster.resources.seen(node))

    def expected() -> Seen:
        return as_data(ctx.settings.shortage(node))

    async def is_gone() -> bool:
        """A node that does not run is not short of anything."""
        return await ctx.processes.is_gone(node)

    return Check(node, f"shortage {node}", look, expected, agrees=_agree, moot=is_gone)


def _agree(seen: Seen, expected: Seen) -> bool:
    assert isinstance(seen, dict) and isinstance(expected, dict)
    return all(abs(seen[name] - value) <= TOLERANCE * value for name, value in expected.items())


def _shortage(
    name: str,
    summary: str,
    shortage_of: ShortageOf,
    *,
    needs: Capability,
    effect: Effect,
    takes: Takes,
    strength: int,
    amount: Amount | None = None,
) -> FaultRecord:
    may_exit = effect == "starves"
    return FaultRecord(
        name=name,
        summary=summary,
        needs=(needs,),
        inject=_starve(shortage_of, may_exit),
        heal=_relieve,
        effective=_shortage_checks,
        healed=_shortage_and_status_checks,
        effects=(effect,),
        amount=amount,
        takes=takes,
        lane=LANE,
        may_exit=may_exit,
        weaker=_as_too_little_cpu if name != "cpu-starve" else lambda action: (),
        strength=strength,
    )


def _as_too_little_cpu(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, CPU)


CPU = _shortage(
    "cpu-starve",
    "a node's processes get a small share of one CPU",
    lambda percent: Shortage(cpu_percent=percent),
    needs="limit-cpu",
    effect="slows",
    takes="nothing-if-mild",
    strength=12,
    amount=Amount("% of a CPU", (50, 20, 5), mild=1, least=1, most=10_000),
)
TMP = _shortage(
    "tmp-full",
    "there is no room in a node's /tmp",
    lambda _: Shortage(is_tmp_full=True),
    needs="fill-tmp",
    effect="starves",
    takes="nothing",
    strength=14,
)
FILES = _shortage(
    "fd-exhaust",
    "a node's processes may open only so many files and connections more",
    lambda count: Shortage(files_left=int(count)),
    needs="limit-files",
    effect="starves",
    takes="contact",
    strength=28,
    amount=Amount("files", (64, 8, 1), least=1, most=1 << 20),
)
PROCESSES = _shortage(
    "fork-bomb",
    "a process on a node forks so often that no process or thread can be made any more",
    lambda count: Shortage(processes_left=int(count)),
    needs="limit-processes",
    effect="starves",
    takes="contact",
    strength=29,
    amount=Amount("processes", (8, 64, 256), least=1, most=4096),
)
STOPPED = _shortage(
    "pause-process",
    "SIGSTOP to a node's largest process only, and SIGCONT at the fault's end",
    lambda _: Shortage(is_stopped=True),
    needs="stop-process",
    effect="suspends",
    takes="contact",
    strength=30,
)
MEMORY = replace(
    _shortage(
        "memory-limit",
        "a node may take only so much memory more; beyond it the kernel ends a process",
        lambda size_mib: Shortage(memory_left_mib=size_mib),
        needs="limit-memory",
        effect="starves",
        takes="copies",
        strength=45,
        amount=Amount("MiB", (64, 16, 1), least=1, most=1 << 20),
    ),
    is_single=True,
)


class SlowClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``drift_ppm``: how fast the clock runs meanwhile, below 0 as it is late."""

    drift_ppm: Annotated[float, msgspec.Meta(ge=-500_000, lt=0)] = -20_000


async def _slow(ctx: FaultContext, action: FaultAction) -> None:
    drift_ppm = msgspec.convert(action.parameters, SlowClock).drift_ppm
    faults = DiskFaults(slow_ms=action.amount)

    async def slow(node: str) -> None:
        await ctx.settings.add_disk(action.id, node, faults)
        await ctx.settings.add_clock(action.id, node, drift_ppm=drift_ppm)

    await ctx.at_once(slow(node) for node in action.nodes or ())


async def _hurry(ctx: FaultContext, action: FaultAction) -> None:
    async def hurry(node: str) -> None:
        await ctx.settings.remove_disk(action.id, node)
        await ctx.settings.remove_clock(action.id, node)

    await ctx.at_once(hurry(node) for node in action.nodes or ())


def _slow_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [
        check
        for node in action.nodes or ()
        for check in (disks.disk_check(ctx, node), clocks.drift_check(ctx, node))
    ]


def _as_one_of_them(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, disks.SLOW)
    yield from as_kind(action, clocks.SKEW)


SLOW = FaultRecord(
    name="slow-node",
    summary="a node's clock runs late and its disk is slow, both at once",
    needs=("clock", "disk-slow"),
    inject=_slow,
    heal=_hurry,
    effective=_slow_checks,
    healed=_slow_checks,
    effects=("troubles-disk",),
    amount=Amount("ms", (5, 20, 100), mild=3, least=0.001, most=600_000),
    parameters=SlowClock,
    choices={"drift_ppm": (-200.0, -2_000.0, -20_000.0)},
    takes="nothing",
    lane=disks.LANE,
    weaker=_as_one_of_them,
    strength=25,
)

FAULTS = (CPU, MEMORY, FILES, PROCESSES, TMP, STOPPED, SLOW)
