"""Swarm: a whole plan drawn from a seed, every knob of it.

After swarm testing (Groce et al., "Swarm testing", ISSTA 2012) and TigerBeetle's VOPR: a run that
leaves many features out finds what a run that has all of them hides, so every run draws anew which
faults there are, how heavy, how long, and what the world is like. A ``Swarm`` says what each knob
may be; a scenario (harness/scenarios/catalogue.py) is a narrower one. Everything drawn
stands in the plan, which is all that a run needs. Each knob has a random stream of its own, named
after it, so another knob, or another range of one, moves no other draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from shalott.cluster.system import InspectsMachines, NamesMessages, RecordsReplicas
from shalott.cluster.systems.record import SYSTEMS, TOGETHER, Drawn, Search, Services, SystemRecord
from shalott.core.parameters import make_parameters, to_plan
from shalott.core.plan import (
    ClockPlan,
    ClusterPlan,
    DiskPlan,
    FaultAction,
    GatePlan,
    NetworkPlan,
    Plan,
    SchedulePlan,
    SimPlan,
    SystemPlan,
    WorkloadPlan,
    canonical,
)
from shalott.core.rng import Draw, Knobs, Range, stream_key
from shalott.harness.run.plan_checks import check_plan, requirements_of
from shalott.harness.run.planning import lay_out
from shalott.harness.run.request import parse_nodes, profile_of
from shalott.nemesis.drawing import STEP_MS, Promise, Slots, draw_faults
from shalott.nemesis.drawn_triggers import draw_again, draw_beside, draw_triggers
from shalott.nemesis.record import members
from shalott.nemesis.targets import is_single
from shalott.workloads.record import WORKLOADS, WorkloadRecord

Choice = TypeVar("Choice")

SIM = "sim"
FEW_NODES = 3
TRIGGERED, SCHEDULED = 0.5, 0.15  # of the runs of a plain search
DENSE = Range(2000, 9000, 500)  # its faults follow each other so closely
OUTAGES = ("kill", "power", "stop", "pause")
OTHERS_SHARE = 0.3  # it is any node, not the master
CALM_MS = 5000  # before one, and beyond what a queue may be without an answer
STEPS = 30_000  # about as many as a run of a minute has
# A plan of few operations under many faults still proves something; and a simulation, which looks
# into the nodes, asks more of them than clients can.
STRICT = GatePlan(min_acked=20, must_settle=True, must_not_crash=True, must_converge=True)

# Which faults there are, and how often each beside the others.
_ONE_AT_A_TIME: Mapping[str, float] = {
    "kill": 3, "power": 3, "stop": 1, "pause": 2, "partition": 3,
    "loss": 1, "loss-one-way": 0.5, "delay": 1, "delay-one-way": 0.5, "clog": 0.5,
    "clock-skew": 0.5, "clock-jump": 0.5,
    "disk-slow": 1, "disk-full": 0.5, "disk-error": 1, "disk-short": 0.5, "disk-corrupt": 0.5,
}  # fmt: skip
_ANYTHING: Mapping[str, float] = {
    **_ONE_AT_A_TIME, "restart-all": 0.5, "kill-all": 0.5, "power-all": 0.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """What each knob may be: a tuple of choices (repeat one to favour it), or a Range.

    A share is the probability that a run has the thing at all. ``USUAL.but(...)`` takes every
    knob by its name.
    """

    # the system
    nodes: tuple[int, ...] = (3, 3, 5)
    layouts: tuple[str, ...] = (TOGETHER,)
    # What parameters and settings of the system and of the workload may be, by the name of the
    # knob; what is not named is drawn as their records do (SystemRecord.draw, WorkloadRecord.draw).
    knobs: Knobs = dataclasses.field(default_factory=dict)
    # the clients
    rate_hz: Range = Range(12, 28)
    clients_a_node: tuple[int, ...] = (1, 1, 2, 3)
    op_timeout_ms: tuple[int, ...] = (2000, 5000)
    time_limit_ms: tuple[int, ...] = (60_000,)
    settle_timeout_ms: tuple[int, ...] = (60_000,)
    # How often each node is asked what it believes: seldom, as the nodes' own events tell it too,
    # and HTTP is the dearest of all that a simulated run does.
    observe_interval_ms: tuple[int, ...] = (5000, 10_000, 20_000)
    # the faults
    faults: Mapping[str, float] | None = None  # weight by kind; None: the usual ones, and these
    more_faults: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # More, where replicas are waited for between two: a promise of one node at a time covers them.
    settled_faults: Mapping[str, float] = dataclasses.field(default_factory=dict)
    fault_share: float = 0.5  # of the kinds that a run has
    promise: Promise | None = None
    promises: tuple[Promise, ...] = ()  # one of these, where there is no ``promise``
    targets: tuple[str, ...] = ("one", "one", "master")
    quiet_ms: tuple[int, ...] = (2000,)
    interval_ms: Range = Range(4000, 16_000, 500)
    shortest_ms: Range = Range(500, 2000, 500)  # of a run's faults
    longest_ms: Range = Range(2000, 10_000, 500)
    fault_count: int | None = None  # at most
    faults_until: tuple[float, ...] = (1.0,)  # share of the load's time in which they begin and end
    schedule: tuple[FaultAction, ...] | None = None  # these and no others
    triggered: float = 0.0  # share of runs in which some faults wait for a moment
    scheduled: float = 0.0  # share of runs in which who goes first has a priority
    # Share of the runs of one node at a time in which one stays away, and nothing else happens; how
    # long any queue may be without an answer then; parameters of the system that they have.
    outages: float = 0.0
    outage_ms: int = 0
    outage_parameters: Mapping[str, object] = dataclasses.field(default_factory=dict)
    # By number of a scheduled fault: it begins up to so much later.
    late_ms: Mapping[int, int] = dataclasses.field(default_factory=dict)
    # the world
    latency_us: tuple[int, ...] = (100, 300, 300, 1000, 5000)
    jitter_us: tuple[int, ...] = (0, 100, 1000, 10_000)
    link_spread_us: tuple[int, ...] = (0, 0, 500, 5000)
    loss: tuple[float, ...] = (0.0, 0.0, 0.001, 0.01)
    disk_call_us: tuple[tuple[int, int], ...] = ((5, 60), (5, 60), (50, 50), (20, 2000))
    disk_sync_us: tuple[tuple[int, int], ...] = ((200, 3000), (1000, 1000), (500, 30_000))
    power_loss: tuple[Literal["keep", "drop", "torn"], ...] = ("drop", "torn", "torn")
    clock_offset_ms: tuple[float, ...] = (0.0, 0.0, 100.0, 5000.0)  # at most, either way
    clock_drift_ppm: tuple[float, ...] = (0.0, 0.0, 100.0)  # at most, either way
    buggify: tuple[bool, ...] = (False, True)
    buggify_on: tuple[str, ...] = ()  # sites that are active in every run
    # what decides
    gates: GatePlan = STRICT

    def but(self, **changes: Any) -> Swarm:
        """The same with other choices; names that are no fields are knobs of the records."""
        fields = {field.name for field in dataclasses.fields(self)}
        own = {name: value for name, value in changes.items() if name in fields}
        others = {name: value for name, value in changes.items() if name not in fields}
        knobs = {**self.knobs, **own.pop("knobs", {}), **others}
        return dataclasses.replace(self, knobs=knobs, **own)


USUAL = Swarm()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a search is about: one system under one profile, perhaps with bugs switched on.

    ``cluster``: where its nodes run. ``parameters`` and ``policy``: of the system, over what the
    profile sets and what is drawn. ``left_out``: faults that can't be made there.
    """

    system: str = "mirrored"
    profile: str = "safe"
    bugs: tuple[str, ...] = ()
    swarm: Swarm = dataclasses.field(default_factory=Swarm)
    name: str = ""  # "": the system's and the profile's
    workload: str = ""  # "": the system's own
    cluster: str = SIM
    parameters: Mapping[str, object] = dataclasses.field(default_factory=dict)
    policy: Mapping[str, object] = dataclasses.field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def plain_subject(system: str, profile: str, workload: str = "") -> Subject:
    """What a search without a scenario is about: all that the profile promises to survive."""
    search = search_of(system, profile)
    own = WORKLOADS.find(workload).search if workload else {}
    name = f"{system}-{profile}" + (f"-{workload}" if workload else "")
    return Subject(
        system=system,
        profile=profile,
        swarm=USUAL.but(
            **{
                "triggered": TRIGGERED,
                "scheduled": SCHEDULED,
                "interval_ms": DENSE,
                **search.settings,
                **own,
            }
        ),
        name=name,
        workload=workload,
    )


def search_of(system: str, profile: str) -> Search:
    return SYSTEMS.find(system).search.get(profile, Search())


def usual_profile(system: str) -> str:
    """What a search has if the user names none: safe, or the first that the system has."""
    profiles = SYSTEMS.find(system).profiles
    return "safe" if "safe" in profiles else next(iter(profiles))


def draw_plan(subject: Subject, seed: int) -> Plan:
    """The seed's plan. Raises UsageError for a subject that can't be."""
    choices = subject.swarm
    draw = Draw(seed, choices.knobs)
    system = SYSTEMS.find(subject.system)
    workload = WORKLOADS.find(subject.workload or system.workload)
    nodes = parse_nodes(str(draw.choice("nodes", choices.nodes)))
    layout = draw.choice("layout", choices.layouts)
    if system.layouts is not None and layout != TOGETHER and len(nodes) <= FEW_NODES:
        nodes = parse_nodes(str(system.layouts.best_count(layout, subject.parameters)))
    services = lay_out(system, layout, nodes, subject.parameters)
    serving = len([n for n in nodes if not services or system.serves in services[n]])
    limit_ms = draw.choice("time_limit_ms", choices.time_limit_ms)
    quiet_ms = draw.choice("quiet_ms", choices.quiet_ms)
    plan = Plan(
        name=subject.name or f"{subject.system}-{subject.profile}-{subject.cluster}",
        seed=seed,
        time_limit_ms=limit_ms,
        cluster=ClusterPlan(backend=subject.cluster, nodes=nodes),
        system=_system(subject, system, draw, len(nodes), services),
        workload=_workload(choices, workload, draw, serving),
        gates=msgspec.structs.replace(
            choices.gates, must_stay_up=system.stays_up, orderly_exits=system.orderly_exits
        ),
        faults=_faults(
            subject,
            draw,
            nodes,
            quiet_ms=quiet_ms,
            limit_ms=int(limit_ms * draw.choice("faults_until", choices.faults_until)),
        ),
        quiet_ms=quiet_ms,
        settle_timeout_ms=draw.choice("settle_timeout_ms", choices.settle_timeout_ms),
        observe_interval_ms=draw.choice("observe_interval_ms", choices.observe_interval_ms),
        sim=_world(choices, draw, nodes) if subject.cluster == SIM else None,
    )
    if not isinstance(system.make(plan), RecordsReplicas | InspectsMachines):
        # No look into the nodes says whether the replicas agree.
        gates = msgspec.structs.replace(plan.gates, must_converge=False)
        plan = msgspec.structs.replace(plan, gates=gates)
    plan = _with_moments(subject, plan, draw)
    if serving >= FEW_NODES:
        plan = _with_outage(subject, plan, draw)
    plan = msgspec.structs.replace(plan, requires=requirements_of(plan))
    check_plan(plan)
    return canonical(plan)


def _system(
    subject: Subject, record: SystemRecord, draw: Draw, node_count: int, services: Services
) -> SystemPlan:
    profile = profile_of(record, subject.profile)
    drawn = Drawn() if record.draw is None else record.draw(subject.profile, node_count, draw)
    values = {**profile.parameters, **drawn.parameters, **subject.parameters}
    parameters = to_plan(make_parameters(record.parameters, values))
    policy = {**profile.settings(parameters), **drawn.policy, **subject.policy}
    return SystemPlan(
        name=record.name,
        profile=subject.profile,
        parameters=parameters,
        policy={key: value for key, value in policy.items() if value is not None},
        bugs=tuple(sorted(subject.bugs)),
        services=dict(services),
    )


def fault_kinds(subject: Subject) -> Mapping[str, float]:
    """What is drawn from, by weight."""
    if subject.swarm.schedule is not None:
        return {action.kind: 1 for action in subject.swarm.schedule}
    is_calm = subject.profile == "safe" and {*subject.swarm.promises} <= {"one-at-a-time"}
    usual = _ONE_AT_A_TIME if is_calm else _ANYTHING
    swarm = subject.swarm
    kinds = swarm.faults or {**usual, **swarm.more_faults, **swarm.settled_faults}
    beyond = (*search_of(subject.system, subject.profile).beyond, *subject.left_out)
    return {kind: weight for kind, weight in kinds.items() if kind not in beyond}


def wanted_events(subject: Subject) -> tuple[str, ...]:
    """What a campaign wants to see at least once. Partitions of all shapes are one event."""
    kinds = ["partition" if k.startswith("partition") else k for k in fault_kinds(subject)]
    own = search_of(subject.system, subject.profile).wanted(subject.swarm.knobs)
    return tuple(dict.fromkeys((*own, *(f"fault_{kind}" for kind in kinds))))


def _workload(choices: Swarm, record: WorkloadRecord, draw: Draw, serving: int) -> WorkloadPlan:
    values = to_plan(make_parameters(record.parameters, record.draw(draw)))
    return WorkloadPlan(
        name=record.name,
        rate_hz=draw.range("rate_hz", choices.rate_hz),
        concurrency=serving * draw.choice("clients_a_node", choices.clients_a_node),
        op_timeout_ms=draw.choice("op_timeout_ms", choices.op_timeout_ms),
        parameters=dict(record.complete(values, serving)),
    )


def _world(swarm: Swarm, draw: Draw, nodes: Sequence[str]) -> SimPlan:
    return SimPlan(
        seed=stream_key(draw.seed, "swarm", "world") >> 1,
        network=NetworkPlan(
            latency_us=draw.choice("latency_us", swarm.latency_us),
            jitter_us=draw.choice("jitter_us", swarm.jitter_us),
            link_spread_us=draw.choice("link_spread_us", swarm.link_spread_us),
            loss=draw.choice("loss", swarm.loss),
        ),
        disk=DiskPlan(
            call_us=draw.choice("disk_call_us", swarm.disk_call_us),
            sync_us=draw.choice("disk_sync_us", swarm.disk_sync_us),
            power_loss=draw.choice("power_loss", swarm.power_loss),
        ),
        clocks=tuple(_clocks(swarm, draw, nodes)),
        buggify=draw.choice("buggify", swarm.buggify),
        buggify_on=swarm.buggify_on,
        schedule=_schedule(swarm, draw),
    )


def _schedule(swarm: Swarm, draw: Draw) -> SchedulePlan | msgspec.UnsetType:
    rng = draw.stream("scheduled")
    if rng.random() >= swarm.scheduled:
        return msgspec.UNSET
    return SchedulePlan(
        by=rng.choice(("process", "message")),
        seed=rng.next_u64() >> 1,
        window_us=rng.choice((1000, 5000, 20_000)),
        points=tuple(sorted(rng.below(STEPS) for _ in range(rng.choice((0, 1, 2, 4))))),
    )


def _clocks(swarm: Swarm, draw: Draw, nodes: Sequence[str]) -> list[ClockPlan]:
    """Each node's own offset and drift, within what the run allows; sound clocks are left out."""
    offset_ms = draw.choice("clock_offset_ms", swarm.clock_offset_ms)
    drift_ppm = draw.choice("clock_drift_ppm", swarm.clock_drift_ppm)
    if not offset_ms and not drift_ppm:
        return []
    return [
        ClockPlan(
            node=node,
            offset_ms=round(draw.stream(f"clock {node}").between(-offset_ms, offset_ms), 3),
            drift_ppm=round(draw.stream(f"drift {node}").between(-drift_ppm, drift_ppm), 3),
        )
        for node in nodes
    ]


def _faults(
    subject: Subject, draw: Draw, nodes: Sequence[str], *, quiet_ms: int, limit_ms: int
) -> tuple[FaultAction, ...]:
    """Every fault of the run; the schedule itself where the swarm has one."""
    swarm = subject.swarm
    if swarm.schedule is not None:
        return tuple(_later(action, swarm, draw) for action in swarm.schedule)
    promises = swarm.promises or (_promise(subject.profile),)
    promise = draw.choice("promises", promises) if swarm.promise is None else swarm.promise
    kinds, targets = fault_kinds(subject), swarm.targets
    if swarm.promises and promise == "one-at-a-time":
        kinds = {kind: weight for kind, weight in kinds.items() if not _hits_all(kind)}
    if promise != "one-at-a-time":
        kinds = {kind: weight for kind, weight in kinds.items() if kind not in swarm.settled_faults}
    if promise == "one-or-all":  # a node that can't start again is one more than all
        kinds = {kind: weight for kind, weight in kinds.items() if not _does_not_heal(kind)}
    if swarm.promises and promise != "anything":
        targets = tuple(target for target in targets if is_single(target))
    return draw_faults(
        stream_key(draw.seed, "swarm", "faults") >> 1,
        nodes=nodes,
        time_limit_ms=limit_ms,
        kinds=_some(kinds, swarm, draw),
        promise=promise,
        slots=Slots(
            quiet_ms=quiet_ms,
            interval_ms=int(draw.range("interval_ms", swarm.interval_ms)),
            duration_ms=_durations_ms(swarm, draw),
        ),
        count=swarm.fault_count,
        targets=targets,
    )


def _with_moments(subject: Subject, plan: Plan, draw: Draw) -> Plan:
    """In a share of the runs of the simulation some faults wait for a moment."""
    system = SYSTEMS.find(subject.system).make(plan)
    if subject.cluster != SIM or not subject.swarm.triggered:
        return plan
    names = system if isinstance(system, NamesMessages) else None
    messages = () if names is None else names.message_names
    again = draw_again(draw.seed, plan.faults, plan.cluster.nodes, messages)
    again = draw_beside(draw.seed, again, plan.cluster.nodes)
    if draw.stream("triggered").random() >= subject.swarm.triggered:
        return msgspec.structs.replace(plan, faults=again)
    faults = draw_triggers(
        draw.seed,
        again,
        messages=messages,
        files=() if names is None else names.data_files,
        changes=not any(action.settle for action in plan.faults),
    )
    return msgspec.structs.replace(plan, faults=faults)


def _with_outage(subject: Subject, plan: Plan, draw: Draw) -> Plan:
    """In a share of the runs one node stays away, and nothing else happens: the others must serve
    without it before it is back."""
    swarm, rng = subject.swarm, draw.stream("outage")
    kinds = [kind for kind in OUTAGES if kind in fault_kinds(subject)]
    promise = draw.choice("promises", swarm.promises or (_promise(subject.profile),))
    if rng.random() >= swarm.outages or promise != "one-at-a-time" or not kinds:
        return plan
    node = rng.choice(plan.cluster.nodes)
    outage = FaultAction(
        id=1, at_ms=plan.quiet_ms + CALM_MS, duration_ms=swarm.outage_ms + CALM_MS,
        kind=rng.choice(kinds), target="master", seed=rng.next_u64() >> 1, settle=True,
    )  # fmt: skip
    if rng.random() < OTHERS_SHARE:
        outage = msgspec.structs.replace(outage, target=node, nodes=(node,))
    parameters = {**plan.system.parameters, **swarm.outage_parameters}
    return msgspec.structs.replace(
        plan,
        system=msgspec.structs.replace(plan.system, parameters=parameters),
        time_limit_ms=outage.at_ms + outage.duration_ms + 2 * CALM_MS,
        faults=(outage,),
        gates=msgspec.structs.replace(plan.gates, max_rto_ms=swarm.outage_ms),
    )


def _hits_all(kind: str) -> bool:
    return any(record.hits_all for record in members(kind))


def _does_not_heal(kind: str) -> bool:
    return any(record.does_not_heal for record in members(kind))


def _later(action: FaultAction, swarm: Swarm, draw: Draw) -> FaultAction:
    if action.id not in swarm.late_ms:
        return action
    late_ms = draw.range(f"late {action.id}", Range(0, swarm.late_ms[action.id], STEP_MS))
    return msgspec.structs.replace(action, at_ms=action.at_ms + int(late_ms))


def _promise(profile: str) -> Promise:
    """``safe`` loses nothing as long as one node at a time is taken."""
    return "one-at-a-time" if profile == "safe" else "anything"


def _durations_ms(swarm: Swarm, draw: Draw) -> tuple[int, int]:
    shortest_ms = int(draw.range("shortest_ms", swarm.shortest_ms))
    return shortest_ms, max(shortest_ms, int(draw.range("longest_ms", swarm.longest_ms)))


def _some(weights: Mapping[str, float], swarm: Swarm, draw: Draw) -> dict[str, float]:
    """The kinds that this run has: each with the swarm's share, at least one."""
    chosen = {
        kind: weight
        for kind, weight in weights.items()
        if draw.stream(f"has {kind}").random() < swarm.fault_share
    }
    if chosen:
        return chosen
    kind = draw.choice("one kind", tuple(weights))
    return {kind: weights[kind]}
