"""A world in memory: a cluster, a system and a queue service that do what they are told.

Whole runs take a second in it. What goes wrong is planted: messages lost or delivered twice, a step
of the harness that crashes, a cluster that never settles.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from shalott.checkers.runs.standard import standard_checkers
from shalott.cluster.cluster import ignore_exit, ignore_helper_end
from shalott.cluster.nodes import (
    Endpoint,
    HelperEnd,
    LinkShape,
    NodeExit,
    NodeSpec,
    NodeStatus,
    Topology,
)
from shalott.cluster.system import System
from shalott.cluster.systems.record import SYSTEMS, Profile, SystemRecord
from shalott.cluster.systems.settling import why_unsettled
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.generator import Generator, Stagger, TimeLimit
from shalott.core.history import Recorder
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.parameters import make_parameters
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
)
from shalott.core.queue_generator import drain, queue_mix
from shalott.core.recording import RunRecorder, record_to_file
from shalott.core.rng import stream_key
from shalott.harness.run.world import World
from shalott.workloads.queue import QueueParameters
from shalott.workloads.record import WORKLOADS, Workload, WorkloadRecord
from tests.world.clock.turns import turns

NODES = ("n1", "n2", "n3")
QUEUES = ("q.1",)


@dataclass
class Trap:
    """What goes wrong. ``crash`` names a method that raises ``error`` when it is called."""

    crash: str = ""
    error: Callable[[], BaseException] = lambda: RuntimeError("planted")
    lose_every: int = 0  # every n-th acknowledged message is forgotten
    repeat_every: int = 0  # every n-th delivery is made twice
    settles: bool = True
    parted_from: tuple[str, ...] = ()  # what every node says when it is asked
    hang: str = ""  # names a method that never returns
    refusals: list[Exception] = field(default_factory=list)  # of the first enqueues
    holds_every: int = 0  # every n-th message is held by a client that is gone
    looks_until_back: int = 3  # so often nodes are asked before they know

    async def spring(self, method: str) -> None:
        if self.crash == method:
            raise self.error()
        if self.hang == method:
            await asyncio.Event().wait()


@dataclass
class MemoryQueues:
    """The service: one deque a queue, seen by every node."""

    trap: Trap
    queues: dict[str, deque[tuple[int, bool]]] = field(default_factory=dict)
    down: dict[str, bool] = field(default_factory=dict)
    held: list[tuple[str, int]] = field(default_factory=list)
    enqueued: int = 0
    delivered: int = 0

    def enqueue(self, key: str, value: int) -> None:
        self.enqueued += 1
        if self.trap.holds_every and self.enqueued % self.trap.holds_every == 0:
            self.held.append((key, value))
            return
        if self.trap.lose_every and self.enqueued % self.trap.lose_every == 0:
            return
        self.queues[key].append((value, False))

    def give_back(self) -> None:
        for key, value in self.held:
            self.queues[key].append((value, True))
        self.held.clear()

    def dequeue(self, key: str) -> tuple[int, bool] | None:
        if not self.queues[key]:
            return None
        value, redelivered = self.queues[key].popleft()
        self.delivered += 1
        if self.trap.repeat_every and self.delivered % self.trap.repeat_every == 0:
            self.queues[key].append((value, False))
        return value, redelivered


class MemoryClient:
    """Talks to the service through a node."""

    def __init__(self, service: MemoryQueues, node: str) -> None:
        self._service = service
        self._node = node

    async def open(self) -> None:
        if self._service.down.get(self._node):
            raise Unreachable(f"{self._node} is down")

    async def invoke(self, invocation: Invocation) -> Completion:
        await turns()
        if self._service.down.get(self._node):
            raise Indefinite("the connection was lost")
        if invocation.f == "enqueue":
            assert invocation.value is not None
            if self._service.trap.refusals:
                raise self._service.trap.refusals.pop()
            self._service.enqueue(invocation.key, invocation.value)
            return Completion(type="ok")
        if invocation.f != "dequeue":
            raise Definite(f"no {invocation.f} here")
        taken = self._service.dequeue(invocation.key)
        if taken is None:
            return Completion(type="fail", error="empty")
        return Completion(type="ok", value=taken[0], redelivered=taken[1])

    async def close(self) -> None:
        pass


@dataclass
class MemoryCluster:
    """Remembers in ``calls`` what was asked of it, in order. It is its own processes, links and
    files."""

    service: MemoryQueues
    trap: Trap
    backend: str = "memory"
    nodes: tuple[str, ...] = NODES
    capabilities: frozenset[str] = frozenset({"kill", "pause", "cut"})
    calls: list[str] = field(default_factory=list)
    on_exit: Callable[[NodeExit], None] = ignore_exit
    on_helper_end: Callable[[HelperEnd], None] = ignore_helper_end
    notes: Sequence[str] = ()
    left_down: list[str] = field(default_factory=list)
    prefix: str = ""
    is_reusable = False

    async def check(self, software: object) -> None:
        """All that it could lack is said by its capabilities."""

    def __post_init__(self) -> None:
        self.processes = self.links = self.files = self.hosts = self
        self.parts = SimpleNamespace(images=None)

    async def _called(self, method: str) -> None:
        self.calls.append(method)
        await self.trap.spring(method)

    async def boot(self, system: System) -> None:
        await self._called("boot")

    async def teardown(self) -> None:
        await self._called("teardown")

    async def start(self, node: str) -> None:
        await self._called("start")
        self.service.down[node] = False

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        await self.kill(node)

    async def kill(self, node: str) -> None:
        await self._called("kill")
        self.service.down[node] = True

    async def pause(self, node: str) -> None:
        await self._called("pause")

    async def resume(self, node: str) -> None:
        await self._called("resume")

    async def wipe(self, node: str) -> None:
        await self._called("wipe")

    async def output(self, node: str, lines: int) -> str:
        return ""

    async def status(self, node: str) -> NodeStatus:
        return NodeStatus(state="exited" if self.service.down.get(node) else "running")

    async def cut(self, links: Sequence[tuple[str, str]]) -> None:
        await self._called("cut")

    async def mend(self, links: Sequence[tuple[str, str]]) -> None:
        await self._called("mend")

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        await self._called("shape")

    async def heal(self) -> None:
        await self._called("heal")

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        return True

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(host=node, port=5672)

    async def collect(self, into: Path) -> None:
        await self._called("collect")
        for node in self.nodes:
            (into / node).mkdir(parents=True)
            (into / node / "events.jsonl").write_text("")


@dataclass
class MemorySystem:
    """``n1`` is the master of every queue, and everybody agrees."""

    service: MemoryQueues
    trap: Trap
    name: str = "memory"
    ports: Mapping[str, int] = field(default_factory=lambda: {"amqp": 5672})
    image: str = ""

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return ()

    async def await_ready(self, cluster: object, nodes: Sequence[str], timeout_ms: int) -> None:
        await self.trap.spring("await_ready")

    async def configure(self, cluster: object, queues: Sequence[str]) -> None:
        await self.trap.spring("configure")
        self.service.queues = {queue: deque() for queue in queues}

    async def observe(self, cluster: object, node: str) -> Mapping[str, Any]:
        await self.trap.spring("observe")
        claims = [
            {
                "group": queue,
                "role": "master" if node == "n1" else "mirror",
                "epoch": 1,
                "master": "n1",
                "mirrors": ["n2", "n3"],
                "synchronised": ["n2", "n3"],
                "state": "running",
                "messages": len(messages),
            }
            for queue, messages in self.service.queues.items()
        ]
        return {"running": list(NODES), "partitions": [*self.trap.parted_from], "claims": claims}

    async def held(self, cluster: object, node: str) -> int:
        if node == "n1":
            raise Indefinite("it does not know")
        self.trap.looks_until_back -= 1
        if not self.trap.looks_until_back:
            self.service.give_back()
        return len(self.service.held)

    @property
    def wants_mending(self) -> bool:
        return True

    def why_unsettled(
        self, seen: Mapping[str, Mapping[str, Any] | None], queues: Sequence[str]
    ) -> str:
        return why_unsettled(seen, queues, {})

    async def mend_partition(self, cluster: object) -> Sequence[str]:
        await self.trap.spring("mend_partition")
        return ()

    async def await_settled(self, cluster: object, queues: Sequence[str], timeout_ms: int) -> bool:
        await self.trap.spring("await_settled")
        return self.trap.settles

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[Mapping[str, Any]]:
        if self.trap.crash == "read_events":
            raise self.trap.error()
        common = {"wall_ns": run_start_wall_ns, "incarnation": 1, "run_ns": 0, "at_ns": 0}
        roles = {"n1": "master", "n2": "mirror", "n3": "mirror"}
        return [
            {**common, "node": node, "group": queue, "kind": "role", "role": role, "epoch": 1}
            for queue in self.service.queues
            for node, role in roles.items()
        ]


@dataclass
class MemoryNemesis:
    """Kills nodes as the plan says, and records each fault with its proofs."""

    cluster: MemoryCluster
    plan: Plan
    record: Recorder
    trap: Trap
    in_force: list[str] = field(default_factory=list)
    _open: dict[int, tuple[FaultAction, int, int]] = field(default_factory=dict)

    @property
    def resolved_actions(self) -> tuple[FaultAction, ...]:
        return tuple(
            msgspec.structs.replace(action, nodes=action.nodes or ("n1",))
            for action in self.plan.faults
        )

    async def run(self) -> None:
        await self.trap.spring("nemesis.run")
        for action in self.resolved_actions:
            delay_ms = action.at_ms - self.record.now_ns() / 1e6
            await asyncio.sleep(max(0.0, delay_ms) / 1000)
            index = self.record.invoke(NEMESIS, "", Invocation(f=action.kind))
            for node in action.nodes or ():
                await self.cluster.kill(node)
            self._open[action.id] = (action, index, self.record.now_ns())
            self.in_force.append(action.kind)
            await asyncio.sleep(action.duration_ms / 1000)
            await self.heal()

    async def heal(self) -> None:
        await self.trap.spring("nemesis.heal")
        for action, index, effective_ns in list(self._open.values()):
            for node in action.nodes or ():
                await self.cluster.start(node)
            del self._open[action.id]
            self.in_force.remove(action.kind)
            extra = {
                "fault": action.id,
                "kind": action.kind,
                "target": action.target,
                "nodes": list(action.nodes or ()),
                "links": [],
                "effective_ns": effective_ns,
                "healed_ns": self.record.now_ns(),
                "proved_effective": True,
                "proved_healed": True,
            }
            self.record.complete(index, Completion(type="info", extra=extra))


@dataclass
class MemoryWorld:
    """Everything at once, and the records of the system and of the workload that talks to it."""

    trap: Trap = field(default_factory=Trap)
    service: MemoryQueues = field(init=False)
    cluster: MemoryCluster = field(init=False)
    system: MemorySystem = field(init=False)
    record: WorkloadRecord = field(init=False)
    setup: tuple[Invocation, ...] = ()
    setup_repeats: bool = False
    nemeses: list[MemoryNemesis] = field(default_factory=list)
    make_recorder: Callable[[Path], RunRecorder] = record_to_file

    def __post_init__(self) -> None:
        self.service = MemoryQueues(self.trap)
        self.cluster = MemoryCluster(self.service, self.trap)
        self.system = MemorySystem(self.service, self.trap)
        self.record = WorkloadRecord(
            name="memory",
            summary="enqueues and dequeues in memory",
            needs=("memory",),
            parameters=QueueParameters,
            build=self._workload,
            checkers=lambda plan: standard_checkers(GatePlan(min_acked=20)),
        )

    def offer(self) -> None:
        """Have the records found; tests/harness/conftest.py takes them back."""
        WORKLOADS.offer(self.record)
        SYSTEMS.offer(
            SystemRecord(
                name="memory",
                summary="queues in memory",
                make=lambda plan: self.system,
                speaks=("memory", "amqp-0-9-1", "rabbitmq-management"),
                workload="memory",
                profiles={"upstream": Profile(), "safe": Profile()},
                worlds=("memory", "docker"),
            )
        )

    def world(self, plan: Plan) -> World:
        def make_nemesis(record: Recorder) -> MemoryNemesis:
            self.nemeses.append(MemoryNemesis(self.cluster, plan, record, self.trap))
            return self.nemeses[-1]

        return World(
            cluster=self.cluster,
            system=self.system,
            make_nemesis=make_nemesis,
            make_recorder=self.make_recorder,
        )

    def _workload(self, plan: Plan) -> Workload:
        mix: Generator = queue_mix(
            QUEUES,
            make_parameters(QueueParameters, plan.workload.parameters).enqueue_fraction,
            plan.seed,
        )
        paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(plan.seed, "stagger"))
        return Workload(
            name="memory",
            queues=QUEUES,
            port="amqp",
            make_client=lambda host, port: MemoryClient(self.service, host),
            generator=TimeLimit(paced, plan.time_limit_ms * 1_000_000),
            final_generator=_drain(plan.cluster.nodes),
            final_at=_drain,
            setup=self.setup,
            setup_repeats=self.setup_repeats,
        )


def _drain(nodes: Sequence[str]) -> Generator:
    return TimeLimit(drain(nodes, QUEUES), 5_000_000_000)


def memory_plan(
    *, time_limit_ms: int = 300, faults: tuple[FaultAction, ...] = (), leave_running: bool = False
) -> Plan:
    """A plan for the world in memory."""
    return Plan(
        name="memory",
        seed=7,
        time_limit_ms=time_limit_ms,
        cluster=ClusterPlan(backend="memory", nodes=NODES, leave_running=leave_running),
        system=SystemPlan(name="memory", profile="safe"),
        workload=WorkloadPlan(name="memory", rate_hz=1000, concurrency=6, op_timeout_ms=500),
        gates=GatePlan(min_acked=5),
        faults=faults,
        observe_interval_ms=50,
    )


def kill_n2(at_ms: int = 100, duration_ms: int = 80) -> FaultAction:
    return FaultAction(
        id=1, at_ms=at_ms, duration_ms=duration_ms, kind="kill", target="n2", nodes=("n2",)
    )
