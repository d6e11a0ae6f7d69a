"""The fifo workload: the queue workload, judged by the order in which messages come out.

A classic queue promises that messages which went in one after the other are delivered in that
order the first time; what is given back may come again at any place. So, by default, only first
deliveries are judged (checkers/queues/fifo_order.py). A run in which nothing was delivered twice
may be judged as a queue that delivers exactly once.

With single consumers each queue is dequeued by one client only (until the drain, which asks every
node), as applications do that care for order.
"""

from __future__ import annotations

from functools import partial

from shalott.harness.core.generator.base import Generator
from shalott.harness.core.generator.combinators import Stagger, TimeLimit
from shalott.harness.core.generator.queues import queue_mix
from shalott.harness.core.plan import Plan
from shalott.harness.core.rng import stream_key
from shalott.workloads.base import Workload
from shalott.workloads.clients.amqp import AmqpQueueClient
from shalott.workloads.queue import client_habits, drain_generator, queue_names


def load_generator(plan: Plan) -> Generator:
    """The mix at the plan's rate for the plan's time."""
    workload = plan.workload
    single = workload.consumers == "single"
    mix = queue_mix(
        queue_names(workload.queues),
        workload.enqueue_fraction,
        plan.seed,
        threads=workload.concurrency if single else 0,
    )
    paced = Stagger(mix, 1e9 / workload.rate_hz, stream_key(plan.seed, "fifo", "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * 1_000_000)


def fifo_workload(plan: Plan) -> Workload:
    """Everything a run needs to know about this workload."""
    workload = plan.workload
    return Workload(
        name="fifo",
        queues=queue_names(workload.queues),
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
