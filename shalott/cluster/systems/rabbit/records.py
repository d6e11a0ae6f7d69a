"""The two systems with mirrored queues as records: our own broker, and RabbitMQ itself."""

from __future__ import annotations

from functools import partial
from typing import Any

from shalott.cluster.nodes import NodeSpec
from shalott.cluster.system import System
from shalott.cluster.systems.known_bugs import check_own_bugs
from shalott.cluster.systems.rabbit.closed_windows import closed_by_policy, closed_by_quorum
from shalott.cluster.systems.rabbit.drawing import draw_mirrored, wanted_in
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


def broker_program(spec: NodeSpec, seed: int, buggify: Any) -> Any:
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
    search={name: Search(wanted=partial(wanted_in, name)) for name in PROFILES},
    calm={"startup_delay_ms": 0, "recovery_delay_ms": 0, "memory_limit_bytes": 0, "vhost": "/"},
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
