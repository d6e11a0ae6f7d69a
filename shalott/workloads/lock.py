"""The lock workload: mutual exclusion by a message that one client at a time may have.

Each lock is a durable mirrored queue with one message (clients/amqp_lock.py says how it
is acquired and released). It is the classic test of RabbitMQ as a lock service, and the broker is
expected to fail it: mirrors that lose sight of the master give the message out again while its
holder goes on, and no fencing token tells a resource which of two holders came later. What is to
be seen is that the harness finds the two holders, and says how it came to them.

After the heal every lock is acquired and released for a while once more: a lock that nobody gets
has lost its message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.queues.locks import Locks
from shalott.clients.amqp_channel import guest_of
from shalott.clients.amqp_lock import AmqpLockClient
from shalott.core.drawing import Draw
from shalott.core.generator.base import Generator
from shalott.core.generator.locks import lock_mix
from shalott.core.op import Invocation
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.workloads.base import Workload
from shalott.workloads.judges import run_checkers
from shalott.workloads.queue import AMQP, Count, one_a_node, queue_names
from shalott.workloads.record import Values, WorkloadRecord

AFTERWARDS_MS = 3_000


class LockParameters(msgspec.Struct, frozen=True, kw_only=True):
    queues: Count = 0  # locks
    hold_ms: Annotated[int, msgspec.Meta(ge=1, description="Held so long, on average.")] = 200


def parameters_of(plan: Plan) -> LockParameters:
    return make_parameters(LockParameters, plan.workload.parameters)


def lock_generator(plan: Plan, part: str, limit_ms: int) -> Generator:
    parameters = parameters_of(plan)
    return lock_mix(
        queue_names(parameters.queues),
        rate_hz=plan.workload.rate_hz,
        hold_ms=parameters.hold_ms,
        limit_ms=limit_ms,
        seed=plan.seed,
        part=part,
    )


def lock_workload(plan: Plan) -> Workload:
    """Everything a run needs to know about this workload."""
    locks = queue_names(parameters_of(plan).queues)
    return Workload(
        name="lock",
        queues=locks,
        port="amqp",
        make_client=partial(
            AmqpLockClient,
            op_timeout_ms=plan.workload.op_timeout_ms,
            credentials=guest_of(plan),
        ),
        generator=lock_generator(plan, "load", plan.time_limit_ms),
        final_generator=lock_generator(plan, "afterwards", AFTERWARDS_MS),
        setup=tuple(Invocation(f="create", key=lock) for lock in locks),
    )


def lock_checkers(plan: Plan) -> Sequence[Checker]:
    """Two holders at once, too few of them, lost locks. A lock acquired is two operations."""
    mutex = Linearizability(
        model="owner-lock",
        fs=("acquire", "release"),
        kinds={"overlap": "two-holders", "held": "two-holders"},
    )
    return (mutex, Locks(min_acquired=plan.gates.min_acked // 2), *run_checkers(plan))


def draw_parameters(draw: Draw) -> Values:
    return {"queues": draw.knob("queues", (1, 1, 2, 3)), "hold_ms": draw.knob("hold_ms", (200,))}


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return f"{parameters.queues} locks, each held for {parameters.hold_ms:,} ms on average"


WORKLOAD = WorkloadRecord(
    name="lock",
    summary="mutual exclusion by a message that one client at a time may have",
    needs=(AMQP,),
    parameters=LockParameters,
    complete=one_a_node,
    build=lock_workload,
    checkers=lock_checkers,
    draw=draw_parameters,
    describe=describe,
    lower=("queues",),
)
