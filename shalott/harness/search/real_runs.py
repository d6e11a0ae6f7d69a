"""Real runs: the door's second implementation (search/door.py), on clusters that are kept warm.

Each worker has a cluster of its own on an event loop of its own,
so a busy checker of one stalls no other. It is torn down when the worker is told to end, also in
the middle of a run: then the run is interrupted, its faults are healed and it counts for nothing.

A verdict may be the harness's own doing, and then it is no finding. Where the harness failed, the
plan is run once more, on machines that are new. A run that stalls have spoilt
(checkers/runs/stalls.py) is called starved, also where its checkers say more.

A warm cluster: one cluster that serves one run after another.

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
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shalott.checkers.checker import Result
from shalott.checkers.history.faults import read_surroundings
from shalott.cluster.cluster import Cluster
from shalott.cluster.system import System
from shalott.core.doors import typed_command
from shalott.core.errors import StoreError
from shalott.core.plan import Plan, dump_plan
from shalott.harness.report.results import classes, violations
from shalott.harness.run import backends
from shalott.harness.run.coverage import sometimes
from shalott.harness.run.provenance import Provenance
from shalott.harness.run.run import Outcome, RunContext, real_clock, run
from shalott.harness.run.store import PLAN, RunDirectory
from shalott.harness.run.world import World, build_world
from shalott.harness.search.door import Lane, Ran
from shalott.harness.search.findings import REASONS_MAX, RealFacts, SeedReport
from shalott.nemesis.requirements import required_capabilities
from shalott.nemesis.rolling import images_told

TRIES = 2
RESOLVED = "resolved.json"  # the plan with the targets that its faults had in this run
STALLS = "stalls"  # the checker that says whether the harness ran


@dataclass(frozen=True, slots=True)
class RealRuns:
    """See ``door.Runs``. ``place``: where runs under way are written. ``needs``: what the machines
    must be able to do for any plan of the campaign."""

    place: Path
    needs: tuple[str, ...] = ()
    limit_s: float = 3600.0
    closes_within_s: float = 180.0

    def open(self, lane: Lane) -> RealRunner:
        return RealRunner(self, lane)


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """A run that was stored while it lasted. See ``door.Evidence``."""

    path: Path

    def keep(self, place: RunDirectory, command: str) -> None:
        try:
            place.path.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(place.path, ignore_errors=True)
            self.path.rename(place.path)
        except OSError as error:
            raise StoreError(f"cannot keep {place.path}: {error.strerror}") from error

    def drop(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class RealRunner:
    """See ``door.Runner``. One for each worker."""

    def __init__(self, runs: RealRuns, lane: Lane) -> None:
        self._place = runs.place / f"lane-{lane.number}-{os.getpid()}"
        self._parent = lane.parent
        self._loop = asyncio.Runner()
        name = f"search-{lane.number}"
        self._warm = WarmCluster(name, self._place / "machines", runs.needs)
        self._serial = 0

    def run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        return self._loop.run(self._run(number, plan, again=again))

    def close(self) -> None:
        try:
            self._loop.run(self._warm.close())
        finally:
            self._loop.close()
            shutil.rmtree(self._place, ignore_errors=True)

    async def _run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        began_s = time.monotonic()
        for tried in range(1, TRIES + 1):
            directory = self._directory(plan)
            with self._told_to_end() as interrupt:
                done = await self._warm.run(
                    plan, directory, command=_command(directory), interrupt=interrupt
                )
            if done.outcome.interrupted or not done.outcome.failures or tried == TRIES:
                break
            shutil.rmtree(directory.path, ignore_errors=True)
        keep_as_drawn(plan, directory)
        wall_s = time.monotonic() - began_s
        report = report_of(number, done, directory, tries=tried, wall_s=wall_s)
        evidence = StoredEvidence(directory.path)
        if again or not is_worth_keeping(report):
            evidence.drop()
            return Ran(report)
        return Ran(report, evidence)

    def _directory(self, plan: Plan) -> RunDirectory:
        """Named like a store's: the campaign's name, and a number."""
        self._serial += 1
        path = self._place / f"{self._serial}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return RunDirectory(path)

    @contextmanager
    def _told_to_end(self) -> Iterator[asyncio.Event]:
        """Set when the campaign wants no more, or is gone: nothing else comes while a plan runs."""
        interrupt = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(self._parent)
            interrupt.set()

        loop.add_reader(self._parent, end)
        try:
            yield interrupt
        finally:
            loop.remove_reader(self._parent)


def _command(directory: RunDirectory) -> str:
    return typed_command("replay", str(directory.path / PLAN))


def keep_as_drawn(plan: Plan, directory: RunDirectory) -> None:
    """A run writes the targets that its faults had into its plan. Who was the master then need not
    be the next time, so what is run again is the plan as it was; the other one stays beside it."""
    written = directory.path / PLAN
    if not written.exists() or written.read_bytes() == dump_plan(plan):
        return
    written.rename(directory.path / RESOLVED)
    directory.save_plan(plan)


def is_worth_keeping(report: SeedReport) -> bool:
    assert report.real is not None
    return bool(report.violations) and report.error is None and not report.real.starved


def report_of(
    number: int, done: WarmOutcome, directory: RunDirectory, *, tries: int, wall_s: float
) -> SeedReport:
    outcome = done.outcome
    error = outcome.failures[0] if outcome.failures else None
    if outcome.interrupted:
        error = "it was interrupted"
    history = directory.load_history()
    around = read_surroundings(history)
    phases = {p.name: (p.end_ns or around.end_ns) - p.begin_ns for p in around.phases}
    return SeedReport(
        seed=number,
        valid=outcome.valid,
        violations=classes(violations(outcome.results)),
        wall_s=round(wall_s, 3),
        sometimes=dict(sometimes(history)),
        reasons=tuple(_doubts(outcome.results))[:REASONS_MAX],
        error=error,
        real=RealFacts(
            warm=done.warm,
            phases_ms={name: lasted_ns // 1_000_000 for name, lasted_ns in phases.items()},
            start_ms=round(done.start_s * 1000),
            tries=tries,
            starved=why_starved(outcome.results),
            load=round(os.getloadavg()[0] / (os.cpu_count() or 1), 2),
        ),
    )


def why_starved(results: Sequence[Result]) -> str:
    """Why the harness, and not the system, may be to blame for what was seen; "" if it ran."""
    for result in results:
        if result.checker == STALLS and result.valid == "unknown":
            return (result.notes or ("The harness stood still.",))[0]
    return ""


def _doubts(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        if result.valid == "unknown":
            yield from result.notes or (f"{result.checker} is unknown.",)


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
