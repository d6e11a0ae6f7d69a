"""Operators' faults: a node is lost, and an operator does what only some systems can be asked to
do.

Each asks the ``System`` for a protocol that not every system has (cluster/system.py), and a plan
for a system without it is refused before boot. What a system that has it does not do when it is
asked is no error of the fault: it stands in the fault's row (``refused``), for checkers to judge.
"""

from __future__ import annotations

from shalott.cluster.system import DeclaresQueues, FailsOver, MovesMirrors, TakesReports
from shalott.core.errors import ClientError
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.membership import Ask, ask_in_turn
from shalott.nemesis.process_states import How
from shalott.nemesis.processes import LANE, release
from shalott.nemesis.proofs import status_checks
from shalott.nemesis.record import FaultRecord

MIRRORED_WITHIN_MS = 1000
OPERATOR_TIMEOUT_MS = 10_000
HOLDERS = 2  # of each queue


# -- an operator declares a queue anew -------------------------------------------------------------


async def _kill_and_redeclare(ctx: FaultContext, action: FaultAction) -> None:
    (taken,) = action.nodes or ()
    await ctx.at_once([_redeclare(ctx, action, home=taken, taken=taken, how="kill")])


async def _power_off_and_redeclare(ctx: FaultContext, action: FaultAction) -> None:
    (taken,) = action.nodes or ()
    others = [n for n in ctx.nodes if n != taken and not ctx.processes.is_taken_out(n)]
    home = ctx.rng(action, "home").choice(others)
    await ctx.at_once([_redeclare(ctx, action, home=home, taken=taken, how="power")])


async def _redeclare(
    ctx: FaultContext, action: FaultAction, *, home: str, taken: str, how: How
) -> None:
    """Declare a queue on ``home``, take a node, then delete the queue and declare it elsewhere."""
    system, queue = ctx.system, f"operator.{action.id}"
    assert isinstance(system, DeclaresQueues)
    try:
        await system.declare_queue(ctx.cluster, home, queue)
        if home != taken:
            await ctx.wait_ms(MIRRORED_WITHIN_MS)
    except ClientError as error:
        ctx.refused = f"{queue} was not declared on {home}: {error}"
    await ctx.processes.demand(action.id, taken, how)
    running = [node for node in ctx.nodes if ctx.processes.state(node) == "running"]
    others = [node for node in running if node != home] or running
    if ctx.refused or not others:
        return
    asked = ctx.rng(action, "asked").choice(others)
    try:
        await system.delete_queue(ctx.cluster, asked, queue, OPERATOR_TIMEOUT_MS)
        await system.declare_queue(ctx.cluster, asked, queue)
    except ClientError as error:
        ctx.refused = f"{queue} was not deleted and declared anew: {error}"


# -- an operator makes another node the master -----------------------------------------------------


async def _fail_over(ctx: FaultContext, action: FaultAction) -> None:
    (old,) = action.nodes or ()

    async def kill_and_replace() -> None:
        system = ctx.system
        assert isinstance(system, FailsOver)
        await ctx.processes.demand(action.id, old, "kill")
        restarted: list[str] = []
        try:
            await system.fail_over(ctx.cluster, old, restarted)
        except ClientError as error:
            ctx.refused = f"no node took the place of {old}: {error}"
        if restarted:
            ctx.told["restarted"] = restarted

    await ctx.at_once([kill_and_replace()])


async def _rejoin(ctx: FaultContext, action: FaultAction) -> None:
    async def rejoin(node: str) -> None:
        system = ctx.system
        assert isinstance(system, FailsOver)
        await ctx.processes.withdraw(action.id, node)
        if ctx.refused or ctx.processes.state(node) != "running":
            return
        try:
            await system.rejoin(ctx.cluster, node)
        except ClientError as error:
            ctx.refused = f"{node} was not made a slave: {error}"

    await ctx.at_once(rejoin(node) for node in action.nodes or ())


# -- an operator moves mirrors ---------------------------------------------------------------------


async def _narrow(ctx: FaultContext, action: FaultAction) -> None:
    holders = sorted(ctx.rng(action, "holders").sample(ctx.nodes, HOLDERS))

    async def narrow(by: str) -> None:
        system = ctx.system
        assert isinstance(system, MovesMirrors)
        await system.narrow_mirrors(ctx.cluster, by, holders)

    ctx.told["holders"] = holders
    await ctx.at_once([_ask_all(ctx, action, narrow)])


async def _widen(ctx: FaultContext, action: FaultAction) -> None:
    async def widen(by: str) -> None:
        system = ctx.system
        assert isinstance(system, MovesMirrors)
        await system.widen_mirrors(ctx.cluster, by)

    await ctx.at_once([_ask_all(ctx, action, widen)])


async def _ask_all(ctx: FaultContext, action: FaultAction, ask: Ask) -> None:
    reason = await ask_in_turn(ctx, action, "", ask)
    if reason:
        ctx.refused = f"the policy was not changed: {reason}"


# -- a stranger reports what no slave would --------------------------------------------------------


async def _report_nonsense(ctx: FaultContext, action: FaultAction) -> None:
    async def report(node: str) -> None:
        system = ctx.system
        assert isinstance(system, TakesReports)
        try:
            hang_up = await system.report_nonsense(ctx.cluster, node)
        except ClientError as error:
            ctx.refused = f"{node} takes no reports: {error}"
            return
        ctx.left.setdefault("hang up", []).append(hang_up)

    await ctx.at_once(report(node) for node in action.nodes or ())


async def _hang_up(ctx: FaultContext, action: FaultAction) -> None:
    async def hang_up() -> None:
        for end in ctx.left.pop("hang up", ()):
            end()

    await ctx.at_once([hang_up()])


KILL_REDECLARE = FaultRecord(
    name="kill-redeclare",
    summary="a kill, and an operator who asks another node to delete a queue of the dead one and to"
    " declare it anew",
    needs=("kill",),
    asks=(DeclaresQueues,),
    is_single=True,
    inject=_kill_and_redeclare,
    heal=release,
    effective=status_checks,
    healed=status_checks,
    effects=("ends-processes",),
    takes="copies",
    lane=LANE,
)
POWER_REDECLARE = FaultRecord(
    name="power-redeclare",
    summary="the same with a queue of another node, before anybody knows that a node lost its"
    " power",
    needs=("power",),
    asks=(DeclaresQueues,),
    is_single=True,
    inject=_power_off_and_redeclare,
    heal=release,
    effective=status_checks,
    healed=status_checks,
    effects=("ends-processes", "loses-unsynced"),
    takes="copies",
    lane=LANE,
)
FAILOVER = FaultRecord(
    name="failover",
    summary="the master is killed, and an operator makes the slave that is furthest ahead the next"
    " one, and the old one a slave when it is back",
    one="master",
    needs=("kill",),
    asks=(FailsOver,),
    is_single=True,
    inject=_fail_over,
    heal=_rejoin,
    effective=status_checks,
    healed=status_checks,
    effects=("ends-processes",),
    takes="copies",
    lane=LANE,
)
MOVE_MIRRORS = FaultRecord(
    name="move-mirrors",
    summary="queues are mirrored on two nodes only; then on all again, and a synchronisation is"
    " stopped halfway",
    needs=("kill",),
    asks=(MovesMirrors,),
    is_single=True,
    inject=_narrow,
    heal=_widen,
    effective=status_checks,
    healed=status_checks,
    takes="copies",
    lane=LANE,
)
STRAY_REPORT = FaultRecord(
    name="stray-report",
    summary="something that is no slave reports to a node that it has all there could be",
    needs=("kill",),
    asks=(TakesReports,),
    inject=_report_nonsense,
    heal=_hang_up,
    effective=status_checks,
    healed=status_checks,
    takes="nothing",
)

FAULTS = (KILL_REDECLARE, POWER_REDECLARE, FAILOVER, MOVE_MIRRORS, STRAY_REPORT)
