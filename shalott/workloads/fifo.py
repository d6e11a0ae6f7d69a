"""The fifo workload: the queue workload, judged by the order in which messages come out.

A classic queue promises that messages which went in one after the other are delivered in that
order the first time; what is given back may come again at any place. So, by default, only first
deliveries are judged (checkers/queues/fifo_order.py). A run in which nothing was delivered twice
may be judged as a queue that delivers exactly once.

With single consumers each queue is dequeued by one client only (until the drain, which asks every
node), as applications do that care for order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.queues.fifo_order import FifoOrder
from shalott.core.generator import Generator, Stagger, TimeLimit
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.core.queue_generator import queue_mix
from shalott.core.rng import Draw, stream_key
from shalott.workloads import queue
from shalott.workloads.queue import (
    AMQP,
    QueueParameters,
    check_parameters,
    describe_queues,
    one_a_node,
    queue_checkers,
    queue_names,
)
from shalott.workloads.record import Values, Workload, WorkloadRecord


class FifoParameters(QueueParameters, frozen=True, kw_only=True):
    """The queue workload's, who dequeues, and what is judged."""

    consumers: Annotated[
        Literal["competing", "single"], msgspec.Meta(description="competing; single: one a queue.")
    ] = "competing"
    order: Annotated[
        Literal["first-delivery", "exactly-once"], msgspec.Meta(description="What is judged.")
    ] = "first-delivery"


def parameters_of(plan: Plan) -> FifoParameters:
    return make_parameters(FifoParameters, plan.workload.parameters)


def load_generator(plan: Plan) -> Generator:
    workload, parameters = plan.workload, parameters_of(plan)
    mix = queue_mix(
        queue_names(parameters.queues, plan),
        parameters.enqueue_fraction,
        plan.seed,
        threads=workload.concurrency if parameters.consumers == "single" else 0,
        depth=parameters.depth,
    )
    paced = Stagger(mix, 1e9 / workload.rate_hz, stream_key(plan.seed, "fifo", "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * 1_000_000)


def fifo_workload(plan: Plan) -> Workload:
    return replace(queue.queue_workload(plan), name="fifo", generator=load_generator(plan))


def fifo_checkers(plan: Plan) -> Sequence[Checker]:
    """The queue workload's, and the order."""
    exact = Linearizability(model="fifo-queue", fs=("enqueue", "dequeue"), exactly_once=True)
    wanted = (exact,) if parameters_of(plan).order == "exactly-once" else ()
    return (FifoOrder(), *wanted, *queue_checkers(plan))


def draw_parameters(draw: Draw) -> Values:
    return {
        **queue.draw_parameters(draw),
        "consumers": draw.knob("consumers", ("competing",)),
        "order": draw.knob("order", ("first-delivery",)),
    }


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return (
        f"{describe_queues(parameters)},"
        f" {parameters.consumers} consumers, judged by {parameters.order}"
    )


WORKLOAD = WorkloadRecord(
    name="fifo",
    summary="the queue workload, judged by the order in which messages come out",
    needs=(AMQP,),
    parameters=FifoParameters,
    complete=one_a_node,
    check=check_parameters,
    build=fifo_workload,
    checkers=fifo_checkers,
    draw=draw_parameters,
    describe=describe,
    lower=("queues",),
    calm={
        "body_bytes": SMALLEST_BYTES,
        "enqueue_fraction": 1.0,
        "behind": 0,
        "patient": False,
        "copied": False,
    },
)
