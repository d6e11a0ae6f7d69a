"""The nemesis at work: fires the plan's faults, each in a task of its own.

A task waits for its fault's time and for what else the fault waits for (waiting.py), finds its
targets (aiming.py), injects and proves it, waits for its end, heals it and proves that
(fault_in_force.py). What a kind of fault does is in its record (record.py), and nothing here knows
one kind from another. Cancelling ``run`` only tells the tasks that it is over; they still undo what
they did, and ``heal`` waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.errors import HarnessError
from shalott.core.history import Recorder
from shalott.core.plan import FaultAction, Plan, Trigger
from shalott.nemesis.aiming import Roles
from shalott.nemesis.context import FaultContext
from shalott.nemesis.cuts import ClientCuts, CountedCuts
from shalott.nemesis.fault_in_force import FaultInForce, record_skip
from shalott.nemesis.permission import why_not
from shalott.nemesis.process_states import ProcessStates
from shalott.nemesis.proofs import Prover
from shalott.nemesis.record import FAULTS
from shalott.nemesis.settings import OverlappingSettings
from shalott.nemesis.triggers import Standstill, TriggerWatch
from shalott.nemesis.waiting import Conditions, LoadTime, Milestones, Skipped

PROOF_TIMEOUT_S = 5.0
SETTLE_WAIT_MS = 15_000  # how long a ``settle`` fault waits for mirrors to be synchronised


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
        self._roles = Roles(cluster, system)
        self._processes = ProcessStates(cluster, self._roles.serves)
        self._cuts = CountedCuts(cluster)
        self._client_cuts = ClientCuts(cluster, client_ports)
        self._settings = OverlappingSettings(cluster, recorder.now_ns, _planned_drifts(plan))
        self._prover = Prover(recorder, proof_timeout_s)
        self._resolved = {action.id: action for action in plan.faults}
        self._time = LoadTime(recorder.now_ns)
        self._milestones = Milestones(self._resolved)
        self._conditions = Conditions(
            cluster=cluster,
            system=system,
            recorder=recorder,
            time=self._time,
            triggers=TriggerWatch(
                cluster, system, self._roles.observe, recorder.now_ns, self._milestones.wait
            ),
            queues=self._queues,
            settle_wait_ms=settle_wait_ms,
            time_limit_ms=plan.time_limit_ms,
        )
        self._alone = asyncio.Lock()  # held while a ``settle`` fault waits or is in force
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def resolved_actions(self) -> tuple[FaultAction, ...]:
        """The plan's faults with the targets that they had; what is stored as the run's plan."""
        return tuple(self._resolved.values())

    async def run(self) -> None:
        """Inject and heal every fault of the plan, each at its time counted from now."""
        self._time.start()
        self._tasks = [asyncio.create_task(self._perform(action)) for action in self._plan.faults]
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self._time.over.set()

    async def heal(self) -> None:
        """Heal what is still in force and prove it. Safe to call at any moment, also twice."""
        self._time.over.set()
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
        try:
            if not await self._time.wait_ms(action.at_ms - self._time.elapsed_ms()):
                return
            if action.settle:
                async with self._alone:
                    await self._fire(action)
                    for again in filter(partial(_counts_since, action), self._plan.faults):
                        await self._milestones.over(again.id)
            else:
                await self._fire(action)
        finally:
            self._milestones.give_up(action.id, "the load was over")

    async def _fire(self, action: FaultAction) -> None:
        """When it may: from its injection to its end."""
        still = Standstill(self._cluster.processes)
        try:
            await self._make(action, still)
        finally:
            still.end()

    async def _make(self, action: FaultAction, still: Standstill) -> None:
        over = self._time.over
        try:
            if action.settle:
                await self._conditions.await_settled(action)
            if action.when is not msgspec.UNSET:
                action = await self._aim_after(action, action.when)
            if action.when is not msgspec.UNSET:
                action = await self._conditions.await_trigger(action, action.when, still)
                self._resolved[action.id] = action
            action = self._resolved[action.id] = await self._roles.resolve(action)
            if forbidden := why_not(self._plan, action):
                raise Skipped(forbidden)
            ctx = self._context(action)
            if obstacle := FAULTS.find(action.kind).obstacle(ctx, action):
                raise Skipped(obstacle)
        except Skipped as skipped:
            self._milestones.give_up(action.id, str(skipped))
            if not over.is_set() or action.when is not msgspec.UNSET:
                record_skip(action, str(skipped), self._recorder)
            return
        if over.is_set():
            return
        fault = FaultInForce.begin(action, ctx, self._recorder, self._prover)
        self.in_force.append(fault.text)
        try:
            await fault.inject(still.end)
            self._milestones.reach(action.id, "begun")
            await self._last(action, action.duration_ms - fault.lasted_ms)
        finally:
            try:
                await fault.heal()
            finally:
                fault.complete()
                self.in_force.remove(fault.text)
        self._milestones.reach(action.id, "ended")

    async def _aim_after(self, action: FaultAction, when: Trigger) -> FaultAction:
        """What is waited for since another fault is the moment of the node that this one hits, if
        the trigger names none."""
        if not when.fault or when.kind == "fault" or when.node:
            return action
        try:
            await self._milestones.wait(when.fault, "begun")
        except HarnessError as error:
            raise Skipped(str(error)) from error
        nodes = self._resolved[when.fault].nodes or ()
        if len(nodes) != 1:
            raise Skipped(f"fault {when.fault} hits more than a node")
        return msgspec.structs.replace(action, when=msgspec.structs.replace(when, node=nodes[0]))

    async def _last(self, action: FaultAction, left_ms: float) -> None:
        """As long as the fault is to be in force."""
        if action.until is msgspec.UNSET:
            await self._time.wait_ms(left_ms)
        else:
            ended = await self._conditions.await_end(action, action.until, left_ms)
            self._resolved[action.id] = ended

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
            wait_ms=self._time.wait_ms,
            queues=self._queues,
        )


def _counts_since(first: FaultAction, action: FaultAction) -> bool:
    """Whether it hits a node that ``first`` has hit, before it is done with."""
    when = action.when
    if when is msgspec.UNSET or when.kind == "fault" or action.settle:
        return False
    return when.fault == first.id


def _planned_drifts(plan: Plan) -> dict[str, float]:
    """By node, of the clocks that the plan has wrong from the beginning."""
    return {clock.node: clock.drift_ppm for clock in plan.sim.clocks} if plan.sim else {}
