"""The nemesis at work: fires the plan's faults, proves each one, heals each one and proves that
too.

Each fault action is a task of its own: wait for its time, find its targets, do it, prove it, wait
for its end, undo it, prove that. So overlapping faults need no plan of their own: cuts are
counted by the cluster, processes by holds (nemesis/holds.py). Cancelling ``run`` only tells the
tasks that it is over; they still undo what they did, and ``heal`` waits for them. A fault that
could not be proved, or that the backend could not make, says so in its row, and makes the run
unknown (checkers/stats.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.base import Cluster, System
from harness.errors import ClientError, HarnessError
from harness.history import Recorder
from harness.op import NEMESIS
from harness.plan import FaultAction, Plan
from harness.rng import Stream
from nemesis.holds import Holds, How
from nemesis.proofs import Check, Prover, Seen
from nemesis.schedule import shape_links
from nemesis.targets import is_role, role_nodes

log = logging.getLogger("shalott.nemesis")

PROOF_TIMEOUT_S = 5.0
RETURN_TIMEOUT_S = 60.0  # how long a healed link's proof waits for nodes that other faults took
OBSERVE_TIMEOUT_S = 2.0
SETTLE_WAIT_MS = 15_000  # how long a ``settle`` fault waits for mirrors to be synchronised
HOWS: Mapping[str, How] = {"kill": "kill", "stop": "stop", "pause": "pause", "restart-all": "stop"}


class Skipped(Exception):
    """A fault that is not made, with the reason."""


@dataclass(slots=True)
class _Fault:
    """A fault in force."""

    action: FaultAction
    index: int  # its row
    nodes: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    text: str
    is_cut: bool = False
    effective_ns: int | None = None
    healed_ns: int | None = None
    proved_effective: bool | None = None  # None: it could not be looked at yet
    proved_healed: bool = False
    errors: list[str] = field(default_factory=list)


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
        self._holds = Holds(cluster)
        self._prover = Prover(cluster, recorder, proof_timeout_s)
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._resolved = {action.id: action for action in plan.faults}
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
        for node in self._cluster.nodes:
            if (await self._cluster.status(node)).state not in ("running", "absent"):
                await self._cluster.start(node)
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
            action = await self._resolve(action)
        except Skipped as skipped:
            self._record_skip(action, str(skipped))
            return
        if self._over.is_set():
            return
        fault = self._begin(action)
        try:
            await self._inject(fault)
            await self._wait_ms(action.duration_ms - self._lasted_ms(fault))
        finally:
            try:
                await self._end(fault)
            finally:
                self._complete(fault)

    def _begin(self, action: FaultAction) -> _Fault:
        nodes, links = action.nodes or (), action.links or ()
        extra = _extra(action)
        index = self._recorder.invoke(NEMESIS, "", action.kind, extra=extra)
        text = " ".join([action.kind, "+".join(nodes)]).strip()
        fault = _Fault(action=action, index=index, nodes=nodes, links=links, text=text)
        self.in_force.append(text)
        log.info("fault %d: %s", action.id, text)
        return fault

    def _complete(self, fault: _Fault) -> None:
        extra = {
            **_extra(fault.action),
            "effective_ns": fault.effective_ns,
            "healed_ns": fault.healed_ns,
            "proved_effective": bool(fault.proved_effective),
            "proved_healed": fault.proved_healed,
        }
        if fault.proved_effective is None:
            extra["skipped"] = "its nodes were down throughout, so it changed nothing"
        error = "; ".join(fault.errors) or None
        self._recorder.complete(fault.index, "info", error=error, extra=extra)
        self.in_force.remove(fault.text)
        log.info("fault %d ended: %s", fault.action.id, fault.text)

    def _record_skip(self, action: FaultAction, reason: str) -> None:
        if self._over.is_set():
            return
        extra = {
            **_extra(action),
            "effective_ns": None,
            "healed_ns": None,
            "proved_effective": False,
            "proved_healed": False,
            "skipped": reason,
        }
        index = self._recorder.invoke(NEMESIS, "", action.kind, extra=extra)
        self._recorder.complete(index, "info", error=f"skipped: {reason}", extra=extra)
        log.info("fault %d (%s) skipped: %s", action.id, action.kind, reason)

    # -- when and whom

    async def _await_settled(self, action: FaultAction) -> None:
        """Raise Skipped unless the cluster has synchronised, and there is still time."""
        settled = await self._unless_over(
            self._system.await_settled(self._cluster, self._queues, self._settle_wait_ms)
        )
        if settled is None:
            raise Skipped("the load is over")
        if not settled:
            raise Skipped(
                f"the cluster had not synchronised within {self._settle_wait_ms} ms; another loss "
                "of a node would have been ours"
            )
        if self._elapsed_ms() + action.duration_ms > self._plan.time_limit_ms:
            raise Skipped("synchronising took so long that no time is left for it")

    async def _resolve(self, action: FaultAction) -> FaultAction:
        """The action with its nodes and links as they are now; Skipped if it has no target."""
        if action.nodes is None:
            answers = await self._observe_all() if is_role(action.target) else {}
            nodes = role_nodes(action.target, answers, Stream(action.seed, "target"))
            if not nodes:
                raise Skipped(f"no node says that it is {action.target} of a queue")
            action = msgspec.structs.replace(action, nodes=nodes)
        if action.kind.startswith("partition"):
            if action.links is None:
                rng = Stream(action.seed, "shape")
                links = shape_links(action.kind, self._cluster.nodes, action.nodes or (), rng)
                action = msgspec.structs.replace(action, links=links)
        elif not action.nodes:
            raise Skipped("it has no node to hit")
        elif action.kind == "pause" and all(self._is_down(node) for node in action.nodes):
            raise Skipped("its nodes are already down")
        self._resolved[action.id] = action
        return action

    async def _observe_all(self) -> dict[str, Mapping[str, Any]]:
        async def observe(node: str) -> Mapping[str, Any]:
            try:
                async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                    return await self._system.observe(self._cluster, node)
            except (ClientError, HarnessError, OSError, TimeoutError):
                return {}

        nodes = self._cluster.nodes
        answers = await asyncio.gather(*(observe(node) for node in nodes))
        return dict(zip(nodes, answers, strict=True))

    # -- doing and undoing

    async def _inject(self, fault: _Fault) -> None:
        if fault.links:
            await self._attempt(fault, [self._cut(fault)])
        how = HOWS.get(fault.action.kind)
        if how is not None:
            holds = [self._holds.hold(fault.action.id, node, how) for node in fault.nodes]
            await self._attempt(fault, holds)
        fault.effective_ns = self._recorder.now_ns()
        checks = self._injected_checks(fault)
        if checks and not fault.errors:
            fault.proved_effective = await self._prover.prove(fault.action.id, "effective", checks)
        elif fault.errors:
            fault.proved_effective = False

    async def _end(self, fault: _Fault) -> None:
        """Undo it and prove that it is gone."""
        if fault.proved_effective is None:  # its nodes were down; perhaps they are back by now
            checks = self._injected_checks(fault)
            fault.proved_effective = await self._prover.prove(fault.action.id, "effective", checks)
        if fault.is_cut:
            await self._attempt(fault, [self._mend(fault)])
        if fault.action.kind in HOWS:
            rng = Stream(fault.action.seed, "jitter")
            delays_ms = [rng.between(0, fault.action.jitter_ms) for _ in fault.nodes]
            releases = [
                self._release(fault, node, delay_ms)
                for node, delay_ms in zip(fault.nodes, delays_ms, strict=True)
            ]
            await self._attempt(fault, releases)
        fault.healed_ns = self._recorder.now_ns()
        fault.proved_healed = await self._prove_healed(fault)

    async def _cut(self, fault: _Fault) -> None:
        await self._cluster.cut(fault.links)
        fault.is_cut = True
        self._cuts.update(fault.links)

    async def _mend(self, fault: _Fault) -> None:
        await self._cluster.mend(fault.links)
        fault.is_cut = False
        self._cuts.subtract(fault.links)

    async def _release(self, fault: _Fault, node: str, delay_ms: float) -> None:
        await self._wait_ms(delay_ms)
        await self._holds.release(fault.action.id, node)

    async def _attempt(self, fault: _Fault, doings: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Do all at once; what the backend can't do is the fault's error, and the run goes on."""
        for outcome in await asyncio.gather(*doings, return_exceptions=True):
            if isinstance(outcome, HarnessError | OSError):
                fault.errors.append(str(outcome))
                log.error("fault %d: %s", fault.action.id, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    # -- proving

    def _injected_checks(self, fault: _Fault) -> list[Check]:
        """What can be looked at now: a link needs a process at both ends."""
        if fault.action.kind in HOWS:
            return [self._status_check(node) for node in fault.nodes]
        both = dict.fromkeys([*fault.links, *((b, a) for a, b in fault.links)])
        alive = [link for link in both if not any(self._is_down(node) for node in link)]
        return [self._link_check(link) for link in alive]

    async def _prove_healed(self, fault: _Fault) -> bool:
        """Prove it as far as other faults leave it healed; they may take nodes away meanwhile."""
        if not fault.links:
            checks = [self._status_check(node) for node in fault.nodes]
            return bool(await self._prover.prove(fault.action.id, "healed", checks))
        ends = tuple(dict.fromkeys(node for link in fault.links for node in link))
        proved = False
        for _ in range(3):
            if not await self._holds.await_up(ends, RETURN_TIMEOUT_S):
                return False
            before = self._holds.changes
            checks = [self._link_check(link) for link in fault.links]
            proved = bool(await self._prover.prove(fault.action.id, "healed", checks))
            if proved or self._holds.changes == before:
                break
        return proved

    def _link_check(self, link: tuple[str, str]) -> Check:
        def reaches() -> Seen:
            return self._cuts[link] == 0

        def moot() -> bool:
            return any(self._is_down(node) for node in link)

        return Check(link[0], link[1], reaches, moot)

    def _status_check(self, node: str) -> Check:
        def state() -> Seen:
            return self._holds.wanted(node)

        return Check(node, "", state)

    def _is_down(self, node: str) -> bool:
        return self._holds.state(node) == "down"

    # -- time

    def _elapsed_ms(self) -> float:
        return (self._recorder.now_ns() - self._origin_ns) / 1e6

    def _lasted_ms(self, fault: _Fault) -> float:
        assert fault.effective_ns is not None
        return (self._recorder.now_ns() - fault.effective_ns) / 1e6

    async def _wait_ms(self, time_ms: float) -> bool:
        """Whether that time passed; false if the run was over first."""
        try:
            async with asyncio.timeout(max(0.0, time_ms) / 1000):
                await self._over.wait()
        except TimeoutError:
            return not self._over.is_set()
        return False

    async def _unless_over(self, awaitable: Coroutine[Any, Any, bool]) -> bool | None:
        """Its result; None if the run was over first."""
        task = asyncio.create_task(awaitable)
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for pending in (task, over):
                pending.cancel()
            await asyncio.gather(task, over, return_exceptions=True)


def _extra(action: FaultAction) -> dict[str, Any]:
    return {
        "fault": action.id,
        "kind": action.kind,
        "target": action.target,
        "nodes": list(action.nodes or ()),
        "links": [list(link) for link in action.links or ()],
    }
