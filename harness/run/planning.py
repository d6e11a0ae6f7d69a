"""From what the user asked for to a plan: profiles, defaults, and every refusal in one sentence.

A ``Request`` holds the command line as it was typed; ``make_plan`` fills in the profile, resolves
names and numbers, draws the fault schedule and checks the whole. Pure but for the backend, which
the caller has chosen before. ``repeat_command`` is the way back.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from shalott.broker.base.errors import ConfigError
from shalott.broker.known_bugs import check_bugs, known_bug
from shalott.harness.core.errors import UsageError
from shalott.harness.core.plan import (
    ClusterPlan,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
    nodes_hosting,
)
from shalott.harness.core.profiles import (
    SYSTEMS,
    Operator,
    Profile,
    check_pairing,
    default_workload,
    is_log_system,
    profile_of,
)
from shalott.harness.core.quantities import parse_duration_ms
from shalott.harness.run.select import make_system
from shalott.nemesis.record import check_nemesis, usual_nemeses
from shalott.nemesis.requirements import check_actions, check_system, required_protocols
from shalott.nemesis.schedule import make_schedule
from shalott.workloads.clients.body import SMALLEST_BYTES
from shalott.workloads.registry import recipe_of

BACKENDS = ("auto", "docker", "local", "sim")
PARTITION_MODES = ("ignore", "pause_minority", "autoheal")
OPERATORS = ("restart-minority", "none")
Delivery = Literal["at-least-once", "at-most-once", "exactly-once"]
DELIVERIES = ("at-least-once", "at-most-once", "exactly-once")
OBJECTS = ("policy", "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``shalott test``'s flags, a field for each with its default; times as users write them."""

    workload: str = ""  # "": the system's own
    system: str = "mirrored"
    profile: str = "upstream"
    cluster: str = "auto"
    nodes: str = "3"
    layout: str = "together"
    concurrency: str = "2n"
    rate: float = 200.0
    time_limit: str = "60"
    queues: int = 0  # 0: one for each node
    enqueue_fraction: float = 0.6
    body_bytes: int = 64
    op_timeout: str = "5"
    ack_mode: str = "manual"
    durable: bool = True
    persistent: bool = True
    confirms: bool = True
    hold: str = "200ms"
    consumers: str = "competing"
    order: str = "first-delivery"
    reads: str = "leader"
    objects: str = "policy,queue"
    nemesis: str = "partition,kill"
    nemesis_interval: str = "15"
    nemesis_duration: str = "8"
    targets: str = "one"
    partition_mode: str = ""  # "": the profile's
    net_tick_ms: int = 4000
    policy: tuple[str, ...] = ()
    bug: tuple[str, ...] = ()
    startup_delay: str = ""  # "": none
    operator: str = "restart-minority"
    delivery: str = "at-least-once"
    max_rto: str = ""
    min_acked: int = 50
    seed: int | None = None
    name: str = ""
    leave_db_running: bool = False


def make_plan(request: Request, *, backend: str, seed: int) -> Plan:
    """The whole plan. Raises UsageError with one sentence that says what to change."""
    _one_of("system", request.system, SYSTEMS)
    profile = profile_of(request.system, request.profile)
    workload = request.workload or default_workload(request.system)
    _one_of("cluster", request.cluster, BACKENDS)
    nodes = parse_nodes(request.nodes)
    time_limit_ms = parse_duration_ms("--time-limit", request.time_limit)
    system = _system_plan(request, profile, nodes)
    serving = sum("broker" in system.services.get(node, ("broker",)) for node in nodes)
    faults = make_schedule(
        nemeses=parse_nemeses(request.nemesis),
        nodes=nodes,
        time_limit_ms=time_limit_ms,
        interval_ms=parse_duration_ms("--nemesis-interval", request.nemesis_interval),
        duration_ms=parse_duration_ms("--nemesis-duration", request.nemesis_duration),
        targets=request.targets,
        seed=seed,
    )
    rto = request.max_rto
    plan = Plan(
        name=request.name or f"{request.system}-{request.profile}-{workload}",
        seed=seed,
        time_limit_ms=time_limit_ms,
        cluster=ClusterPlan(backend=backend, nodes=nodes, leave_running=request.leave_db_running),
        system=system,
        workload=WorkloadPlan(
            name=workload,
            rate_hz=request.rate,
            concurrency=parse_concurrency(request.concurrency, serving),
            queues=request.queues or serving,
            enqueue_fraction=request.enqueue_fraction,
            body_bytes=request.body_bytes,
            op_timeout_ms=parse_duration_ms("--op-timeout", request.op_timeout),
            ack_mode=_ack_mode(request.ack_mode),
            durable=request.durable,
            persistent=request.persistent,
            confirms=request.confirms,
            hold_ms=parse_duration_ms("--hold", request.hold),
            consumers=_choice("consumers", request.consumers, "competing", "single"),
            order=_choice("order", request.order, "first-delivery", "exactly-once"),
            reads=_choice("reads", request.reads, "leader", "local"),
            objects=_objects(request.objects),
        ),
        gates=GatePlan(
            delivery=_delivery(request.delivery),
            max_rto_ms=parse_duration_ms("--max-rto", rto) if rto else None,
            min_acked=request.min_acked,
        ),
        faults=faults,
    )
    check_plan(plan)
    return plan


def check_plan(plan: Plan) -> None:
    """What a well-formed plan may still get wrong, stored plans included. Raises UsageError."""
    workload, nodes = plan.workload, plan.cluster.nodes
    recipe_of(workload.name)
    _one_of("system", plan.system.name, SYSTEMS)
    check_pairing(plan.system.name, workload.name)
    _one_of("partition mode", plan.system.partition_mode, PARTITION_MODES)
    _check_bugs(plan.system)
    if is_log_system(plan.system.name):
        from shalott.cluster.systems.rocket.settings import check_settings

        check_settings(plan.system.name, plan.system.policy)
    parse_nodes(",".join(nodes))
    _check_services(plan)
    serving = len(nodes_hosting(plan, "broker"))
    if workload.concurrency < serving:
        raise UsageError(
            f"a concurrency of {workload.concurrency} leaves some of the {serving} nodes without"
            f" a client to drain it: use at least {serving}, or 1n"
        )
    rules = (
        (plan.time_limit_ms > 0, "the time limit must be above 0"),
        (workload.rate_hz > 0, "the rate must be above 0"),
        (workload.queues > 0, "there must be at least one queue"),
        (0 <= workload.enqueue_fraction <= 1, "the enqueue fraction must be between 0 and 1"),
        (workload.body_bytes >= SMALLEST_BYTES, f"a body needs {SMALLEST_BYTES} bytes or more"),
        (workload.op_timeout_ms > 0, "the operation timeout must be above 0"),
        (plan.system.net_tick_ms > 0, "the net tick must be above 0"),
        (plan.system.startup_delay_ms >= 0, "the startup delay must not be below 0"),
        (plan.observe_interval_ms > 0, "the observe interval must be above 0"),
    )
    for holds, sentence in rules:
        if not holds:
            raise UsageError(sentence)
    _check_workload(plan)
    check_actions(plan.faults, nodes)
    if required_protocols(plan.faults):
        check_system(plan.faults, make_system(plan))


def _check_workload(plan: Plan) -> None:
    """What only some workloads can do."""
    workload = plan.workload
    if workload.hold_ms <= 0:
        raise UsageError("a lock must be held for more than 0")
    if (
        workload.name == "metadata"
        and workload.reads == "leader"
        and plan.system.name != "mirrored"
    ):
        raise UsageError(
            f"{plan.system.name} has no reads that the leader of its metadata confirms:"
            " use --reads local"
        )
    careful = workload.ack_mode == "manual" and workload.durable and workload.persistent
    if workload.name == "lock" and not careful:
        raise UsageError(
            "a lock is a durable queue with a persistent message that nobody acknowledges: leave"
            " out --ack-mode, --no-durable and --no-persistent"
        )
    _objects(",".join(workload.objects))


def parse_nodes(text: str) -> tuple[str, ...]:
    """Names separated by commas, or how many: n1, n2, ..."""
    if text.isdigit():
        if int(text) < 1:
            raise UsageError("a cluster needs at least one node")
        return tuple(f"n{number}" for number in range(1, int(text) + 1))
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
            raise UsageError(
                f"--nodes {text}: {name!r} can't name a node; use a count, or names of lower-case"
                " letters, digits and '-', separated by commas"
            )
    if len(set(names)) != len(names):
        raise UsageError(f"--nodes {text}: a cluster needs nodes with different names")
    return names


def parse_concurrency(text: str, node_count: int) -> int:
    """A number, or a number of clients for each node: 2n."""
    found = re.fullmatch(r"(\d+)(n?)", text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"--concurrency {text}: give a number of clients, such as 6 or 2n")
    return int(found[1]) * (node_count if found[2] else 1)


def parse_nemeses(text: str) -> tuple[str, ...]:
    """Names separated by commas, none, or all."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if names == ("all",):
        return usual_nemeses()
    for name in names:
        check_nemesis(name, "none", "all")
    return tuple(name for name in names if name != "none")


def parse_policy(settings: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE, the value as JSON if it is JSON, else as text; KEY= takes the key away."""
    policy: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--policy {setting}: give KEY=VALUE, such as ha-sync-mode=automatic")
        try:
            policy[key] = msgspec.json.decode(value) if value else None
        except msgspec.DecodeError:
            policy[key] = value
    return policy


def repeat_command(request: Request, seed: int) -> str:
    """The command that plans the same run again: flags that are not defaults, and the seed."""
    words = ["shalott", "test"]
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        if field.name == "seed" or value == field.default:
            continue
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(value, tuple):
            words += [word for item in value for word in (flag, item)]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{field.name.replace('_', '-')}")
        else:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join([*words, "--seed", str(seed)])


def _check_services(plan: Plan) -> None:
    from shalott.cluster.systems.rocket.layout import check_services

    check_services(plan.system.name, plan.cluster.nodes, plan.system.services)


def _system_plan(request: Request, profile: Profile, nodes: Sequence[str]) -> SystemPlan:
    from shalott.cluster.systems.rocket.layout import LAYOUTS, lay_out

    _one_of("layout", request.layout, LAYOUTS)
    mode = request.partition_mode or profile.partition_mode
    _one_of("partition mode", mode, PARTITION_MODES)
    _one_of("operator", request.operator, OPERATORS)
    if is_log_system(request.system) and request.partition_mode:
        raise UsageError(
            f"{request.system} has no partition modes: leave out --partition-mode, and see its"
            " settings, such as --policy ha.min_in_sync_replicas=2"
        )
    policy = {**profile.policy, **parse_policy(request.policy)}
    delay = request.startup_delay
    return SystemPlan(
        name=request.system,
        profile=request.profile,
        partition_mode=mode,
        net_tick_ms=request.net_tick_ms,
        policy={key: value for key, value in policy.items() if value is not None},
        bugs=tuple(sorted(dict.fromkeys(request.bug))),
        startup_delay_ms=parse_duration_ms("--startup-delay", delay) if delay else 0,
        operator=_operator(request),
        services=lay_out(request.system, request.layout, nodes),
    )


def _operator(request: Request) -> Operator:
    """Nobody mends a partition where no node parts for ever."""
    if request.operator == "none" or is_log_system(request.system):
        return "none"
    return "restart-minority"


def _check_bugs(system: SystemPlan) -> None:
    """Bugs that the catalogue has, in a system that has them."""
    if system.name != "mirrored" and system.startup_delay_ms:
        raise UsageError(
            "only the mirrored system has a startup delay: leave it out, or use --system mirrored"
        )
    try:
        check_bugs(system.bugs)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    for bug in map(known_bug, system.bugs):
        if system.name not in bug.systems:
            raise UsageError(
                f"{bug.id} is a bug of {' and '.join(bug.systems)}, not of {system.name}: leave it"
                f" out, or use --system {bug.systems[0]}"
            )


def _delivery(name: str) -> Delivery:
    _one_of("delivery", name, DELIVERIES)
    delivery: Delivery = msgspec.convert(name, Delivery)
    return delivery


def _choice(what: str, name: str, *known: str) -> Any:
    """``name``, which a field of the plan lists as well."""
    _one_of(what, name, known)
    return name


def _objects(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names or ("none",):
        _one_of("kind of object", name, OBJECTS)
    return names


def _ack_mode(name: str) -> Literal["manual", "auto"]:
    _one_of("acknowledgement mode", name, ("manual", "auto"))
    return "auto" if name == "auto" else "manual"


def _one_of(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UsageError(f"unknown {what} {name}: choose one of {', '.join(known)}")
