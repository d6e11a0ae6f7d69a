"""Faults of membership: nodes leave a system's cluster and join it, as operators have it.

The nodes of a plan are what they are. A node that leaves is a machine that is down and whom the
others have forgotten; it may join again under its name, as a new and empty member.

- ``replace-node``: a node is killed, forgotten by the others and given an empty disk when the fault
  begins; when it ends it is let in, and started. (``wipe`` does not tell the others.)
- ``remove-node``: a node is stopped in order and forgotten, for good: nothing heals it, no operator
  waits for it, and it is not started at the run's end.
- ``add-node``: the node that was removed joins, with an empty disk.

A node is given an empty disk only when a member says that it was forgotten: who comes back under
its name, and has forgotten what it acknowledged, must not be taken for who it was.

Proved by the status of the process, and by asking every other running node who belongs to the
cluster (``ChangesMembers``, cluster/system.py). What the system does not do for the operator is no
error of the fault: it stands in the fault's row (``refused``), and the node comes back as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from shalott.cluster.system import ChangesMembers
from shalott.core.errors import ClientError
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.process_states import How
from shalott.nemesis.processes import KILL, LANE, STOP, WIPE
from shalott.nemesis.proofs import Check, Seen, status_checks
from shalott.nemesis.record import FaultRecord
from shalott.nemesis.weaker import as_kind

RETRY_MS = 250
RUNNING_WITHIN_S = 60.0
ATTEMPTS = 120  # half a minute and the requests: the others must miss a node, and elect without it

Ask = Callable[[str], Awaitable[None]]  # a node, to do something


# -- asking ----------------------------------------------------------------------------------------


def _system(ctx: FaultContext) -> ChangesMembers:
    assert isinstance(ctx.system, ChangesMembers)
    return ctx.system


def _askable(ctx: FaultContext, node: str) -> list[str]:
    """The other nodes that run and belong to the cluster."""
    return [
        other
        for other in ctx.nodes
        if other != node
        and ctx.processes.state(other) == "running"
        and not ctx.processes.is_taken_out(other)
    ]


async def ask_in_turn(ctx: FaultContext, action: FaultAction, node: str, ask: Ask) -> str:
    """Ask the other nodes in turn until one has done it: ""; else why the last one did not."""
    reason = "no other node runs"
    order = ctx.rng(action, "asked").sample(ctx.nodes, len(ctx.nodes))
    for attempt in range(ATTEMPTS):
        if attempt:  # whether the run is over or not: what was begun is ended
            await asyncio.sleep(RETRY_MS / 1000)
        able = [other for other in order if other in _askable(ctx, node)]
        if not able:
            continue
        by = able[attempt % len(able)]
        try:
            await ask(by)
        except ClientError as error:
            reason = f"{by}: {error}"
        else:
            return ""
    return reason


async def _forget(ctx: FaultContext, action: FaultAction, node: str) -> None:
    """Have the others forget a node that is down, or say in ``refused`` why they did not."""
    system = _system(ctx)

    async def forget(by: str) -> None:
        await system.forget(ctx.cluster, node, by)

    reason = await ask_in_turn(ctx, action, node, forget)
    if reason:
        ctx.refused = f"{node} was not forgotten: {reason}"


async def _admit(ctx: FaultContext, action: FaultAction, node: str) -> bool:
    """Have the others let an empty node in; false, and why in ``refused``, if they did not."""
    system = _system(ctx)

    async def admit(by: str) -> None:
        await system.admit(ctx.cluster, node, by)

    reason = await ask_in_turn(ctx, action, node, admit)
    if reason:
        ctx.refused = f"{node} was not let in: {reason}"
    return not reason


async def _await_running(ctx: FaultContext, node: str) -> None:
    """Return when another node runs with it, or when that takes too long."""
    deadline_s = asyncio.get_running_loop().time() + RUNNING_WITHIN_S
    while asyncio.get_running_loop().time() < deadline_s:
        for by in _askable(ctx, node):
            if await _runs_with(ctx, by, node) is True:
                return
        await asyncio.sleep(RETRY_MS / 1000)


async def _runs_with(ctx: FaultContext, by: str, node: str) -> Seen:
    """Whether ``by`` says that it runs with ``node``; why not, if it can't be asked."""
    try:
        return node in await _system(ctx).running_members(ctx.cluster, by)
    except ClientError as error:
        return str(error)


def _obstacle(ctx: FaultContext, action: FaultAction) -> str:
    for node in action.nodes or ():
        if ctx.processes.is_taken_out(node):
            return f"{node} was removed"
        if reason := _system(ctx).why_not_leave(node):
            return f"{node} can't leave: {reason}"
    return ""


# -- checks ----------------------------------------------------------------------------------------


def member_checks(ctx: FaultContext, action: FaultAction, *, belongs: bool) -> list[Check]:
    """Of each node that is hit: whether every other running node has it in the cluster."""
    system = _system(ctx)

    def check(by: str, node: str) -> Check:
        async def look() -> Seen:
            try:
                return node in await system.members(ctx.cluster, by)
            except ClientError as error:
                return str(error)

        name = f"{by} has {node} in the cluster"
        return Check(by, name, look, lambda: belongs, moot=_moot(ctx, by, node))

    return [check(by, node) for node in action.nodes or () for by in _askable(ctx, node)]


def running_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    """Of each node that is hit: whether every other running node runs with it."""

    def check(by: str, node: str) -> Check:
        async def look() -> Seen:
            return await _runs_with(ctx, by, node)

        def runs() -> Seen:
            return ctx.processes.wanted(node) == "running"

        return Check(by, f"{by} runs with {node}", look, runs, moot=_moot(ctx, by, node))

    return [check(by, node) for node in action.nodes or () for by in _askable(ctx, node)]


def _moot(ctx: FaultContext, by: str, node: str) -> Callable[[], Awaitable[bool]]:
    """Whether another fault keeps ``by`` from knowing: it is down, or cut off from another node."""

    async def is_moot() -> bool:
        links = [link for other in ctx.nodes for link in ((by, other), (other, by))]
        return by not in _askable(ctx, node) or any(ctx.cuts.is_cut(link) for link in links)

    return is_moot


def _is_out(ctx: FaultContext, action: FaultAction) -> list[Check]:
    if ctx.refused:
        return status_checks(ctx, action)
    return [*status_checks(ctx, action), *member_checks(ctx, action, belongs=False)]


def _is_in(ctx: FaultContext, action: FaultAction) -> list[Check]:
    return [
        *status_checks(ctx, action),
        *member_checks(ctx, action, belongs=True),
        *running_checks(ctx, action),
    ]


# -- replacing -------------------------------------------------------------------------------------


async def _leave(ctx: FaultContext, action: FaultAction, how: How) -> None:
    (node,) = action.nodes or ()
    await ctx.processes.demand(action.id, node, how)
    ctx.took_hold_ns = ctx.now_ns()
    await _forget(ctx, action, node)


async def _replace(ctx: FaultContext, action: FaultAction) -> None:
    (node,) = action.nodes or ()

    async def replace() -> None:
        await _leave(ctx, action, "kill")
        if not ctx.refused:
            await ctx.cluster.files.wipe(node)
            ctx.left["is out"] = True

    await ctx.at_once([replace()])


async def _come_back(ctx: FaultContext, action: FaultAction) -> None:
    (node,) = action.nodes or ()

    async def come_back() -> None:
        if not ctx.left.get("is out") or await _admit(ctx, action, node):
            await ctx.processes.withdraw(action.id, node)
            await _await_running(ctx, node)
        else:
            ctx.processes.take_out(action.id, node)  # who starts it now starts a stranger

    await ctx.at_once([come_back()])


def _weaker_replace(action: FaultAction) -> Iterator[FaultAction]:
    for kind in (STOP, KILL, WIPE):
        yield from as_kind(action, kind)


REPLACE_NODE = FaultRecord(
    name="replace-node",
    summary="a kill, after which the others forget the node; at the fault's end an empty one joins"
    " under its name",
    needs=("kill", "wipe"),
    asks=(ChangesMembers,),
    is_single=True,
    inject=_replace,
    heal=_come_back,
    effective=_is_out,
    healed=_is_in,
    obstacle=_obstacle,
    effects=("ends-processes", "empties-disk"),
    takes="copies",
    lane=LANE,
    weaker=_weaker_replace,
    strength=60,
)


# -- removing and adding ---------------------------------------------------------------------------


async def _remove(ctx: FaultContext, action: FaultAction) -> None:
    (node,) = action.nodes or ()

    async def remove() -> None:
        await _leave(ctx, action, "stop")
        if not ctx.refused:
            ctx.processes.take_out(action.id, node)

    await ctx.at_once([remove()])


async def _give_back_unless_out(ctx: FaultContext, action: FaultAction) -> None:
    """A node that was removed stays so; one that was not forgotten is started."""
    for node in action.nodes or ():
        if not ctx.processes.is_taken_out(node):
            await ctx.at_once([ctx.processes.withdraw(action.id, node)])


async def _add(ctx: FaultContext, action: FaultAction) -> None:
    (node,) = action.nodes or ()

    async def add() -> None:
        await ctx.cluster.files.wipe(node)
        if await _admit(ctx, action, node):
            await ctx.processes.put_back(node)
            await _await_running(ctx, node)

    await ctx.at_once([add()])


async def _nothing(ctx: FaultContext, action: FaultAction) -> None:
    """Who has joined stays."""


def _belongs(ctx: FaultContext, action: FaultAction) -> str:
    names = [node for node in action.nodes or () if not ctx.processes.is_taken_out(node)]
    return f"{' and '.join(names)} was not removed" if names else ""


def _stays_out(ctx: FaultContext, action: FaultAction) -> list[Check]:
    """A removed node is out until ``add-node`` has it; who was not forgotten runs."""
    nodes = action.nodes or ()
    if all(ctx.processes.is_taken_out(node) for node in nodes):
        return _is_out(ctx, action)
    return status_checks(ctx, action)


def _weaker_remove(action: FaultAction) -> Iterator[FaultAction]:
    yield from as_kind(action, STOP)


REMOVE_NODE = FaultRecord(
    name="remove-node",
    summary="an orderly stop, after which the others forget the node, for good",
    needs=("stop", "wipe"),
    asks=(ChangesMembers,),
    is_single=True,
    does_not_heal=True,
    inject=_remove,
    heal=_give_back_unless_out,
    effective=_is_out,
    healed=_stays_out,
    obstacle=_obstacle,
    effects=("ends-processes", "in-order", "leaves-cluster"),
    takes="copies",
    lane=LANE,
    weaker=_weaker_remove,
    strength=55,
)
ADD_NODE = FaultRecord(
    name="add-node",
    summary="the node that was removed joins, with an empty disk",
    needs=("stop", "wipe"),
    asks=(ChangesMembers,),
    is_single=True,
    does_not_heal=True,
    inject=_add,
    heal=_nothing,
    effective=_is_in,
    healed=_is_in,
    obstacle=_belongs,
    effects=("empties-disk", "joins-cluster"),
    takes="copies",
    lane=LANE,
    strength=10,
)

FAULTS = (REPLACE_NODE, REMOVE_NODE, ADD_NODE)
