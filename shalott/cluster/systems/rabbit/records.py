"""The two systems with mirrored queues as records: our own broker, and RabbitMQ itself.

What a search draws of ours keeps what a profile promises. The windows of loss that a plan's
settings rule out are those of docs/evidence/loss-windows.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from shalott.cluster.nodes import NodeSpec
from shalott.cluster.system import System
from shalott.cluster.systems.own_broker import check_own_bugs
from shalott.cluster.systems.rabbit.parameters import MirroredParameters, OriginalParameters
from shalott.cluster.systems.rabbit.quorum import CLOSED, check_quorum, is_quorum
from shalott.cluster.systems.record import (
    Drawn,
    Footprint,
    Parameters,
    Profile,
    Search,
    SystemRecord,
)
from shalott.core.plan import Plan, SystemPlan
from shalott.core.rng import Draw

if TYPE_CHECKING:
    from shalott.cluster.sim.buggify import Buggify
    from shalott.cluster.sim.machine import Program


BENIGN_SYNC_BATCHES = (1, 16, 4096)  # ha-sync-batch-size: how much travels at once, no promise
# A message takes 600 bytes and its own: the lowest stops publishers at a few dozen.
MEMORY_LIMITS = (0, 0, 8000, 20_000, 60_000)
RECOVERY_DELAYS_MS = (0, 0, 0, 100, 500)
# What an operator does to queues and nodes, seldom beside the usual faults.
OPERATORS_FAULTS = {"move-mirrors": 1.0, "replace-node": 0.5, "kill-redeclare": 0.5}
# A confirm means every synchronised disk, so ``safe`` outlasts the loss of all nodes at once.
SAFE_PROMISES = ("one-at-a-time", "one-or-all")
# A run writes some dozens of rows: with few, nodes that were away are sent a snapshot.
SNAPSHOT_ENTRIES = (1000, 1000, 20, 5)
# All queues are in one; a name may have what a path has to escape.
VHOSTS = ("/", "/", "/", "orders", "a/b c%2f\u00fc")
ALL_MODES = ("ignore", "pause_minority", "autoheal")
SAFE_MODES = ("pause_minority",)  # ``safe`` promises something under this one only

# What every search wants to see, and what only some partition modes can show.
ALWAYS = (
    *("promoted", "not_promoted", "demoted", "sync_complete", "sync_interrupted", "partition"),
    *("rejoined_and_wiped", "client_ok", "client_fail", "client_info", "redelivered"),
)
BY_MODE: Mapping[str, Sequence[str]] = {
    "pause_minority": ("paused", "resumed"),
    "autoheal": ("autoheal", "autoheal_lost"),
    "ignore": ("operator_restart",),
}


# Limits that no run comes to: nothing may change by them but what is stored and copied.
LIMITS: Sequence[Parameters] = (
    {},
    {},
    {"message-ttl": 3_600_000},
    {"message-ttl": 3_600_000, "max-length": 1_000_000, "max-length-bytes": 1 << 40},
)


def draw_mirrored(profile: str, node_count: int, draw: Draw) -> Drawn:
    return Drawn(
        parameters={
            "partition_mode": draw.knob("partition_modes", modes_of(profile)),
            "net_tick_ms": draw.knob("net_tick_ms", (1000, 2000, 4000)),
            "startup_delay_ms": draw.knob("startup_delay_ms", (0, 0, 0, 200, 1000)),
            "recovery_delay_ms": draw.knob("recovery_delay_ms", RECOVERY_DELAYS_MS),
            "memory_limit_bytes": draw.knob("memory_limit_bytes", MEMORY_LIMITS),
            "snapshot_entries": draw.knob("snapshot_entries", SNAPSHOT_ENTRIES),
            "operator": draw.knob("operators", ("restart-minority",)),
            "vhost": draw.knob("vhosts", VHOSTS),
        },
        policy={
            **draw.knob("policies", _policies(profile, node_count)),
            **draw.knob("limits", LIMITS),
        },
    )


def modes_of(profile: str) -> tuple[str, ...]:
    return SAFE_MODES if profile == "safe" else ALL_MODES


def wanted_in(profile: str, knobs: Parameters) -> tuple[str, ...]:
    """What a campaign of these knobs wants to see."""
    modes = knobs.get("partition_modes", modes_of(profile))
    return (*ALWAYS, *(name for mode in modes for name in BY_MODE[mode]))


def _policies(profile: str, node_count: int) -> tuple[Parameters, ...]:
    """Variations that keep what the profile promises."""
    some = node_count // 2 + 1
    spread: list[dict[str, object]] = [{}, {}, {"ha-mode": "exactly", "ha-params": some}]
    if profile == "safe":
        batches = [{"ha-sync-batch-size": size} for size in BENIGN_SYNC_BATCHES]
        lazy: list[dict[str, object]] = [{}, {}, {"queue-mode": "lazy"}]
        return tuple(
            {**one, **batch, **mode} for one in spread for batch in batches for mode in lazy
        )
    others: list[dict[str, object]] = [
        {},
        {"ha-sync-mode": "automatic"},
        {"ha-promote-on-failure": "when-synced"},
        {"ha-promote-on-shutdown": "always"},
    ]
    return tuple({**one, **other} for one in spread for other in others)


def closed_by_policy(plan: Plan) -> Iterator[str]:
    """What RabbitMQ's manual says of its policies."""
    policy = plan.system.policy
    if policy.get("ha-promote-on-failure") == "when-synced":
        yield from ("L1", "L2", "L4")
    if policy.get("ha-promote-on-shutdown", "when-synced") == "when-synced":
        yield "L8"  # that is the default


def closed_by_quorum(plan: Plan) -> Iterator[str]:
    """What ours does beyond that: a node out of the majority confirms nothing, and a queue comes
    back from its last recorded master's disk only (docs/explanation/limits.md)."""
    yield from closed_by_policy(plan)
    if plan.system.parameters.get("partition_mode") == "pause_minority":
        yield from ("L3", "L11", "L12")


AMQP = "amqp-0-9-1"
MANAGEMENT = "rabbitmq-management"
LEADER_READS = "shalott-leader-reads"  # reads that the leader of the tables confirms

# upstream: what RabbitMQ does when one only asks for mirrors: manual synchronisation, promotion of
# an unsynchronised mirror on failure, no handling of partitions.
PROFILES = {
    "upstream": Profile(parameters={"partition_mode": "ignore"}, policy={"ha-mode": "all"}),
    "safe": Profile(
        parameters={"partition_mode": "pause_minority"},
        policy={
            "ha-mode": "all",
            "ha-sync-mode": "automatic",
            "ha-promote-on-failure": "when-synced",
            "ha-promote-on-shutdown": "when-synced",
        },
    ),
}


def make_mirrored(plan: Plan) -> System:
    from shalott.cluster.systems.rabbit.mirrored import MirroredSystem

    durable = bool(plan.workload.parameters.get("durable", True))
    return MirroredSystem(plan.system, plan.seed, durable=durable)


def make_rabbitmq(plan: Plan) -> System:
    from shalott.cluster.systems.rabbit.rabbitmq import RabbitmqSystem

    return RabbitmqSystem(plan.system, durable=bool(plan.workload.parameters.get("durable", True)))


def broker_program(spec: NodeSpec, seed: int, buggify: Buggify) -> Program:
    from shalott.cluster.systems.broker_program import broker_program

    return broker_program(spec, seed, buggify)


def check_original(plan: Plan) -> None:
    check_own_bugs(plan.system)
    check_quorum(plan)


def carry(plan: SystemPlan, asked: Parameters) -> Drawn | None:
    """Of our rebuild: what both can be told."""
    if plan.name != "mirrored":
        return None
    known = OriginalParameters.__struct_fields__
    parameters = {name: value for name, value in plan.parameters.items() if name in known}
    return Drawn(parameters=parameters, policy=plan.policy)


def closed_by_original(plan: Plan) -> tuple[str, ...]:
    return CLOSED if is_quorum(plan.system.parameters) else tuple(closed_by_policy(plan))


def notices_after_ms(plan: Plan) -> float:
    """Erlang's kernel looks four times a net tick, so silence is noticed after 0.75 to 1.25 of it
    (kernel(6), net_ticktime); our own broker after one."""
    return 1.25 * float(plan.system.parameters.get("net_tick_ms", 4000))


def _searched(profile: str) -> dict[str, object]:
    """In some runs under ``safe`` clients use transactions."""
    own: dict[str, object] = {}
    if profile == "safe":
        own = {"promises": SAFE_PROMISES, "transactions": (False, False, True)}
        calm = {"memory_limit_bytes": 0}  # an alarm stops publishers as well
        own |= {"outages": 0.12, "outage_ms": 15_000, "outage_parameters": calm}
    return {"more_faults": OPERATORS_FAULTS, **own}


MIRRORED = SystemRecord(
    name="mirrored",
    summary="our classic mirrored queues, as RabbitMQ 3.10 has them",
    make=make_mirrored,
    speaks=(AMQP, MANAGEMENT, LEADER_READS),
    workload="queue",
    profiles=PROFILES,
    parameters=MirroredParameters,
    worlds=("docker", "local", "ssh", "sim"),
    check=lambda plan: check_own_bugs(plan.system),
    closes=lambda plan: tuple(closed_by_quorum(plan)),
    notices_after_ms=notices_after_ms,
    program=broker_program,
    draw=draw_mirrored,
    search={
        name: Search(settings=_searched(name), wanted=partial(wanted_in, name)) for name in PROFILES
    },
    calm={
        "startup_delay_ms": 0,
        "recovery_delay_ms": 0,
        "memory_limit_bytes": 0,
        "snapshot_entries": 1000,
        "vhost": "/",
    },
    stays_up=True,
)
RABBITMQ = SystemRecord(
    name="rabbitmq",
    summary="RabbitMQ 3.10 itself, from Debian's package",
    make=make_rabbitmq,
    speaks=(AMQP, MANAGEMENT),
    workload="queue",
    profiles=PROFILES,
    parameters=OriginalParameters,
    worlds=("docker", "ssh"),
    check=check_original,
    stays_up=True,
    orderly_exits=(0,),  # when the others are late at boot; it is started again
    closes=closed_by_original,
    notices_after_ms=notices_after_ms,
    footprint=Footprint(memory_mib=200, cpus=0.35),
    carry=carry,
)
