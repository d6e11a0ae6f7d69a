"""The queue workload: concurrent enqueues and dequeues on a few queues, and a drain at the end.

Enqueues are persistent, confirmed and run-unique; dequeues acknowledge by hand (unless the plan
says otherwise, to open a documented window of loss). Whatever was acknowledged to a producer must
come out, at the latest when every node is drained after the heal.
"""

from __future__ import annotations

from functools import partial

from shalott.checkers.queues.habits import Habits
from shalott.harness.core.generator.base import Generator
from shalott.harness.core.generator.combinators import Stagger, TimeLimit
from shalott.harness.core.generator.queues import drain, queue_mix
from shalott.harness.core.plan import Plan, WorkloadPlan
from shalott.harness.core.rng import stream_key
from shalott.workloads.base import Workload
from shalott.workloads.clients.amqp import AmqpQueueClient

QUEUE_PREFIX = "shalott"
DRAIN_LIMIT_MS = 60_000


def queue_names(count: int) -> tuple[str, ...]:
    """shalott.1, shalott.2, ..."""
    return tuple(f"{QUEUE_PREFIX}.{number}" for number in range(1, count + 1))


def client_habits(workload: WorkloadPlan) -> Habits:
    """What its clients do, and do not do, against loss."""
    return Habits(
        manual_acks=workload.ack_mode == "manual",
        durable=workload.durable,
        persistent=workload.persistent,
        confirms=workload.confirms,
    )


def load_generator(plan: Plan) -> Generator:
    """The mix at the plan's rate for the plan's time."""
    keys = queue_names(plan.workload.queues)
    mix = queue_mix(keys, plan.workload.enqueue_fraction, plan.seed)
    paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(plan.seed, "queue", "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * 1_000_000)


def drain_generator(plan: Plan) -> Generator:
    """Until every node says empty twice, at most a minute."""
    keys = queue_names(plan.workload.queues)
    return TimeLimit(drain(plan.cluster.nodes, keys), DRAIN_LIMIT_MS * 1_000_000)


def queue_workload(plan: Plan) -> Workload:
    """Everything a run needs to know about this workload."""
    workload = plan.workload
    return Workload(
        name="queue",
        queues=queue_names(plan.workload.queues),
        port="amqp",
        make_client=partial(
            AmqpQueueClient,
            body_bytes=workload.body_bytes,
            op_timeout_ms=workload.op_timeout_ms,
            habits=client_habits(workload),
        ),
        generator=load_generator(plan),
        final_generator=drain_generator(plan),
    )
