"""The nemesis at work: fires the plan's faults, proves each one, heals each one and proves that
too.

Each fault action is a task of its own: wait for its time, find its targets, inject it, prove it,
wait for its end, heal it, prove that. What a kind of fault does is in its record (record.py), and
nothing here knows one kind from another. Cancelling ``run`` only tells the tasks that it is over;
they still undo what they did, and ``heal`` waits for them. A fault that could not be proved, or
that the backend could not make, says so in its row, and makes the run unknown
(checkers/runs/stats.py). What the system refused to do for an operator took no effect, also if a
probe saw one on its nodes. A node that ended its own process because its disk failed is no error:
it is started when the fault ends, and the row says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.errors import ClientError, HarnessError
from shalott.core.history import Recorder
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.plan import FaultAction, Plan, Trigger
from shalott.core.rng import Stream
from shalott.nemesis.context import FAILURES, FaultContext
from shalott.nemesis.cuts import ClientCuts, CountedCuts
from shalott.nemesis.process_states import ProcessStates
from shalott.nemesis.proofs import Prover
from shalott.nemesis.record import FAULTS, FaultRecord, Step
from shalott.nemesis.settings import OverlappingSettings
from shalott.nemesis.targets import is_role, role_nodes
from shalott.nemesis.trigger_words import trigger_text
from shalott.nemesis.triggers import TriggerWatch

log = logging.getLogger("shalott.nemesis")

PROOF_TIMEOUT_S = 5.0
RETURN_TIMEOUT_S = 60.0  # how long a healed link's proof waits for nodes that other faults took
OBSERVE_TIMEOUT_S = 2.0
SETTLE_WAIT_MS = 15_000  # how long a ``settle`` fault waits for mirrors to be synchronised


T = TypeVar("T")


class Skipped(Exception):
    """A fault that is not made, with the reason."""


@dataclass(slots=True)
class _Fault:
    """A fault in force."""

    record: FaultRecord
    action: FaultAction
    ctx: FaultContext
    index: int  # its row
    text: str
    injected_ns: int = 0
    effective_ns: int | None = None
    healed_ns: int | None = None
    proved_effective: bool | None = None  # None: it could not be looked at yet
    proved_healed: bool = False
    refused: str = ""  # what the system did not do when it was injected
    given_up_before: dict[str, int] = field(default_factory=dict)  # by node, how often
    replaced_before: dict[str, int] = field(default_factory=dict)


class NemesisRunner:
    """One run's nemesis. ``in_force`` holds a short text for each fault in force."""

    def __init__(
        self,
        cluster: Cluster,
        system: System,
        plan: Plan,
        recorder: Recorder,
        *,
        queues: Sequence[str] = (),
        client_ports: Sequence[str] = (),
        settle_wait_ms: int = SETTLE_WAIT_MS,
        proof_timeout_s: float = PROOF_TIMEOUT_S,
    ) -> None:
        self.in_force: list[str] = []
        self._cluster = cluster
        self._system = system
        self._plan = plan
        self._recorder = recorder
        self._queues = tuple(queues)
        self._settle_wait_ms = settle_wait_ms
        self._processes = ProcessStates(cluster, self._serves)
        self._cuts = CountedCuts(cluster)
        self._client_cuts = ClientCuts(cluster, client_ports)
        self._settings = OverlappingSettings(cluster, recorder.now_ns, _planned_drifts(plan))
        self._prover = Prover(recorder, proof_timeout_s)
        self._resolved = {action.id: action for action in plan.faults}
        self._triggers = TriggerWatch(cluster, system, self._observe, recorder.now_ns)
        self._over = asyncio.Event()
        self._alone = asyncio.Lock()  # held while a ``settle`` fault waits or is in force
        self._tasks: list[asyncio.Task[None]] = []
        self._origin_ns = 0

    @property
    def resolved_actions(self) -> tuple[FaultAction, ...]:
        """The plan's faults with the targets that they had; what is stored as the run's plan."""
        return tuple(self._resolved.values())

    async def run(self) -> None:
        """Inject and heal every fault of the plan, each at its time counted from now."""
        self._origin_ns = self._recorder.now_ns()
        self._tasks = [asyncio.create_task(self._perform(action)) for action in self._plan.faults]
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self._over.set()

    async def heal(self) -> None:
        """Heal what is still in force and prove it. Safe to call at any moment, also twice."""
        self._over.set()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            for task in self._tasks:
                task.cancel()
            raise
        await self._cluster.heal()
        await self._processes.start_all()
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise HarnessError(f"the nemesis failed: {error}") from error

    async def _perform(self, action: FaultAction) -> None:
        """One fault from its time to its end."""
        if not await self._wait_ms(action.at_ms - self._elapsed_ms()):
            return
        if action.settle:
            async with self._alone:
                await self._fire(action)
        else:
            await self._fire(action)

    async def _fire(self, action: FaultAction) -> None:
        try:
            if action.settle:
                await self._await_settled(action)
            if action.when is not msgspec.UNSET:
                action = await self._await_trigger(action, action.when)
            action = await self._resolve(action)
            ctx = self._context(action)
            if obstacle := FAULTS.find(action.kind).obstacle(ctx, action):
                raise Skipped(obstacle)
        except Skipped as skipped:
            self._record_skip(action, str(skipped))
            return
        if self._over.is_set():
            return
        fault = self._begin(action, ctx)
        try:
            await self._inject(fault)
            await self._wait_ms(action.duration_ms - self._lasted_ms(fault))
        finally:
            try:
                await self._end(fault)
            finally:
                self._complete(fault)

    def _context(self, action: FaultAction) -> FaultContext:
        return FaultContext(
            fault=action.id,
            cluster=self._cluster,
            system=self._system,
            processes=self._processes,
            cuts=self._cuts,
            client_cuts=self._client_cuts,
            settings=self._settings,
            now_ns=self._recorder.now_ns,
            wait_ms=self._wait_ms,
            queues=self._queues,
        )

    def _begin(self, action: FaultAction, ctx: FaultContext) -> _Fault:
        index = self._recorder.invoke(NEMESIS, "", Invocation(f=action.kind, extra=_extra(action)))
        text = " ".join([action.kind, "+".join(action.nodes or ())]).strip()
        record = FAULTS.find(action.kind)
        fault = _Fault(record=record, action=action, ctx=ctx, index=index, text=text)
        for node in action.nodes or ():
            fault.given_up_before[node] = len(self._processes.exit_codes(node))
            fault.replaced_before[node] = self._processes.disks_replaced(node)
        self.in_force.append(text)
        log.info("fault %d: %s", action.id, text)
        return fault

    def _complete(self, fault: _Fault) -> None:
        extra = {
            **_extra(fault.action),
            **fault.ctx.told,
            "effective_ns": fault.effective_ns,
            "healed_ns": fault.healed_ns,
            "proved_effective": bool(fault.proved_effective) and not fault.refused,
            "proved_healed": fault.proved_healed,
        }
        if fault.refused:
            extra["refused"] = fault.refused
        elif fault.ctx.refused:
            extra["refused_at_end"] = fault.ctx.refused
        if fault.record.may_exit:
            extra |= self._given_up(fault)
        if fault.proved_effective is None:
            extra["skipped"] = "its nodes were down throughout, so it changed nothing"
        error = "; ".join(dict.fromkeys(fault.ctx.errors)) or None
        self._recorder.complete(fault.index, Completion(type="info", error=error, extra=extra))
        self.in_force.remove(fault.text)
        log.info("fault %d ended: %s", fault.action.id, fault.text)

    def _given_up(self, fault: _Fault) -> dict[str, object]:
        """Which of the fault's nodes ended themselves meanwhile, and which needed a new disk."""
        codes = {
            node: self._processes.exit_codes(node)[before:]
            for node, before in fault.given_up_before.items()
        }
        replaced = [
            node
            for node, before in fault.replaced_before.items()
            if self._processes.disks_replaced(node) > before
        ]
        found: dict[str, object] = {
            "exited": {node: list(code) for node, code in codes.items() if code}
        }
        return found | ({"replaced": replaced} if replaced else {})

    def _record_skip(self, action: FaultAction, reason: str) -> None:
        if self._over.is_set() and action.when is msgspec.UNSET:
            return
        extra = {
            **_extra(action),
            "effective_ns": None,
            "healed_ns": None,
            "proved_effective": False,
            "proved_healed": False,
            "skipped": reason,
        }
        index = self._recorder.invoke(NEMESIS, "", Invocation(f=action.kind, extra=extra))
        self._recorder.complete(
            index, Completion(type="info", error=f"skipped: {reason}", extra=extra)
        )
        log.info("fault %d (%s) skipped: %s", action.id, action.kind, reason)

    # -- when and whom

    async def _await_settled(self, action: FaultAction) -> None:
        """Raise Skipped unless the cluster has synchronised, and there is still time."""
        ended, settled = await self._unless_over(
            self._system.await_settled(self._cluster, self._queues, self._settle_wait_ms)
        )
        if not ended:
            raise Skipped("the load is over")
        if not settled:
            raise Skipped(
                f"the cluster had not synchronised within {self._settle_wait_ms} ms; another loss "
                "of a node would have been ours"
            )
        if self._elapsed_ms() + action.duration_ms > self._plan.time_limit_ms:
            raise Skipped("synchronising took so long that no time is left for it")

    async def _await_trigger(self, action: FaultAction, when: Trigger) -> FaultAction:
        """The action with the time when its trigger fired; Skipped if it did not. The row of the
        history begins with the waiting."""
        text = trigger_text(when)
        extra: dict[str, object] = {
            "fault": action.id,
            "waits_for": text,
            "within_ms": when.within_ms,
        }
        index = self._recorder.invoke(NEMESIS, when.node, Invocation(f="trigger", extra=extra))
        why, fired = f"its trigger ({text}) had not fired when the load was over", None
        try:
            ended, fired = await self._unless_over(self._triggers.wait(when))
            if ended:
                why = f"its trigger ({text}) did not fire within {when.within_ms} ms"
        except FAILURES as error:
            why = f"its trigger ({text}) can't be waited for: {error}"
        if fired is None:
            self._recorder.complete(
                index, Completion(type="info", error=why, extra={**extra, "fired": False})
            )
            raise Skipped(why)
        seen = {"by": fired.node, "seen": fired.what, "noticed_by": fired.noticed_by}
        extra |= {"fired": True, **seen, "late_ms_at_most": fired.late_ms}
        fired_ms = int(self._elapsed_ms())
        self._recorder.complete(index, Completion(type="ok", extra=extra))
        log.info("fault %d: %s", action.id, fired.what)
        if not await self._wait_ms(when.delay_ms):
            raise Skipped("the load was over before the trigger's delay was")
        when = msgspec.structs.replace(when, fired_ms=fired_ms)
        self._resolved[action.id] = action = msgspec.structs.replace(action, when=when)
        return action

    async def _resolve(self, action: FaultAction) -> FaultAction:
        """The action with its nodes and links as they are now; Skipped if it has no target."""
        if action.nodes is None:
            answers = await self._observe_all() if is_role(action.target) else {}
            nodes = role_nodes(action.target, answers, Stream(action.seed, "target"))
            if not nodes:
                raise Skipped(f"no node says that it is {action.target} of anything")
            action = msgspec.structs.replace(action, nodes=nodes)
        links_of = FAULTS.find(action.kind).links
        if links_of is not None:
            if action.links is None:
                rng = Stream(action.seed, "shape")
                links = links_of(self._cluster.nodes, action.nodes or (), rng)
                action = msgspec.structs.replace(action, links=links)
            if not action.links:
                raise Skipped("it has no link to hit")
        elif not action.nodes:
            raise Skipped("it has no node to hit")
        self._resolved[action.id] = action
        return action

    async def _observe_all(self) -> dict[str, Mapping[str, object]]:
        nodes = self._cluster.nodes
        answers = await asyncio.gather(*(self._observe(node) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    async def _observe(self, node: str) -> Mapping[str, object]:
        """{} if it can't be asked."""
        try:
            async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                return await self._system.observe(self._cluster, node)
        except (ClientError, HarnessError, OSError, TimeoutError):
            return {}

    # -- injecting and healing

    async def _inject(self, fault: _Fault) -> None:
        await self._step(fault, fault.record.inject)
        fault.injected_ns = self._recorder.now_ns()
        took_hold_ns = fault.ctx.took_hold_ns
        fault.effective_ns = fault.injected_ns if took_hold_ns is None else took_hold_ns
        fault.refused = fault.ctx.refused
        if fault.ctx.errors:
            fault.proved_effective = False
        else:
            fault.proved_effective = await self._prove_effective(fault)

    async def _end(self, fault: _Fault) -> None:
        """Heal it and prove that it is gone."""
        if fault.proved_effective is None:  # its nodes were down; perhaps they are back by now
            fault.proved_effective = await self._prove_effective(fault)
        await self._step(fault, fault.record.heal)
        fault.healed_ns = self._recorder.now_ns()
        fault.proved_healed = await self._prove_healed(fault)

    async def _step(self, fault: _Fault, step: Step) -> None:
        """What the backend can't do is the fault's error, and the run goes on."""
        try:
            await step(fault.ctx, fault.action)
        except FAILURES as error:
            fault.ctx.note(error)

    # -- proving

    async def _prove_effective(self, fault: _Fault) -> bool | None:
        checks = fault.record.effective(fault.ctx, fault.action)
        return await self._prover.prove(fault.action.id, "effective", checks)

    async def _prove_healed(self, fault: _Fault) -> bool:
        """Prove it as far as other faults leave it healed; they may take nodes away meanwhile."""
        action = fault.action
        checks = fault.record.healed(fault.ctx, action)
        if not action.links:
            return bool(await self._prover.prove(action.id, "healed", checks))
        ends = tuple(dict.fromkeys(node for link in action.links for node in link))
        proved = False
        for _ in range(3):
            if not await self._processes.await_up(ends, RETURN_TIMEOUT_S):
                return False
            before = self._processes.changes
            proved = bool(await self._prover.prove(action.id, "healed", checks))
            if proved or self._processes.changes == before:
                break
        return proved

    async def _serves(self, node: str) -> bool:
        return bool(await self._observe(node))

    # -- time

    def _elapsed_ms(self) -> float:
        return (self._recorder.now_ns() - self._origin_ns) / 1e6

    def _lasted_ms(self, fault: _Fault) -> float:
        return (self._recorder.now_ns() - fault.injected_ns) / 1e6

    async def _wait_ms(self, time_ms: float) -> bool:
        """Whether that time passed; false if the run was over first."""
        try:
            async with asyncio.timeout(max(0.0, time_ms) / 1000):
                await self._over.wait()
        except TimeoutError:
            return not self._over.is_set()
        return False

    async def _unless_over(self, awaitable: Coroutine[object, object, T]) -> tuple[bool, T | None]:
        """Whether it ended before the run, and its result."""
        task = asyncio.create_task(awaitable)
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            return (True, task.result()) if task.done() else (False, None)
        finally:
            for pending in (task, over):
                pending.cancel()
            await asyncio.gather(task, over, return_exceptions=True)


def _planned_drifts(plan: Plan) -> dict[str, float]:
    """By node, of the clocks that the plan has wrong from the beginning."""
    return {clock.node: clock.drift_ppm for clock in plan.sim.clocks} if plan.sim else {}


def _extra(action: FaultAction) -> dict[str, object]:
    told: dict[str, object] = {"amount": action.amount} if action.amount else {}
    if action.parameters:
        told["parameters"] = action.parameters
    if action.when is not msgspec.UNSET:
        told["trigger"] = trigger_text(action.when)
    return {
        "fault": action.id,
        "kind": action.kind,
        "target": action.target,
        "nodes": list(action.nodes or ()),
        "links": [list(link) for link in action.links or ()],
        "effects": list(FAULTS.find(action.kind).effects),
        **told,
    }
