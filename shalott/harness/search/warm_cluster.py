"""A warm cluster: one cluster that serves one run after another.

Its first run boots it. At a run's end its nodes' processes end and their disks are emptied
(``Cluster.clear``), and the next run's files are written and its nodes started on the same
machines. Where a plan needs other machines (other nodes, another system or image, or what these
can't do), and after a run in which the harness failed, they are torn down and the next run boots
new ones. All of it in one event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.plan import Plan
from shalott.harness.run import backends
from shalott.harness.run.provenance import Provenance
from shalott.harness.run.run import Outcome, RunContext, real_clock, run
from shalott.harness.run.store import RunDirectory
from shalott.harness.run.world import World, build_world
from shalott.nemesis.requirements import required_capabilities
from shalott.nemesis.rolling import images_told

log = logging.getLogger("shalott.run")


@dataclass(frozen=True, slots=True)
class Machines:
    """What two plans must have in common to run on the same machines."""

    backend: str
    nodes: tuple[str, ...]
    system: str
    image: str
    images: tuple[str, ...]  # besides, which a fault of the plan changes nodes to
    power_loss: str


@dataclass(frozen=True, slots=True)
class WarmOutcome:
    """``warm``: it ran on machines that were there. ``start_s``: until they ran its programs."""

    outcome: Outcome
    warm: bool
    start_s: float


class WarmCluster:
    """``needs``: what the machines must be able to do for later plans, so that a plan with
    one more kind of fault needs no other ones. ``work_dir``: its own."""

    def __init__(self, name: str, work_dir: Path, needs: Collection[str] = ()) -> None:
        self._name = name
        self._work_dir = work_dir
        self._needs = needs
        self._serial = 0
        self._cluster: Cluster | None = None
        self._machines: Machines | None = None
        self._is_up = False
        self._is_warm = False
        self._start_s = 0.0

    async def run(
        self,
        plan: Plan,
        directory: RunDirectory,
        *,
        command: str,
        notes: Sequence[str] = (),
        interrupt: asyncio.Event | None = None,
    ) -> WarmOutcome:
        """One run, in a directory that is there. Raises UsageError, MissingCapability."""
        world = await self._world(plan, directory)
        provenance = Provenance(plan)
        outcome = await run(
            plan,
            directory,
            dataclasses.replace(world, announce=provenance.look),
            RunContext(command=command, notes=tuple(notes)),
            clock=real_clock(),
            provenance=provenance,
            interrupt=interrupt,
        )
        if outcome.failures:
            await self.close()  # their state is not known
        return WarmOutcome(outcome=outcome, warm=self._is_warm, start_s=self._start_s)

    async def close(self) -> None:
        """Remove the machines."""
        cluster, self._cluster, self._is_up = self._cluster, None, False
        if cluster is not None:
            await cluster.teardown()

    async def _world(self, plan: Plan, directory: RunDirectory) -> World:
        wanted = machines_for(plan)
        can = frozenset() if self._cluster is None else self._cluster.capabilities
        if wanted != self._machines or required_capabilities(plan.faults) - can:
            await self.close()
        if self._cluster is None:
            self._serial += 1
            run_id = f"{self._name}-{self._serial}-{os.getpid()}"
            self._cluster = backends.make_cluster(plan, run_id, self._work_dir, needs=self._needs)
            self._machines = wanted
        world = build_world(plan, directory, self._cluster)
        return dataclasses.replace(world, boot=self._boot, teardown=self._rest)

    async def _boot(self, system: System) -> None:
        cluster, began_s = self._cluster, time.monotonic()
        assert cluster is not None
        self._is_warm = self._is_up
        if self._is_up and cluster.is_reusable:
            await cluster.boot_again(system)
        else:
            await cluster.boot(system)
        self._is_up = True
        self._start_s = time.monotonic() - began_s
        log.info("the nodes were started in %.1f s", self._start_s)

    async def _rest(self) -> None:
        """What a run does in the place of a teardown."""
        cluster = self._cluster
        if self._is_up and cluster is not None and cluster.is_reusable:
            await cluster.clear()
        else:
            await self.close()


def machines_for(plan: Plan) -> Machines:
    """What a plan wants of machines. Raises UsageError."""
    return Machines(
        backend=plan.cluster.backend,
        nodes=plan.cluster.nodes,
        system=plan.system.name,
        image=backends.make_system(plan).image,
        images=tuple(images_told(plan.faults)),
        power_loss=str(plan.cluster.power_loss),
    )
