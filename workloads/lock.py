"""The lock workload: mutual exclusion by a message that one client at a time may have.

Each lock is a durable mirrored queue with one message (workloads/clients/amqp_lock.py says how it
is acquired and released). It is the classic test of RabbitMQ as a lock service, and the broker is
expected to fail it: mirrors that lose sight of the master give the message out again while its
holder goes on, and no fencing token tells a resource which of two holders came later. What is to
be seen is that the harness finds the two holders, and says how it came to them.

After the heal every lock is acquired and released for a while once more: a lock that nobody gets
has lost its message.
"""

from __future__ import annotations

from functools import partial

from shalott.harness.core.generator.base import Generator
from shalott.harness.core.generator.locks import lock_mix
from shalott.harness.core.op import Invocation
from shalott.harness.core.plan import Plan
from shalott.workloads.base import Workload
from shalott.workloads.clients.amqp_lock import AmqpLockClient
from shalott.workloads.queue import queue_names

AFTERWARDS_MS = 3_000


def lock_generator(plan: Plan, part: str, limit_ms: int) -> Generator:
    workload = plan.workload
    return lock_mix(
        queue_names(workload.queues),
        rate_hz=workload.rate_hz,
        hold_ms=workload.hold_ms,
        limit_ms=limit_ms,
        seed=plan.seed,
        part=part,
    )


def lock_workload(plan: Plan) -> Workload:
    """Everything a run needs to know about this workload."""
    locks = queue_names(plan.workload.queues)
    return Workload(
        name="lock",
        queues=locks,
        port="amqp",
        make_client=partial(AmqpLockClient, op_timeout_ms=plan.workload.op_timeout_ms),
        generator=lock_generator(plan, "load", plan.time_limit_ms),
        final_generator=lock_generator(plan, "afterwards", AFTERWARDS_MS),
        setup=tuple(Invocation(f="create", key=lock) for lock in locks),
    )
