"""Process faults: they end, power off or freeze the processes of nodes.

Proved by the status of the processes. What overlapping faults add up to is in process_states.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from shalott.cluster.parts import ChangesDataFiles
from shalott.core.plan import Effect, FaultAction
from shalott.nemesis.context import FaultContext
from shalott.nemesis.process_states import DownBy, How
from shalott.nemesis.proofs import Check, Seen, status_checks
from shalott.nemesis.record import FaultRecord, Step
from shalott.nemesis.weaker import as_kind, on_one_node, without_jitter

Weaker = Callable[[FaultAction], Iterable[FaultAction]]

LANE = "process"


def demand(how: How) -> Step:
    """Brings every node of an action to that state."""

    async def inject(ctx: FaultContext, action: FaultAction) -> None:
        await ctx.at_once(ctx.processes.demand(action.id, node, how) for node in action.nodes or ())

    return inject


async def release(ctx: FaultContext, action: FaultAction) -> None:
    """Let every node run again, each up to ``jitter_ms`` late."""
    rng = ctx.rng(action, "jitter")
    delays_ms = [rng.between(0, action.jitter_ms) for _ in action.nodes or ()]
    pairs = zip(action.nodes or (), delays_ms, strict=True)
    await ctx.at_once(_withdraw(ctx, action, node, delay_ms) for node, delay_ms in pairs)


async def _withdraw(ctx: FaultContext, action: FaultAction, node: str, delay_ms: float) -> None:
    await ctx.wait_ms(delay_ms)
    await ctx.processes.withdraw(action.id, node)


async def _wipe(ctx: FaultContext, action: FaultAction) -> None:
    async def kill_and_wipe(node: str) -> None:
        await ctx.processes.demand(action.id, node, "kill")
        await ctx.cluster.files.wipe(node)

    await ctx.at_once(kill_and_wipe(node) for node in action.nodes or ())


def _all_down(ctx: FaultContext, action: FaultAction) -> str:
    down = all(ctx.processes.state(node) == "down" for node in action.nodes or ())
    return "its nodes are already down" if down else ""


def _weaker(*kinds: FaultRecord, on_one: FaultRecord | None = None) -> Weaker:
    """``on_one``: what it is on a single node, for a fault of all."""

    def weaker(action: FaultAction) -> Iterator[FaultAction]:
        if on_one is not None:
            yield from on_one_node(action, on_one)
            yield from without_jitter(action)
        for kind in kinds:
            yield from as_kind(action, kind)

    return weaker


PAUSE = FaultRecord(
    name="pause",
    summary="SIGSTOP, and SIGCONT at the fault's end",
    needs=("pause",),
    inject=demand("pause"),
    heal=release,
    effective=status_checks,
    healed=status_checks,
    effects=("suspends",),
    obstacle=_all_down,
    is_usual=True,
    strength=30,
)


def _taking(
    name: DownBy,
    summary: str,
    *,
    also: tuple[Effect, ...] = (),
    weaker: Sequence[FaultRecord],
    usual: bool,
    strength: int,
) -> FaultRecord:
    """A node ends in the way of that name, and is started when the fault ends."""
    return FaultRecord(
        name=name,
        summary=summary,
        needs=(name,),
        inject=demand(name),
        heal=release,
        effective=status_checks,
        healed=status_checks,
        effects=("ends-processes", *also),
        takes="copies",
        lane=LANE,
        is_usual=usual,
        weaker=_weaker(*weaker),
        strength=strength,
    )


STOP = _taking(
    "stop",
    "an orderly stop, and a restart",
    also=("in-order",),
    weaker=(PAUSE,),
    usual=True,
    strength=40,
)
KILL = _taking(
    "kill",
    "kill -9, and a restart at the fault's end",
    weaker=(PAUSE, STOP),
    usual=True,
    strength=50,
)
POWER = _taking(
    "power",
    "power loss: what was not synced may be lost or torn",
    also=("loses-unsynced",),
    weaker=(PAUSE, STOP, KILL),
    usual=False,
    strength=60,
)


def _of_all(
    name: str,
    summary: str,
    one: FaultRecord,
    *,
    how: How,
    weaker: Sequence[FaultRecord] = (),
    usual: bool = False,
    strength: int,
) -> FaultRecord:
    """Every node at once; they are started with jitter."""
    return FaultRecord(
        name=name,
        summary=summary,
        needs=one.needs,
        inject=demand(how),
        heal=release,
        effective=status_checks,
        healed=status_checks,
        effects=one.effects,
        target="all",
        takes="copies",
        lane=LANE,
        is_usual=usual,
        weaker=_weaker(*weaker, on_one=one),
        strength=strength,
    )


RESTART_ALL = _of_all(
    "restart-all",
    "every node is stopped at once, and started with jitter",
    STOP,
    how="stop",
    usual=True,
    strength=70,
)
KILL_ALL = _of_all(
    "kill-all",
    "every node is killed at once, and started with jitter",
    KILL,
    how="kill",
    weaker=(RESTART_ALL,),
    strength=80,
)
POWER_ALL = _of_all(
    "power-all",
    "every node loses its power at once, and is started with jitter",
    POWER,
    how="power",
    weaker=(RESTART_ALL, KILL_ALL),
    strength=90,
)
WIPE = FaultRecord(
    name="wipe",
    summary="a kill, and a restart with an empty disk",
    needs=("kill", "wipe"),
    inject=_wipe,
    heal=release,
    effective=status_checks,
    healed=status_checks,
    effects=("ends-processes", "empties-disk"),
    takes="copies",
    lane=LANE,
)

# -- what was not synced ---------------------------------------------------------------------------

# Written when the node is dead, and never synced: where it is gone, the rest is.
WITNESS = ".shalott-not-synced"


async def _lose(ctx: FaultContext, action: FaultAction) -> None:
    lost: dict[str, object] = {}
    ctx.told["lost"] = lost

    async def kill_and_lose(node: str) -> None:
        await ctx.processes.demand(action.id, node, "kill")
        files = ctx.cluster.files
        assert isinstance(files, ChangesDataFiles), "its world is asked for change-files"
        await files.leave_file(node, WITNESS, WITNESS.encode())
        gone = await ctx.cluster.disks.lose_unsynced(node)
        lost[node] = {**gone, "names": gone["names"] - 1}  # the witness's own

    await ctx.at_once(kill_and_lose(node) for node in action.nodes or ())


def _lost_checks(ctx: FaultContext, action: FaultAction) -> list[Check]:
    def check(node: str) -> Check:
        async def look() -> Seen:
            files = ctx.cluster.files
            assert isinstance(files, ChangesDataFiles)
            (found,) = await files.read_places(node, WITNESS, [(0, len(WITNESS))])
            return bool(found) or not ctx.told["lost"]

        return Check(node, f"unsynced file of {node} is there", look, lambda: False)

    return [*map(check, action.nodes or ()), *status_checks(ctx, action)]


LOSE_UNSYNCED = FaultRecord(
    name="lose-unsynced",
    summary="a kill, and all that the node had not synced is gone; its machine goes on",
    needs=("kill", "power", "change-files"),
    inject=_lose,
    heal=release,
    effective=_lost_checks,
    healed=status_checks,
    effects=("ends-processes", "loses-unsynced"),
    takes="copies",
    lane=LANE,
    weaker=_weaker(PAUSE, STOP, KILL),
    strength=58,
)

FAULTS = (KILL, STOP, POWER, PAUSE, RESTART_ALL, KILL_ALL, POWER_ALL, WIPE, LOSE_UNSYNCED)
