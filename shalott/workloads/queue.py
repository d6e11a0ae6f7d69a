"""The queue workload: concurrent enqueues and dequeues on a few queues, and a drain at the end.

Enqueues are persistent, confirmed and run-unique; dequeues acknowledge by hand (unless the plan
says otherwise, to open a documented window of loss). What was acknowledged to a producer must
come out, at the latest when every node is drained after the heal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.queues.guarantees import ClientGuarantees
from shalott.clients.amqp.channel import guest_of
from shalott.clients.amqp.queue_client import AmqpQueueClient
from shalott.core.errors import UsageError
from shalott.core.generator import Generator, Stagger, TimeLimit
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.core.queue_generator import drain, queue_mix
from shalott.core.rng import Draw, Range, stream_key
from shalott.workloads.record import Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import message_checkers

AMQP = "amqp-0-9-1"  # with queues that the harness declares

QUEUE_PREFIX = "shalott"
DRAIN_LIMIT_MS = 60_000

Count = Annotated[int, msgspec.Meta(ge=0, description="How many; 0: one a node.")]
Share = Annotated[float, msgspec.Meta(ge=0, le=1, description="Share of enqueues, or writes.")]
Size = Annotated[int, msgspec.Meta(ge=SMALLEST_BYTES, description="Size of a message.")]


class QueueParameters(msgspec.Struct, frozen=True, kw_only=True):
    """``depth`` and ``ack_after_ms`` give faults something to lose: messages that wait in a queue,
    and messages that a client has not acknowledged.

    The defaults of the last four are what RabbitMQ's manual asks of who must not lose messages.
    Each of the others opens a documented window of loss: dequeues that are not acknowledged (L5),
    queues or messages that a restart of every node forgets (L6), and publishes without confirms
    (L7). Without confirms an enqueue is ok once it was written and a synchronous call on the same
    channel came back: its channel has taken it, and nothing was promised.
    """

    queues: Count = 0
    enqueue_fraction: Share = 0.6
    body_bytes: Size = 64
    depth: Annotated[
        int, msgspec.Meta(ge=0, description="Messages that each queue is to hold; 0: no matter.")
    ] = 0
    ack_after_ms: Annotated[
        int, msgspec.Meta(ge=0, description="A message is acknowledged so long after it came.")
    ] = 0
    ack_mode: Annotated[
        Literal["manual", "auto"],
        msgspec.Meta(description="manual; auto: a delivered message is not acknowledged."),
    ] = "manual"
    durable: Annotated[bool, msgspec.Meta(description="Queues outlive their nodes.")] = True
    persistent: Annotated[bool, msgspec.Meta(description="Messages outlive their nodes.")] = True
    confirms: Annotated[bool, msgspec.Meta(description="Await a confirm of each enqueue.")] = True


def parameters_of(plan: Plan) -> QueueParameters:
    return make_parameters(QueueParameters, plan.workload.parameters)


def one_a_node(values: Values, serving: int) -> Values:
    """``queues`` = 0 means: one for each node that serves clients."""
    return {**values, "queues": values.get("queues") or serving}


def queue_names(count: int) -> tuple[str, ...]:
    """shalott.1, shalott.2, ..."""
    return tuple(f"{QUEUE_PREFIX}.{number}" for number in range(1, count + 1))


def client_guarantees(parameters: QueueParameters) -> ClientGuarantees:
    """What its clients do, and do not do, against loss."""
    return ClientGuarantees(
        manual_acks=parameters.ack_mode == "manual",
        durable=parameters.durable,
        persistent=parameters.persistent,
        confirms=parameters.confirms,
    )


def load_generator(plan: Plan) -> Generator:
    parameters = parameters_of(plan)
    mix = queue_mix(
        queue_names(parameters.queues),
        parameters.enqueue_fraction,
        plan.seed,
        depth=parameters.depth,
    )
    paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(plan.seed, "queue", "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * 1_000_000)


def drain_generator(plan: Plan, nodes: Sequence[str] | None = None) -> Generator:
    """Until every node says empty twice, at most a minute. ``nodes``: all, if not given."""
    keys = queue_names(parameters_of(plan).queues)
    asked = plan.cluster.nodes if nodes is None else nodes
    return TimeLimit(drain(asked, keys), DRAIN_LIMIT_MS * 1_000_000)


def queue_workload(plan: Plan) -> Workload:
    parameters = parameters_of(plan)
    return Workload(
        name="queue",
        queues=queue_names(parameters.queues),
        port="amqp",
        make_client=partial(
            AmqpQueueClient,
            body_bytes=parameters.body_bytes,
            op_timeout_ms=plan.workload.op_timeout_ms,
            ack_after_ms=parameters.ack_after_ms,
            guarantees=client_guarantees(parameters),
            credentials=guest_of(plan),
        ),
        generator=load_generator(plan),
        final_generator=drain_generator(plan),
        final_at=partial(drain_generator, plan),
    )


def queue_checkers(plan: Plan) -> Sequence[Checker]:
    return message_checkers(plan, client_guarantees(parameters_of(plan)))


def draw_parameters(draw: Draw) -> Values:
    """What a careful client does; a search may open the windows of loss by name."""
    return {
        "queues": draw.knob("queues", (1, 1, 2, 3)),
        "enqueue_fraction": draw.knob("enqueue_fraction", Range(0.5, 0.8, 0.05)),
        "body_bytes": draw.knob("body_bytes", (12, 64, 64, 256, 1024, 8192)),
        "depth": draw.knob("depth", (0,)),
        "ack_after_ms": draw.knob("ack_after_ms", (0,)),
        "ack_mode": draw.knob("ack_mode", ("manual",)),
        "durable": draw.knob("durable", (True,)),
        "persistent": draw.knob("persistent", (True,)),
        "confirms": draw.knob("confirms", (True,)),
    }


def check_parameters(plan: Plan) -> None:
    """Raises UsageError if no dequeue could be answered in time."""
    delay_ms, timeout_ms = parameters_of(plan).ack_after_ms, plan.workload.op_timeout_ms
    if delay_ms >= timeout_ms:
        raise UsageError(
            f"a message would be acknowledged after {delay_ms} ms, but an operation is given up"
            f" after {timeout_ms} ms: choose a shorter --ack-after or a longer --op-timeout"
        )


def describe_queues(parameters: QueueParameters) -> str:
    """What the workloads of queues have in common, for the report."""
    held = f" of {parameters.depth} messages" if parameters.depth else ""
    late = f", acknowledged after {parameters.ack_after_ms} ms" if parameters.ack_after_ms else ""
    return f"{parameters.queues} queues{held}, {parameters.enqueue_fraction:.0%} enqueues{late}"


def describe(plan: Plan) -> str:
    return describe_queues(parameters_of(plan))


WORKLOAD = WorkloadRecord(
    name="queue",
    summary="enqueues and dequeues on a few queues, drained at the end",
    needs=(AMQP,),
    parameters=QueueParameters,
    complete=one_a_node,
    check=check_parameters,
    build=queue_workload,
    checkers=queue_checkers,
    draw=draw_parameters,
    describe=describe,
    lower=("queues",),
    calm={"body_bytes": SMALLEST_BYTES, "enqueue_fraction": 1.0},
)
