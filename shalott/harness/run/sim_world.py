"""The simulated world of a plan: its loop, its cluster, and the World that a stage plays in.

``shalott search``, ``replay`` and ``shrink`` keep the run in memory (harness/run/simulate.py);
``shalott test --cluster sim`` stores it like any other (``run_stored``).
"""

from __future__ import annotations

import asyncio
import logging
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from shalott.cluster.capabilities import lacking
from shalott.cluster.sim.backend import HARNESS, SimCluster
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.loop.trace import DIGEST_VERSION, Trace
from shalott.cluster.sim.output import captured_output
from shalott.cluster.system import InspectsMachines
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import MissingCapability
from shalott.core.history import Recorder
from shalott.core.plan import DiskPlan, Plan, SimPlan
from shalott.core.recording import HistoryWriter, RunRecorder
from shalott.harness.report.meta import Tested
from shalott.harness.report.stories.story import Story
from shalott.harness.run.run import Outcome, run
from shalott.harness.run.select import check_world, make_system
from shalott.harness.run.sim_record import (
    SimulationRecord,
    code_fingerprint,
    plan_digest,
    planned_faults,
    save_record,
)
from shalott.harness.run.stage import Nemesis, World
from shalott.harness.run.store import PLAN, RunDirectory
from shalott.harness.run.traced_recording import TracedRecorder
from shalott.nemesis.requirements import check_system, required_capabilities
from shalott.nemesis.runner import NemesisRunner
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

    def make_nemesis(record: Recorder) -> Nemesis:
        return NemesisRunner(
            cluster,
            system,
            plan,
            record,
            queues=workload.queues,
            client_ports=workload.client_ports,
        )

    async def inspect() -> None:
        if isinstance(system, InspectsMachines):
            await system.inspect(cluster.machines)

    return World(
        cluster=cluster,
        system=system,
        make_nemesis=make_nemesis,
        make_recorder=make_recorder,
        inspect=inspect if isinstance(system, InspectsMachines) else None,
    )


def harness_process() -> SimProcess:
    """The harness's own: it may write files, and nothing ever happens to it."""
    return SimProcess(HARNESS, fenced=False)


def run_stored(
    plan: Plan,
    directory: RunDirectory,
    command: str,
    versions: dict[str, str],
    notes: tuple[str, ...],
    *,
    iteration: int = 1,
    tested: Callable[[], Tested] = Tested,
    story: Story | None = None,
) -> tuple[Outcome, SimulationRecord]:
    """A simulated run with everything that a run stores; a signal ends it in order."""
    began_ns, began_wall_ns = time.monotonic_ns(), time.time_ns()
    trace = Trace()
    loop = make_loop(plan, trace)
    cluster = make_cluster(plan, loop)

    def make_recorder(path: Path) -> RunRecorder:
        writer = HistoryWriter(path, clock_ns=lambda: loop.now_ns, wall_ns=cluster.wall_ns)
        return TracedRecorder(writer, trace, lambda: loop.now_ns)

    world = make_world(plan, cluster, make_recorder)
    interrupt = asyncio.Event()
    with (
        captured_output(loop, cluster.machines, level=logging.INFO),
        _signals_interrupt(loop, interrupt),
    ):
        outcome = loop.run(
            run(
                plan,
                directory,
                world,
                command=command,
                versions=versions,
                notes=notes,
                iteration=iteration,
                elapsed_ns=lambda: time.monotonic_ns() - began_ns,
                started_wall_ns=began_wall_ns,
                tested=tested,
                interrupt=interrupt,
                story=story,
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
