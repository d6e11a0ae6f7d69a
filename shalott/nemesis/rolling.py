"""Rolling faults: one node after another is stopped in order and started, as operators do it.

The next node is stopped when the one before serves again and the cluster has settled
(``System.await_settled``: then its mirrors have what their masters have), and not at all if that
takes too long: there the roll ends, as an operator's does, and the row says why
(``refused_at_end``). What began with the first node ends when the fault does: that one is down from
the fault's beginning for ``duration_ms``, and the rest follow while it is healed. The row says who
was restarted (``rolled``). Proved by the status of the processes: the first is down when the fault
is in force, each was seen down, and all run at the end.

An upgrade changes the image that each node is made from while it is down, and nothing changes it
back: who was not reached keeps the old one. Proved by what the engine says of each node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.processes import LANE, STOP
from shalott.nemesis.proofs import Check, Seen, status_check, status_checks
from shalott.nemesis.record import FaultRecord
from shalott.nemesis.weaker import as_kind, on_one_node

SETTLED_WITHIN_MS = 60_000

While = Callable[[FaultContext, FaultAction, str], Awaitable[None]]  # done while a node is down
Looks = Callable[[FaultContext, FaultAction, str], list[Check]]  # at a node whose turn came


async def _no_change(ctx: FaultContext, action: FaultAction, node: str) -> None:
    """What a restart does to a node that is down."""


def _no_look(ctx: FaultContext, action: FaultAction, node: str) -> list[Check]:
    return []


def _first(action: FaultAction) -> str:
    return (action.nodes or ())[0]


async def _roll(ctx: FaultContext, action: FaultAction, meanwhile: While) -> None:
    """Start the first node, and restart the others in turn, until the run is over."""
    await _give_back(ctx, action, _first(action))
    for node in (action.nodes or ())[1:]:
        if ctx.refused or ctx.errors or not await ctx.wait_ms(0):
            return
        await _take(ctx, action, node, meanwhile)
        await _give_back(ctx, action, node)


async def _take(ctx: FaultContext, action: FaultAction, node: str, meanwhile: While) -> None:
    seen: dict[str, bool] = ctx.left.setdefault("seen down", {})
    seen[node] = False
    ctx.told["rolled"] = list(seen)
    await ctx.processes.demand(action.id, node, "stop")
    seen[node] = (await ctx.cluster.processes.status(node)).state == "exited"
    await meanwhile(ctx, action, node)


async def _give_back(ctx: FaultContext, action: FaultAction, node: str) -> None:
    """Start it, and wait until it serves and the cluster has settled."""
    await ctx.processes.withdraw(action.id, node)
    if ctx.processes.state(node) != "running":
        return  # another fault wants it down, and starts it
    waiting = asyncio.ensure_future(_why_unsettled(ctx, node))
    over = asyncio.ensure_future(ctx.wait_ms(2 * SETTLED_WITHIN_MS))
    try:
        await asyncio.wait((waiting, over), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            ctx.refused = waiting.result()
    finally:
        for pending in (waiting, over):
            pending.cancel()
        await asyncio.gather(waiting, over, return_exceptions=True)


async def _why_unsettled(ctx: FaultContext, node: str) -> str:
    """ "" once the cluster has settled, which takes every node; else why the next node waits."""
    if await ctx.system.await_settled(ctx.cluster, ctx.queues, SETTLED_WITHIN_MS):
        return ""
    within_s = SETTLED_WITHIN_MS // 1000
    return f"the cluster had not settled {within_s} s after {node} was started"


def _rolling(
    name: str,
    summary: str,
    *,
    meanwhile: While = _no_change,
    looks: Looks = _no_look,
    weaker: Callable[[FaultAction], Iterable[FaultAction]],
    strength: int,
) -> FaultRecord:
    """``meanwhile``: what is done to each node while it is down, and ``looks`` proves it."""

    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        await ctx.at_once([_take(ctx, action, _first(action), meanwhile)])

    async def heal(ctx: FaultContext, action: FaultAction) -> None:
        await ctx.at_once([_roll(ctx, action, meanwhile)])

    def effective(ctx: FaultContext, action: FaultAction) -> list[Check]:
        """Of the first node only: the others' turn comes later."""
        node = _first(action)
        return [status_check(ctx, node), *looks(ctx, action, node)]

    def healed(ctx: FaultContext, action: FaultAction) -> list[Check]:
        """Each node whose turn came was seen down, and all run."""
        seen: dict[str, bool] = ctx.left.get("seen down", {})
        own = [_was_down(node, seen) for node in seen]
        looked = [check for node in seen for check in looks(ctx, action, node)]
        return [*own, *looked, *status_checks(ctx, action)]

    return FaultRecord(
        name=name,
        summary=summary,
        needs=("stop",),
        inject=inject,
        heal=heal,
        effective=effective,
        healed=healed,
        effects=("ends-processes", "in-order"),
        target="all",
        one_by_one=True,
        takes="copies",
        lane=LANE,
        weaker=weaker,
        strength=strength,
    )


def _was_down(node: str, seen: Mapping[str, bool]) -> Check:
    async def look() -> Seen:
        return seen[node]

    return Check(node, f"was down {node}", look, lambda: True)


def _weaker_restart(action: FaultAction) -> Iterator[FaultAction]:
    yield from on_one_node(action, STOP)


ROLLING_RESTART = _rolling(
    "rolling-restart",
    "one node after another is stopped in order and started, each when the one before serves again",
    weaker=_weaker_restart,
    strength=45,
)


# -- upgrading -------------------------------------------------------------------------------------


class Upgrading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``to``: the image that nodes come back from: a recipe, or one that the engine has."""

    to: str = ""


def image_told(action: FaultAction) -> str:
    return msgspec.convert(action.parameters, Upgrading).to


def images_told(actions: Iterable[FaultAction]) -> tuple[str, ...]:
    """Every image that a plan's nodes may come back from."""
    told = (image_told(action) for action in actions if action.kind == ROLLING_UPGRADE.name)
    return tuple(dict.fromkeys(told))


async def _change_image(ctx: FaultContext, action: FaultAction, node: str) -> None:
    image = image_told(action)
    ctx.left["wanted"] = await ctx.cluster.images.find(image)
    if ctx.processes.state(node) == "down":
        await ctx.cluster.images.change(node, image)


def _image_look(ctx: FaultContext, action: FaultAction, node: str) -> list[Check]:
    async def look() -> Seen:
        return await ctx.cluster.images.made_from(node)

    return [Check(node, f"image {node}", look, lambda: str(ctx.left.get("wanted", "")))]


def _weaker_upgrade(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, ROLLING_RESTART)


ROLLING_UPGRADE = replace(
    _rolling(
        "rolling-upgrade",
        "the same, and each node comes back from another image (--upgrade-to), for good",
        meanwhile=_change_image,
        looks=_image_look,
        weaker=_weaker_upgrade,
        strength=48,
    ),
    needs=("stop", "upgrade"),
    parameters=Upgrading,
    must_tell={"to": "--upgrade-to"},
)

FAULTS = (ROLLING_RESTART, ROLLING_UPGRADE)
