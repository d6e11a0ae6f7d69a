"""``shalott try-plugin``: whether a plug-in does what the harness counts on, point by point."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shalott.cluster.systems.record import SYSTEMS, SystemRecord
from shalott.core.doors import load_module
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.harness.conformance.hands_on import HandsOn, Operations
from shalott.harness.conformance.lies import is_write
from shalott.harness.conformance.points import Failed, Point, Score
from shalott.harness.conformance.whole_runs import WholeRuns
from shalott.harness.run.backends import choose_backend
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.store import Store
from shalott.harness.run.world import build_world
from shalott.workloads.record import WORKLOADS, Workload, WorkloadRecord

FAULTS_S = 15
SAME = 100  # operations of two generators of one plan are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class TryRequest:
    module: str
    system: str = ""
    workload: str = ""
    profile: str = ""
    cluster: str = "auto"
    nodes: str = "3"
    rate: float = 50.0
    time_limit_s: int = 5
    is_quick: bool = False  # no whole runs
    op_timeout: str = "1"
    boot_within_ms: int = 60_000
    store: Path = Path("store")


def try_plugin(asked: TryRequest, tell: Callable[[Point], None]) -> Sequence[Point]:
    """What became of each point. Raises UsageError: there is no such plug-in or world."""
    system, workload = find_records(asked)
    cluster = asked.cluster
    if cluster == "auto":
        cluster = "local" if "local" in system.worlds else cluster
    backend = choose_backend(cluster, system.name).backend
    if backend == "sim":
        raise UsageError("a plug-in is tried on real nodes: use --cluster local or docker")
    score = Score(tell)

    def plan_of(nemesis: str, seconds: int) -> Plan:
        request = Request(
            system=system.name, workload=workload.name, profile=asked.profile, cluster=backend,
            nodes=asked.nodes,
            rate=asked.rate, time_limit=str(seconds), op_timeout=asked.op_timeout,
            nemesis=nemesis, nemesis_interval="3", nemesis_duration="2", min_acked=20,
        )  # fmt: skip
        return make_plan(request, backend=backend, seed=1)

    honest = plan_of("none", asked.time_limit_s)
    writes: list[str] = []
    with score.trying("builds") as told:
        system.make(honest)
        writes += _check_build(workload, honest)
        told.append(f"{workload.name} on {system.name}, {backend}; writes: {', '.join(writes)}")
    if score.passed("builds"):
        _lay_hands_on(asked, honest, workload, score)
    if not score.passed("boots"):
        score.rest("the system has no cluster that serves")
        return score.points
    if asked.is_quick:
        score.rest("this needs whole runs")
        return score.points
    faults = ["kill", "pause"] + (["partition"] if len(honest.cluster.nodes) > 2 else [])
    command = f"shalott try-plugin {asked.module}"
    runs = WholeRuns(workload, tuple(writes), Store(asked.store), score, command)
    runs.perform(honest, plan_of(",".join(faults), FAULTS_S))
    score.rest("a point before it failed")
    return score.points


def find_records(asked: TryRequest) -> tuple[SystemRecord, WorkloadRecord]:
    """What is tried: of the module, or as the user says. Raises UsageError."""
    load_module(asked.module)
    values = vars(importlib.import_module(asked.module)).values()
    systems = [each for each in values if isinstance(each, SystemRecord)]
    workloads = [each for each in values if isinstance(each, WorkloadRecord)]
    if not systems and not workloads:
        raise UsageError(
            f"{asked.module} offers no system and no workload: name a module at the top of which"
            " such a record stands"
        )
    if asked.system:
        system = SYSTEMS.find(asked.system)
    elif systems:
        system = systems[0]
    else:
        able = [each for each in SYSTEMS.records() if workloads[0].fits(each.speaks)]
        if not able:
            needs = ", ".join(workloads[0].needs)
            raise UsageError(f"no system speaks what {workloads[0].name} needs: {needs}")
        system = able[0]
    own = [each for each in workloads if each.fits(system.speaks)]
    name = asked.workload or (own[0].name if own else system.workload)
    return system, WORKLOADS.find(name)


def _check_build(record: WorkloadRecord, plan: Plan) -> Sequence[str]:
    """The fs that write. Raises Failed."""
    built: list[object] = [record.build(plan), record.build(plan)]
    for each in built:
        if not isinstance(each, Workload):
            raise Failed(f"build returned a {type(each).__name__}, not a Workload")
    for checker in record.checkers(plan):
        if not hasattr(checker, "check") or not hasattr(checker, "name"):
            raise Failed(f"checkers gave a {type(checker).__name__}, which is no checker")
    drawn = [list(Operations(record, plan).draw())[:SAME] for _ in built]
    if msgspec.json.encode(drawn[0]) != msgspec.json.encode(drawn[1]):
        raise Failed("two generators of one plan give different operations")
    if not drawn[0]:
        raise Failed("the workload's generator gives no operation")
    return sorted({each.f for each in drawn[0] if is_write(record, each)})


def _lay_hands_on(asked: TryRequest, plan: Plan, record: WorkloadRecord, score: Score) -> None:
    directory = Store(asked.store).name_run(f"try-{plan.system.name}")
    world = build_world(plan, directory)
    hands = HandsOn(
        plan, record, record.build(plan), world.cluster, world.system, score, asked.boot_within_ms
    )
    asyncio.run(hands.perform())
