"""The simulated world of a plan: its loop, its cluster, the World of a stage, and its recorder.

What clients asked and what they were answered is part of what the simulated world saw, so the
recorder also puts every operation into the trace, whose digest (cluster/sim/loop/trace.py) covers
it. The nemesis records its operations in the same way. harness/run/simulate.py runs a plan here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa

from shalott.cluster.capabilities import lacking
from shalott.cluster.sim.backend import HARNESS, SimCluster
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.loop.trace import Trace
from shalott.cluster.system import InspectsMachines
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import MissingCapability
from shalott.core.history import EMPTY_EVENTS, History
from shalott.core.op import Completion, Invocation
from shalott.core.plan import DiskPlan, Plan, SimPlan
from shalott.core.recording import RunRecorder
from shalott.harness.run.backends import check_world, make_system
from shalott.harness.run.world import World, nemesis_maker
from shalott.nemesis.requirements import check_system, required_capabilities
from shalott.workloads.record import WORKLOADS

SLACK_MS = 600_000  # of virtual time beyond what the plan allows for, before a run is given up


def sim_knobs(plan: Plan) -> SimPlan:
    """The plan's own, or the defaults under the plan's seed."""
    if plan.sim is not None:
        return plan.sim
    told = plan.cluster.power_loss
    disk = DiskPlan() if told is msgspec.UNSET else DiskPlan(power_loss=told)
    return SimPlan(seed=plan.seed, disk=disk)


def make_loop(plan: Plan, trace: Trace) -> SimLoop:
    """A loop that gives up when the plan should have ended long ago."""
    budget_ms = plan.time_limit_ms + plan.settle_timeout_ms + SLACK_MS
    return SimLoop(
        trace=trace,
        deadline_ns=START_NS + budget_ms * 1_000_000,
        callback_cost_ns=sim_knobs(plan).callback_cost_ns,
    )


def make_cluster(plan: Plan, loop: SimLoop) -> SimCluster:
    """The plan's nodes as machines that run its system's program. Raises UsageError."""
    check_world("sim", plan.system.name)
    program = SYSTEMS.find(plan.system.name).program
    assert program is not None, f"{plan.system.name} says that it runs in the simulation"
    return SimCluster(plan.cluster.nodes, loop, sim_knobs(plan), program)


def make_world(
    plan: Plan, cluster: SimCluster, make_recorder: Callable[[Path], RunRecorder]
) -> World:
    """Raises MissingCapability for faults that the simulation does not have, and UsageError for
    those that the system can't be asked for."""
    missing = sorted(required_capabilities(plan.faults) - cluster.capabilities)
    if missing:
        of_packets = {"duplicate", "reorder", "corrupt"} & {*missing}
        why = ": its links carry streams, which have no packets" if of_packets else ""
        if "upgrade" in missing:
            why = ": only containers are made from images"
        raise MissingCapability(f"the simulation can't {lacking(missing)}{why}")
    system = make_system(plan)
    check_system(plan.faults, system, plan.cluster.nodes)
    workload = WORKLOADS.find(plan.workload.name).build(plan)
    if "cut-clients" in required_capabilities(plan.faults):
        cluster.separate_clients([system.ports[port] for port in workload.client_ports])

    async def inspect() -> None:
        if isinstance(system, InspectsMachines):
            await system.inspect(cluster.machines)

    return World(
        cluster=cluster,
        system=system,
        make_nemesis=nemesis_maker(plan, cluster, system, workload),
        make_recorder=make_recorder,
        inspect=inspect if isinstance(system, InspectsMachines) else None,
    )


def harness_process() -> SimProcess:
    """The harness's own: it may write files, and nothing ever happens to it."""
    return SimProcess(HARNESS, fenced=False)


_encode = msgspec.json.Encoder().encode


class TracedRecorder:
    """A RunRecorder that hands everything on to ``recorder``. ``clock_ns``: the virtual time."""

    def __init__(self, recorder: RunRecorder, trace: Trace, clock_ns: Callable[[], int]) -> None:
        self.counts = recorder.counts
        self.start_wall_ns = recorder.start_wall_ns
        self._recorder = recorder
        self._trace = trace
        self._clock_ns = clock_ns

    def now_ns(self) -> int:
        return self._recorder.now_ns()

    def invoke(
        self, process: int, node: str, invocation: Invocation, due_ns: int | None = None
    ) -> int:
        asked = (invocation.f, invocation.key, invocation.value, invocation.extra)
        self._trace.event(self._clock_ns(), "invoke", _encode((process, node, *asked)))
        return self._recorder.invoke(process, node, invocation, due_ns)

    def complete(self, index: int, completion: Completion) -> None:
        elsewhere = () if completion.key is None else (completion.key,)
        text = _encode((index, *_answer(completion), *elsewhere))
        self._trace.event(self._clock_ns(), completion.type, text)
        self._recorder.complete(index, completion)

    def happened(self, process: int, node: str, f: str, completion: Completion) -> None:
        text = _encode((process, node, f, completion.key or "", *_answer(completion)))
        self._trace.event(self._clock_ns(), "happened", text)
        self._recorder.happened(process, node, f, completion)

    async def keep_flushed(self) -> None:
        await self._recorder.keep_flushed()

    def close(self) -> None:
        self._recorder.close()

    def history(self, events: pa.Table = EMPTY_EVENTS) -> History:
        return self._recorder.history(events)


def _answer(completion: Completion) -> tuple[object, ...]:
    return (
        completion.value,
        completion.offset,
        completion.redelivered,
        completion.error,
        completion.extra,
    )
