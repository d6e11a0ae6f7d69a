"""Where a run takes place: the cluster, its system, and what makes the nemesis and the recorder.

``build_world`` makes the world of real nodes; that of a simulation is harness/run/simulate.py's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from shalott.cluster.capabilities import lacking, refusal
from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System, ports_of
from shalott.core.errors import MissingCapability
from shalott.core.history import Recorder
from shalott.core.plan import FaultAction, Plan
from shalott.core.recording import RunRecorder, record_to_file
from shalott.harness.run import backends
from shalott.harness.run.clock_watch import ClockWatch
from shalott.harness.run.store import ENDPOINTS, RunDirectory
from shalott.harness.run.watchdog import watch_for_stalls
from shalott.nemesis.requirements import check_system, required_capabilities
from shalott.nemesis.runner import NemesisRunner
from shalott.workloads.record import WORKLOADS, Workload


class Nemesis(Protocol):
    """What injects the plan's faults (nemesis.runner)."""

    in_force: list[str]

    @property
    def resolved_actions(self) -> tuple[FaultAction, ...]:
        """The plan's faults, with the targets that they had where they have fired."""
        ...

    async def run(self) -> None:
        """Inject and heal every fault of the plan, each at its time counted from now."""
        ...

    async def heal(self) -> None:
        """Heal what is still in force and prove it. Safe to call at any moment, also twice."""
        ...


WatchClocks = Callable[[Cluster, RunRecorder], ClockWatch]
WatchStalls = Callable[[Cluster, Recorder], contextlib.AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class World:
    """Where a run takes place. The nemesis is made when there is a history to record in.

    ``inspect`` is called between settling and draining, in worlds that can look into their nodes,
    or after it (Workload.writes_until_drained);
    ``announce`` when the nodes have been started, in worlds whose nodes others can ask.
    ``watch_stalls`` records what keeps the harness from running, in worlds where time passes.
    ``boot`` and ``teardown``: how the nodes come to run and what becomes of them, where that is not
    the cluster's own boot and teardown (harness/search/real_runs.py).
    """

    cluster: Cluster
    system: System
    make_nemesis: Callable[[Recorder], Nemesis]
    make_recorder: Callable[[Path], RunRecorder] = record_to_file
    inspect: Callable[[], Awaitable[None]] | None = None
    announce: Callable[[Cluster, System], Awaitable[None]] | None = None
    watch_stalls: WatchStalls | None = None
    watch_clocks: WatchClocks | None = None
    boot: Callable[[System], Awaitable[None]] | None = None
    teardown: Callable[[], Awaitable[None]] | None = None


def build_world(plan: Plan, directory: RunDirectory, cluster: Cluster | None = None) -> World:
    """The plan's cluster, which may be there already, and its system. Raises MissingCapability or
    UsageError for faults that they can't have."""
    run_id = f"{directory.path.name.replace('.', '').lower()}-{os.getpid()}"
    system = backends.make_system(plan)
    check_system(plan.faults, system, plan.cluster.nodes)
    if cluster is None:
        cluster = backends.make_cluster(plan, run_id, directory.path / "work")
    missing = sorted(required_capabilities(plan.faults) - cluster.capabilities)
    if missing:
        raise MissingCapability(_why_missing(cluster.backend, missing))
    workload = WORKLOADS.find(plan.workload.name).build(plan)

    async def announce(booted: Cluster, running: System) -> None:
        note_endpoints(directory.path / ENDPOINTS, booted, running)

    return World(
        cluster=cluster,
        system=system,
        make_nemesis=nemesis_maker(plan, cluster, system, workload),
        announce=announce,
        watch_stalls=watch_for_stalls,
        watch_clocks=ClockWatch,
    )


def nemesis_maker(
    plan: Plan, cluster: Cluster, system: System, workload: Workload
) -> Callable[[Recorder], Nemesis]:
    """Makes the nemesis of a run when there is a history to record in."""

    def make_nemesis(record: Recorder) -> Nemesis:
        return NemesisRunner(
            cluster,
            system,
            plan,
            record,
            queues=workload.queues,
            client_ports=workload.client_ports,
        )

    return make_nemesis


def _why_missing(backend: str, missing: Sequence[str]) -> str:
    if "upgrade" in missing:
        return str(refusal(backend, "images"))
    sentence = (
        f"the {backend} backend can't {lacking(missing)} here, which the plan's faults need:"
        " choose another --cluster or --nemesis"
    )
    # What the doctor examines; it knows nothing of what a backend never can.
    examined = backend == "docker" and all(each in ("delay", "throttle") for each in missing)
    return f"{sentence}; `shalott doctor` says what installs it" if examined else sentence


def note_endpoints(path: Path, cluster: Cluster, system: System) -> None:
    """Where each node's ports can be reached from here: what ``shalott ctl`` reads."""
    noted = {
        node: {port: cluster.endpoint(node, port) for port in ports_of(system, node)}
        for node in cluster.nodes
    }
    found = {
        node: {port: (at.host, at.port) for port, at in ports.items()}
        for node, ports in noted.items()
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
