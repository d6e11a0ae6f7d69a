"""Disk faults: they make the disk of a node slow, full, faulty or forgetful.

Proved by asking the disk what is in force. What overlapping faults add up to is in settings.py. A
node may end its own process when its disk fails; it is started when the fault ends. If it can't
read its disk any more it is left down, or gets an empty one if that is asked for
(process_states.py).

Corruption is bounded as in TigerBeetle's storage fault atlas: one node's disk in a whole plan, for
what has rotted stays rotten, and a second node's would be the last copy of something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from shalott.cluster.nodes import DiskFaults
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.files import FAULTS as OF_FILES
from shalott.nemesis.files import LANE as LANE
from shalott.nemesis.files import Replace, rot_of
from shalott.nemesis.process_states import GIVING_UP_S, How
from shalott.nemesis.proofs import Check, Seen, as_data, status_checks
from shalott.nemesis.record import Amount, FaultRecord, Step
from shalott.nemesis.weaker import as_kind


class Rot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    replace: Replace = False


def _spoil(
    faults_of: Callable[[float], DiskFaults], how: Callable[[FaultAction], How] | None = None
) -> Step:
    """``faults_of``: by amount. ``how``: what the node may do about it, if anything."""

    async def spoil(ctx: FaultContext, action: FaultAction, node: str) -> None:
        if how is not None:
            await ctx.processes.demand(action.id, node, how(action))
        await ctx.settings.add_disk(action.id, node, faults_of(action.amount))

    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        await ctx.at_once(spoil(ctx, action, node) for node in action.nodes or ())

    return inject


async def _restore(ctx: FaultContext, action: FaultAction) -> None:
    await ctx.at_once(ctx.settings.remove_disk(action.id, node) for node in action.nodes or ())


async def _restore_and_start(ctx: FaultContext, action: FaultAction) -> None:
    async def restore(node: str) -> None:
        await ctx.settings.remove_disk(action.id, node)
        await asyncio.sleep(GIVING_UP_S)
        await ctx.processes.withdraw(action.id, node)

    await ctx.at_once(restore(node) for node in action.nodes or ())


def _disk_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [disk_check(ctx, node) for node in action.nodes or ()]


def _disk_and_status_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [*_disk_checks(ctx, action), *status_checks(ctx, action)]


def disk_check(ctx: FaultContext, node: str) -> Check:
    async def look() -> Seen:
        return as_data(await ctx.cluster.disks.faults(node))

    def faults() -> Seen:
        return as_data(ctx.settings.disk(node))

    return Check(node, f"disk {node}", look, faults, agrees=_disks_agree)


def _disks_agree(seen: Seen, expected: Seen) -> bool:
    """A small disk may have had fewer bytes to rot than were asked for."""
    assert isinstance(seen, dict) and isinstance(expected, dict)
    rot = "corrupt_bytes"
    return {**seen, rot: seen[rot] > 0} == {**expected, rot: expected[rot] > 0}


def _weaker(*kinds: FaultRecord) -> Callable[[FaultAction], Iterator[FaultAction]]:
    def weaker(action: FaultAction) -> Iterator[FaultAction]:
        for kind in kinds:
            yield from as_kind(action, kind)

    return weaker


SLOW = FaultRecord(
    name="disk-slow",
    summary="every disk call takes longer",
    needs=("disk-slow",),
    inject=_spoil(lambda ms: DiskFaults(slow_ms=ms)),
    heal=_restore,
    effective=_disk_checks,
    healed=_disk_checks,
    effects=("troubles-disk",),
    amount=Amount("ms", (5, 20, 100), mild=3, least=0.001, most=600_000),
    takes="nothing",
    lane=LANE,
    strength=10,
)
SHORT = FaultRecord(
    name="disk-short",
    summary="reads and writes do less than they were asked to",
    needs=("disk-short",),
    inject=_spoil(lambda _: DiskFaults(short=True)),
    heal=_restore,
    effective=_disk_checks,
    healed=_disk_checks,
    effects=("troubles-disk",),
    takes="nothing",
    lane=LANE,
    weaker=_weaker(SLOW),
    strength=20,
)
FULL = FaultRecord(
    name="disk-full",
    summary="writes find no space",
    needs=("disk-full",),
    inject=_spoil(lambda _: DiskFaults(full=True), lambda _: "disk"),
    heal=_restore_and_start,
    effective=_disk_checks,
    healed=_disk_and_status_checks,
    effects=("troubles-disk", "fills-disk"),
    is_single=True,
    takes="copies",
    lane=LANE,
    may_exit=True,
    weaker=_weaker(SLOW, SHORT),
    strength=30,
)
ERROR = FaultRecord(
    name="disk-error",
    summary="syncs fail, and what they were to save is lost",
    needs=("disk-error",),
    inject=_spoil(lambda _: DiskFaults(fail_sync=True), lambda _: "disk"),
    heal=_restore_and_start,
    effective=_disk_checks,
    healed=_disk_and_status_checks,
    effects=("troubles-disk", "breaks-disk"),
    is_single=True,
    takes="copies",
    lane=LANE,
    may_exit=True,
    weaker=_weaker(SLOW, SHORT, FULL),
    strength=40,
)
CORRUPT = FaultRecord(
    name="disk-corrupt",
    summary="bytes on one node's disk rot, always the same node's in a plan",
    needs=("disk-corrupt", "wipe"),
    inject=_spoil(lambda size: DiskFaults(corrupt_bytes=int(size)), rot_of),
    heal=_restore_and_start,
    effective=_disk_checks,
    healed=_disk_and_status_checks,
    effects=("troubles-disk", "damages-data"),
    amount=Amount("bytes", (1, 16, 256), least=1, most=1 << 30),
    parameters=Rot,
    does_not_heal=True,
    takes="copies",
    lane=LANE,
    may_exit=True,
    weaker=_weaker(SLOW, SHORT, FULL, ERROR),
    strength=50,
)

FAULTS = (SLOW, FULL, ERROR, SHORT, CORRUPT, *OF_FILES)
