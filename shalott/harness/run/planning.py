"""From what the user asked for to a plan: profiles, defaults, and every refusal in one sentence.

A ``Request`` holds the command line as it was typed; ``make_plan`` fills in the profile, resolves
names and numbers, draws the fault schedule and checks the whole. Pure but for the backend, which
the caller has chosen before. ``repeat_command`` is the way back. What a workload or a system can be
told beyond that is its own (core/parameters.py) and stands in ``Request.given``.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shalott.cluster.ssh.inventory import SshFlags
from shalott.cluster.systems.record import SYSTEMS, TOGETHER, Services, SystemRecord
from shalott.core.doors import loaded_modules
from shalott.core.errors import UsageError
from shalott.core.parameters import Flag, flags_of, parse_duration_ms, parse_parameters, to_plan
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    PowerLoss,
    SystemPlan,
    WorkloadPlan,
)
from shalott.harness.run.plan_checks import check_plan, requirements_of
from shalott.harness.run.request import (
    DELIVERIES,
    POWER_LOSSES,
    STORE,
    Delivery,
    Request,
    complaints_about,
    hosts_asked_for,
    one_of,
    parse_concurrency,
    parse_nemeses,
    parse_nodes,
    parse_policy,
    profile_of,
)
from shalott.nemesis.fault_words import told_of
from shalott.nemesis.record import FAULTS
from shalott.nemesis.schedule import Rhythm, make_schedule
from shalott.nemesis.sequence import make_sequences
from shalott.nemesis.trigger_words import with_triggers
from shalott.workloads.record import WORKLOADS, WorkloadRecord


def make_plan(request: Request, *, backend: str, seed: int) -> Plan:
    """The whole plan. Raises UsageError with one sentence that says what to change."""
    check_request(request)
    system = SYSTEMS.find(request.system)
    workload = WORKLOADS.find(request.workload or system.workload)
    request = dataclasses.replace(request, profile=request.profile or next(iter(system.profiles)))
    profile = profile_of(system, request.profile)
    nodes = parse_nodes(request.nodes)
    own_system = to_plan(parse_parameters(system.parameters, request.given, profile.parameters))
    services = lay_out(system, request.layout, nodes, own_system)
    serving = len([n for n in nodes if not services or system.serves in services[n]])
    time_limit_ms = parse_duration_ms("--time-limit", request.time_limit)
    faults = make_schedule(
        nemeses=parse_nemeses(request.nemesis),
        nodes=nodes,
        time_limit_ms=time_limit_ms,
        rhythm=Rhythm(
            interval_ms=parse_duration_ms("--nemesis-interval", request.nemesis_interval),
            duration_ms=parse_duration_ms("--nemesis-duration", request.nemesis_duration),
        ),
        targets=request.targets,
        seed=seed,
        told=told_of(request.fault, nodes),
    )
    quiet_ms = Rhythm().quiet_ms
    faults += make_sequences(
        request.sequence,
        nodes=nodes,
        begin_ms=quiet_ms,
        time_limit_ms=time_limit_ms,
        seed=seed,
        first_id=len(faults) + 1,
    )
    faults = _with_told(faults, request)
    rto = request.max_rto
    own = to_plan(parse_parameters(workload.parameters, request.given, {}))
    plan = Plan(
        name=request.name or f"{system.name}-{request.profile}-{workload.name}",
        seed=seed,
        time_limit_ms=time_limit_ms,
        cluster=ClusterPlan(
            backend=backend,
            nodes=nodes,
            leave_running=request.leave_db_running,
            ssh=hosts_asked_for(request) or msgspec.UNSET,
            power_loss=_power_loss(request.power_loss),
        ),
        system=_system_plan(request, system, own_system, services),
        workload=WorkloadPlan(
            name=workload.name,
            rate_hz=request.rate,
            concurrency=parse_concurrency(request.concurrency, serving),
            op_timeout_ms=parse_duration_ms("--op-timeout", request.op_timeout),
            parameters=dict(workload.complete(own, serving)),
        ),
        gates=GatePlan(
            delivery=_delivery(request.delivery),
            max_rto_ms=parse_duration_ms("--max-rto", rto) if rto else None,
            min_acked=request.min_acked,
            must_not_crash=system.stays_up,
            must_stay_up=system.stays_up,
            orderly_exits=system.orderly_exits,
            min_rate_share=request.min_rate_share,
        ),
        faults=with_triggers(faults, request.trigger),
        reread=request.reread or any(spoils_silently(action.kind) for action in faults),
    )
    plan = msgspec.structs.replace(plan, requires=requirements_of(plan))
    check_plan(plan)
    return plan


def _with_told(faults: Sequence[FaultAction], request: Request) -> tuple[FaultAction, ...]:
    """With the parameters that only the command line can say. Raises UsageError for a flag that no
    fault of the plan has."""
    told = {"--upgrade-to": request.upgrade_to}
    said: dict[str, None] = {}
    complete: list[FaultAction] = []
    for action in faults:
        flags = FAULTS.find(action.kind).must_tell
        own = {name: told[flag] for name, flag in flags.items() if told.get(flag)}
        said |= dict.fromkeys(flags.values())
        more = {**action.parameters, **own}
        complete.append(msgspec.structs.replace(action, parameters=more) if own else action)
    for flag, value in told.items():
        if value and flag not in said:
            raise UsageError(f"{flag} is for a fault that --nemesis does not name: leave it out")
    return tuple(complete)


def spoils_silently(kind: str) -> bool:
    """Whether a fault damages what may not be looked at again until a node starts anew."""
    return "damages-data" in FAULTS.find(kind).effects


def _power_loss(word: str) -> PowerLoss | msgspec.UnsetType:
    return next((each for each in POWER_LOSSES if each == word), msgspec.UNSET)


def check_request(request: Request) -> None:
    """What can be seen of each flag for itself. Raises UsageError with all of it at once."""
    wrong = complaints_about(request)
    workload = None
    with wrong.gathered():
        if request.workload:
            workload = WORKLOADS.find(request.workload)
    if SYSTEMS.has(request.system):
        system = SYSTEMS.find(request.system)
        with wrong.gathered():
            if workload is not None or not request.workload:
                _check_given(request, system, workload or WORKLOADS.find(system.workload))
    wrong.tell()


def lay_out(
    system: SystemRecord, layout: str, nodes: Sequence[str], parameters: Mapping[str, object]
) -> Services:
    """What each node hosts; empty if every node hosts the same. Raises UsageError."""
    if layout == TOGETHER:
        return {}
    if system.layouts is None:
        having = [record.name for record in SYSTEMS.records() if record.layouts is not None]
        raise UsageError(
            f"{system.name} has no services to lay out on its nodes: leave out --layout"
            + (f", or use --system {having[0]}" if having else "")
        )
    one_of("layout", layout, (TOGETHER, *system.layouts.names))
    return system.layouts.lay_out(layout, nodes, parameters)


def repeat_command(request: Request, seed: int, store_root: Path = STORE) -> str:
    """The command that plans the same run again: flags that are not defaults, the seed, and where
    runs are kept. ``request.cluster`` should be the one that was chosen: on another machine, or
    after the engine has gone, ``auto`` may mean another plan."""
    words = ["shalott", "test", *(w for name in loaded_modules() for w in ("--load", name))]
    for each in dataclasses.fields(request):
        value = getattr(request, each.name)
        if each.name in ("seed", "given") or value == each.default:
            continue
        if isinstance(value, SshFlags):
            for inner in dataclasses.fields(value):
                if (said := getattr(value, inner.name)) != inner.default:
                    words += flag_words(f"ssh_{inner.name}", said)
            continue
        words += flag_words(each.name, value)
    for name, value in request.given.items():
        words += flag_words(name, value)
    return shlex.join([*words, "--seed", str(seed), *store_words(store_root)])


def store_words(store_root: Path) -> list[str]:
    """The flag that names the store, if it is not the usual one."""
    return [] if store_root == STORE else ["--store", str(store_root)]


def flag_words(name: str, value: object) -> list[str]:
    """An option as it is typed."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, tuple):
        return [word for item in value for word in (flag, str(item))]
    if isinstance(value, bool):
        return [flag if value else f"--no-{name.replace('_', '-')}"]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return [flag, str(value)]


def _system_plan(
    request: Request, system: SystemRecord, own: Mapping[str, object], services: Services
) -> SystemPlan:
    settings = profile_of(system, request.profile).settings(own)
    policy = {**settings, **system.canonical(parse_policy(request.policy))}
    return SystemPlan(
        name=system.name,
        profile=request.profile,
        parameters=dict(own),
        policy={key: value for key, value in policy.items() if value is not None},
        bugs=tuple(sorted(dict.fromkeys(request.bug))),
        services=dict(services),
    )


def _check_given(request: Request, system: SystemRecord, workload: WorkloadRecord) -> None:
    """A flag that neither the workload nor the system has would do nothing. Raises UsageError."""
    known = _names(flags_of(system.parameters)) | _names(flags_of(workload.parameters))
    for name in request.given:
        if name not in known:
            structs = {record.name: record.parameters for record in WORKLOADS.records()}
            structs |= {record.name: record.parameters for record in SYSTEMS.records()}
            owners = [each for each in structs if name in _names(flags_of(structs[each]))]
            raise UsageError(
                f"--{name} is a parameter of {' and '.join(owners) or 'nothing that is here'}, not"
                f" of the workload {workload.name} on {system.name}: leave it out"
            )


def _names(flags: Sequence[Flag]) -> dict[str, None]:
    return {flag.name: None for flag in flags}


def _delivery(name: str) -> Delivery:
    one_of("delivery", name, DELIVERIES)
    delivery: Delivery = msgspec.convert(name, Delivery)
    return delivery
