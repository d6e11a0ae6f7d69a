"""Simulate: one run in the deterministic simulation, from a plan to its verdict.

It is the same run as harness/run/run.py's: the same stage, workload, clients, nemesis, checkers and
broker; only the loop, the network, the disks and the clocks are simulated (cluster/sim).
``simulate`` keeps it in memory, for ``shalott search``, ``replay`` and ``shrink``; ``run_stored``
stores it like any other run, for ``shalott test --cluster sim``. The same plan gives the same
digest of what the world saw (cluster/sim/loop/trace.py), in any process and any supported version
of Python, for one commit.

What clients asked and what they were answered is part of what the simulated world saw, so the
recorder also puts every operation into the trace, whose digest (cluster/sim/loop/trace.py) covers
it. The nemesis records its operations in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import msgspec
import pyarrow as pa

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.runs.deaths import Crashes
from shalott.cluster.capabilities import lacking
from shalott.cluster.sim.backend import HARNESS, SimCluster
from shalott.cluster.sim.buggify import fired_in_run
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.loop.order import Order
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.loop.schedule import Priorities
from shalott.cluster.sim.loop.trace import DIGEST_VERSION, Trace
from shalott.cluster.sim.machine import Machine, captured_output
from shalott.cluster.sim.oracles.watch import NOTHING, Promised
from shalott.cluster.system import InspectsMachines, group_names
from shalott.cluster.systems.own_broker import event_row
from shalott.cluster.systems.record import SYSTEMS, promises_of
from shalott.core.errors import BootFailed, MissingCapability, UsageError
from shalott.core.history import EMPTY_EVENTS, History, events_table
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.op import Completion, Invocation
from shalott.core.plan import DiskPlan, Plan, SimPlan
from shalott.core.recording import HistoryWriter, RunRecorder
from shalott.harness.run.backends import check_world, make_system
from shalott.harness.run.coverage import sometimes
from shalott.harness.run.provenance import Provenance
from shalott.harness.run.run import Outcome, RunClock, RunContext, run
from shalott.harness.run.simulation_record import (
    SimulationRecord,
    code_fingerprint,
    plan_digest,
    planned_faults,
    save_record,
)
from shalott.harness.run.stage import Stage
from shalott.harness.run.store import PLAN, RunDirectory
from shalott.harness.run.verdict import judge
from shalott.harness.run.world import World, nemesis_maker
from shalott.nemesis.requirements import check_system, required_capabilities
from shalott.workloads.queue import AMQP
from shalott.workloads.record import WORKLOADS

log = logging.getLogger("shalott.simulate")

WATCH_INTERVAL_S = 1.0  # virtual
QUIET = logging.CRITICAL + 1


@dataclass(frozen=True, slots=True)
class SimOutcome:
    """What is known after a simulated run.

    ``anomalies``: the distinct classes, sorted. ``sometimes``: how often what a campaign wants to
    see happened. ``error``: what kept the run from its end, if anything did. ``order``: which
    kinds of events came after which (cluster/sim/loop/order.py), if that was asked for.
    ``callbacks``: how much work the loop had; it depends on the version of Python.
    """

    valid: bool | str
    results: tuple[Result, ...]
    anomalies: tuple[str, ...]
    digest: str
    callbacks: int
    segments: int
    virtual_ns: int
    wall_s: float
    sometimes: Mapping[str, int]
    buggified: Mapping[str, int]
    plan: Plan
    history: History
    error: str | None = None
    output: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    trace: Trace | None = None
    start_wall_ns: int | None = None  # what the simulated clocks showed at the start
    order: Sequence[tuple[str, str]] = ()


def simulate(
    plan: Plan,
    *,
    stop_early: bool = True,
    label_chunk: int | None = None,
    order: bool = False,
    log_level: int = QUIET,
) -> SimOutcome:
    """Run ``plan``. Raises UsageError for faults that the simulation or the system can't have.

    ``label_chunk``: which part of the trace to keep as text (cluster/sim/loop/trace.py).
    ``order``: whether to note what came after what, which a search that learns asks for.
    ``log_level``: what of the nodes' logs to keep.
    """
    began = time.process_time()
    trace = Trace(label_chunk=label_chunk)
    loop = make_loop(plan, trace)
    cluster = make_cluster(plan, loop)
    if order:
        cluster.network.order = Order(loop)
    try:
        stage = make_stage(plan, cluster)
    except UsageError:
        loop.close()
        raise
    error, unready = None, ""
    with captured_output(loop, cluster.machines, level=log_level):
        try:
            loop.run(_perform(stage, cluster, stop_early), harness_process())
        except Exception as failure:
            causes = tuple(_causes(failure))
            if all(isinstance(each, BootFailed) for each in causes):
                unready = str(causes[0])
            else:
                error = "; ".join(f"{type(each).__name__}: {each}" for each in causes)
            log.warning("seed %d did not reach its end", plan.seed, exc_info=failure)
    history = _history(stage, cluster.machines, complete=not (error or unready))
    verdict = judge(plan, history)
    results = _with_unready(verdict.results, unready) if unready else verdict.results
    wrong = [result for result in results if result.valid is False]
    kinds = [anomaly.kind for result in wrong for anomaly in result.anomalies]
    return SimOutcome(
        valid=False if unready else verdict.valid,
        results=results,
        anomalies=tuple(sorted(dict.fromkeys(kinds))),
        digest=trace.digest(),
        callbacks=loop.callbacks,
        segments=cluster.network.segments,
        virtual_ns=loop.now_ns - START_NS,
        wall_s=time.process_time() - began,
        sometimes=sometimes(history),
        buggified=fired_in_run(cluster.buggify.values()),
        plan=resolved_plan(plan, stage),
        history=history,
        error=error,
        output={name: tuple(machine.output) for name, machine in cluster.machines.items()},
        trace=trace,
        start_wall_ns=stage.record.start_wall_ns,
        order=() if cluster.network.order is None else tuple(cluster.network.order.pairs()),
    )


def _with_unready(results: Sequence[Result], unready: str) -> tuple[Result, ...]:
    """Nothing but the broker keeps a simulated cluster, before any fault, from being ready."""
    stuck = Anomaly(kind="stuck", summary=unready.partition("\n")[0], detail={})
    others = [result for result in results if result.checker != "liveness"]
    counts: dict[str, int | float] = {"stuck-count": 1, "undrained-count": 0}
    liveness = Result(checker="liveness", valid=False, counts=counts, anomalies=(stuck,))
    return (*others, liveness)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What is inside groups of exceptions."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error


def make_stage(plan: Plan, cluster: SimCluster) -> Stage:
    """The run's stage in the simulated world. Raises MissingCapability for what it can't do."""

    loop = cluster.loop

    def make_recorder(path: Path | None) -> RunRecorder:
        recorder = MemoryRecorder(lambda: loop.now_ns, cluster.wall_ns)
        return TracedRecorder(recorder, cluster)

    world = make_world(plan, cluster, make_recorder)
    recorder = make_recorder(None)
    workload = WORKLOADS.find(plan.workload.name).build(plan)
    return Stage(plan, world, workload, recorder, world.make_nemesis(recorder))


async def _perform(stage: Stage, cluster: SimCluster, stop_early: bool) -> None:
    """The experiment, cut short by the first crash of a broker's process if that is a violation.

    A crash that a failing disk explains is none (checkers/runs/deaths.py), and the run goes on.
    """
    experiment = asyncio.create_task(stage.perform(), name="experiment")
    watch = stop_early and stage.plan.gates.must_not_crash
    machines = cluster.machines.values()
    judged = dict.fromkeys(cluster.machines, 0)
    while watch and not experiment.done():
        await asyncio.wait((experiment,), timeout=WATCH_INTERVAL_S)
        events = [e for m in machines for e in m.events[judged[m.name] :]]
        judged = {m.name: len(m.events) for m in machines}
        if not any(e.kind == "crashed" for e in events):
            continue
        found = Crashes(stage.plan.gates.crash_text)
        if not found.check(_history(stage, cluster.machines, complete=False)).valid:
            experiment.cancel()
            await asyncio.wait((experiment,))
            break
    else:
        await experiment
    await stage.stop_watching()


def _history(stage: Stage, machines: Mapping[str, Machine], *, complete: bool) -> History:
    if complete:
        stage.record.close()
    start_wall_ns = stage.record.start_wall_ns
    named = group_names(stage.world.system)
    rows = [event_row(e, start_wall_ns, named) for m in machines.values() for e in m.events]
    rows.sort(key=lambda row: int(row["run_ns"]))
    return stage.record.history(events_table(rows))


def resolved_plan(plan: Plan, stage: Stage) -> Plan:
    """The plan with the targets that its faults had."""
    return msgspec.structs.replace(plan, faults=stage.nemesis.resolved_actions)


def record_of(
    plan: Plan, outcome: SimOutcome, violations: Sequence[str], *, code: str
) -> SimulationRecord:
    """The record of a run of ``plan`` in memory; ``outcome.plan`` is what will be stored."""
    checkpoints = outcome.trace.checkpoints if outcome.trace is not None else []
    return SimulationRecord(
        digest=outcome.digest,
        digest_version=DIGEST_VERSION,
        python=platform.python_version(),
        callbacks=outcome.callbacks,
        segments=outcome.segments,
        virtual_ns=outcome.virtual_ns,
        way="search",
        code=code,
        plan=plan_digest(outcome.plan),
        checkpoints=tuple(checkpoint.hex() for checkpoint in checkpoints),
        planned=planned_faults(plan, outcome.plan),
        violations=tuple(violations),
        sometimes=dict(outcome.sometimes),
        buggified=dict(outcome.buggified),
    )


# -- stored, as any other run is ------------------------------------------------------------------


def run_stored(
    plan: Plan, directory: RunDirectory, context: RunContext
) -> tuple[Outcome, SimulationRecord]:
    """A simulated run with everything that a run stores; a signal ends it in order."""
    provenance = Provenance(plan)
    began_ns, began_wall_ns = time.monotonic_ns(), time.time_ns()
    trace = Trace()
    loop = make_loop(plan, trace)
    cluster = make_cluster(plan, loop)

    def make_recorder(path: Path) -> RunRecorder:
        writer = HistoryWriter(path, clock_ns=lambda: loop.now_ns, wall_ns=cluster.wall_ns)
        return TracedRecorder(writer, cluster)

    world = make_world(plan, cluster, make_recorder)
    interrupt = asyncio.Event()
    clock = RunClock(
        elapsed_ns=lambda: time.monotonic_ns() - began_ns, started_wall_ns=began_wall_ns
    )
    with (
        captured_output(loop, cluster.machines, level=logging.INFO),
        _signals_interrupt(loop, interrupt),
    ):
        outcome = loop.run(
            run(
                plan,
                directory,
                world,
                context,
                clock=clock,
                provenance=provenance,
                interrupt=interrupt,
            ),
            harness_process(),
        )
    record = SimulationRecord(
        digest=trace.digest(),
        digest_version=DIGEST_VERSION,
        python=platform.python_version(),
        callbacks=loop.callbacks,
        segments=cluster.network.segments,
        virtual_ns=loop.now_ns - START_NS,
        code=code_fingerprint(),
        plan=plan_digest(directory.load_plan()),
        checkpoints=tuple(checkpoint.hex() for checkpoint in trace.checkpoints),
        planned=planned_faults(plan, directory.load_plan()),
    )
    save_record(directory.path / PLAN, record)
    return outcome, record


@contextmanager
def _signals_interrupt(loop: SimLoop, interrupt: asyncio.Event) -> Iterator[None]:
    """The first SIGINT or SIGTERM sets ``interrupt`` the next time that virtual time moves."""
    asked: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    def tell() -> None:
        if asked and not interrupt.is_set():
            interrupt.set()

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    loop.interrupted = tell
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    knobs = sim_knobs(plan)
    loop = SimLoop(
        trace=trace,
        deadline_ns=START_NS + budget_ms * 1_000_000,
        callback_cost_ns=knobs.callback_cost_ns,
    )
    own = knobs.schedule
    if own is not msgspec.UNSET:
        window_ns = own.window_us * 1000
        loop.priorities = Priorities(own.seed, by=own.by, window_ns=window_ns, points=own.points)
    return loop


def make_cluster(plan: Plan, loop: SimLoop) -> SimCluster:
    """The plan's nodes as machines that run its system's program. Raises UsageError."""
    check_world("sim", plan.system.name)
    program = SYSTEMS.find(plan.system.name).program
    assert program is not None, f"{plan.system.name} says that it runs in the simulation"
    return SimCluster(plan.cluster.nodes, loop, sim_knobs(plan), program, promised_of(plan))


def promised_of(plan: Plan) -> Promised:
    """What the oracles hold the system to. Queues promise a disk to durable messages that are
    confirmed, and logs what their profile keeps."""
    given, promises = plan.workload.parameters, promises_of(plan)
    body_bytes = int(given.get("body_bytes", 0))
    if AMQP in SYSTEMS.find(plan.system.name).speaks:
        kept = all(given.get(name) for name in ("durable", "persistent", "confirms"))
        return Promised(disks=int(kept), f="enqueue", body_bytes=body_bytes)
    if not promises.keeps_acknowledged:
        return NOTHING
    return Promised(
        disks=promises.copies if promises.flushed else 1,
        copies=promises.copies,
        own=promises.by_set or not promises.flushed,
        by_set=promises.by_set,
        f="send" if body_bytes else "",
        body_bytes=body_bytes,
    )


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
    """A RunRecorder that hands everything on to ``recorder``; the cluster's oracles hear what
    clients were told."""

    def __init__(self, recorder: RunRecorder, cluster: SimCluster) -> None:
        loop = cluster.loop
        self.counts = recorder.counts
        self.start_wall_ns = recorder.start_wall_ns
        self._recorder = recorder
        self._trace = loop.trace
        self._loop = loop
        self._oracle = cluster.oracles.clients

    def now_ns(self) -> int:
        return self._recorder.now_ns()

    def invoke(
        self, process: int, node: str, invocation: Invocation, due_ns: int | None = None
    ) -> int:
        asked = (invocation.f, invocation.key, invocation.value, invocation.extra)
        self._trace.event(self._loop.now_ns, "invoke", _encode((process, node, *asked)))
        index = self._recorder.invoke(process, node, invocation, due_ns)
        self._oracle.invoked(index, node, invocation)
        return index

    def complete(self, index: int, completion: Completion) -> None:
        elsewhere = () if completion.key is None else (completion.key,)
        text = _encode((index, *_answer(completion), *elsewhere))
        self._trace.event(self._loop.now_ns, completion.type, text)
        self._oracle.completed(index, completion)
        self._recorder.complete(index, completion)

    def happened(self, process: int, node: str, f: str, completion: Completion) -> None:
        text = _encode((process, node, f, completion.key or "", *_answer(completion)))
        self._trace.event(self._loop.now_ns, "happened", text)
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
