"""The queue workload: concurrent enqueues and dequeues on a few queues, and a drain at the end.

Its clients speak AMQP to brokers whose queues the harness declares, and on each other system do
what that system's record says (``Queues``, cluster/systems/record.py).

Enqueues are persistent, confirmed and run-unique; dequeues acknowledge by hand (unless the plan
says otherwise, to open a documented window of loss). What was acknowledged to a producer must
come out, at the latest when every node is drained after the heal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees
from shalott.checkers.queues.loss_windows import WINDOWS
from shalott.clients.amqp.channel import guest_of
from shalott.clients.amqp.queue_client import AmqpQueueClient, Habits
from shalott.clients.amqp.transactional_client import TransactionalQueueClient
from shalott.clients.queued_client import QueuedClient
from shalott.cluster.systems.record import QUEUES, SYSTEMS, Queues, serving_nodes
from shalott.core.client import Client, MakeClient
from shalott.core.errors import UsageError
from shalott.core.generator import Generator, Stagger, TimeLimit
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.parameters import make_parameters
from shalott.core.plan import GatePlan, Plan, names_prefix
from shalott.core.queue_generator import drain, queue_mix
from shalott.core.rng import Draw, Range, stream_key
from shalott.workloads.programs import queues_by
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
    behind: Annotated[
        int,
        msgspec.Meta(ge=0, le=9, description="Publishes behind each enqueue that nobody gets."),
    ] = 0
    patient: Annotated[bool, msgspec.Meta(description="Stays connected without a confirm.")] = False
    copied: Annotated[bool, msgspec.Meta(description="Enqueues by the headers CC and BCC.")] = False
    transactions: Annotated[bool, msgspec.Meta(description="Each operation is a transaction.")] = (
        False
    )


def parameters_of(plan: Plan) -> QueueParameters:
    return make_parameters(QueueParameters, plan.workload.parameters)


def one_a_node(values: Values, serving: int) -> Values:
    """``queues`` = 0 means: one for each node that serves clients."""
    return {**values, "queues": values.get("queues") or serving}


def queue_names(count: int, plan: Plan) -> tuple[str, ...]:
    """shalott.1, shalott.2, ...; in a cluster of others with the run's own prefix."""
    first = f"{names_prefix(plan)}{QUEUE_PREFIX}"
    return tuple(f"{first}.{number}" for number in range(1, count + 1))


def client_guarantees(parameters: QueueParameters) -> ClientGuarantees:
    """What its clients do, and do not do, against loss."""
    return ClientGuarantees(
        manual_acks=parameters.ack_mode == "manual",
        durable=parameters.durable,
        persistent=parameters.persistent,
        confirms=parameters.confirms or parameters.transactions,
    )


def load_generator(plan: Plan) -> Generator:
    parameters = parameters_of(plan)
    mix = queue_mix(
        queue_names(parameters.queues, plan),
        parameters.enqueue_fraction,
        plan.seed,
        depth=parameters.depth,
    )
    paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(plan.seed, "queue", "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * 1_000_000)


def drain_generator(plan: Plan, nodes: Sequence[str] | None = None) -> Generator:
    """Until every node says empty twice, at most a minute. ``nodes``: all that clients use, if not
    given."""
    keys = queue_names(parameters_of(plan).queues, plan)
    asked = clients_nodes(plan) if nodes is None else nodes
    return TimeLimit(drain(asked, keys), DRAIN_LIMIT_MS * 1_000_000)


def clients_nodes(plan: Plan) -> tuple[str, ...]:
    """A system that is not here any more, as of a stored run, had clients everywhere."""
    return serving_nodes(plan) if SYSTEMS.has(plan.system.name) else plan.cluster.nodes


def queues_of(plan: Plan) -> Queues | None:
    """How the plan's system has queues; None: by AMQP, as it speaks no "queues", or says so.

    Raises UsageError: not under this plan.
    """
    name = plan.system.name
    record = SYSTEMS.find(name) if SYSTEMS.has(name) else None
    if record is not None and plan.workload.client:
        return queues_by(plan, record.queues(plan))
    if record is None or QUEUES not in record.speaks:
        return None
    found = record.queues(plan)
    if found is None and AMQP not in record.speaks:
        raise UsageError(f"{name} has no queues as it is set here")
    return found


def queue_workload(plan: Plan) -> Workload:
    parameters, ways = parameters_of(plan), queues_of(plan)
    return Workload(
        name="queue",
        queues=queue_names(parameters.queues, plan),
        port="amqp" if ways is None else ways.port,
        make_client=_amqp_clients(plan) if ways is None else _clients(plan, ways),
        generator=load_generator(plan),
        final_generator=drain_generator(plan, serving_nodes(plan)),
        nodes=serving_nodes(plan),
        final_at=partial(drain_generator, plan),
    )


def _amqp_clients(plan: Plan) -> MakeClient:
    parameters = parameters_of(plan)
    return partial(
        TransactionalQueueClient if parameters.transactions else AmqpQueueClient,
        body_bytes=parameters.body_bytes,
        op_timeout_ms=plan.workload.op_timeout_ms,
        habits=Habits(
            parameters.ack_after_ms, parameters.behind, parameters.patient, parameters.copied
        ),
        guarantees=client_guarantees(parameters),
        credentials=guest_of(plan),
        transactions=parameters.transactions,
    )


def _clients(plan: Plan, ways: Queues) -> MakeClient:
    parameters = parameters_of(plan)

    def make_client(host: str, port: int) -> Client:
        return QueuedClient(
            ways.make_client(host, port, timeout_ms=plan.workload.op_timeout_ms),
            body_bytes=parameters.body_bytes,
            timeout_ms=plan.workload.op_timeout_ms,
            settles=ways.acknowledges,
            ack_after_ms=parameters.ack_after_ms,
        )

    return make_client


def queue_checkers(plan: Plan) -> Sequence[Checker]:
    """Of queues that are not ours: by what their system promises, and without the windows of loss
    that RabbitMQ's manual names for mirrored queues."""
    guarantees, ways = client_guarantees(parameters_of(plan)), queues_of(plan)
    if ways is None:
        return message_checkers(plan, guarantees)
    asked = plan.gates.delivery
    delivery = ways.delivery if asked == GatePlan().delivery else asked
    return message_checkers(
        msgspec.structs.replace(plan, gates=msgspec.structs.replace(plan.gates, delivery=delivery)),
        replace(guarantees, manual_acks=ways.acknowledges, closed=tuple(WINDOWS)),
    )


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
        "transactions": draw.knob("transactions", (False,)),
        "behind": draw.knob("behind", (0, 0, 3, 5)),
        "patient": draw.knob("patient", (False, True)),
        "copied": draw.knob("copied", (False, False, True)),
    }


def check_parameters(plan: Plan) -> None:
    """Raises UsageError if no dequeue could be answered in time, or if clients that speak no AMQP
    are to be careless in its ways."""
    parameters = parameters_of(plan)
    is_amqp = parameters.transactions or client_guarantees(parameters) != CAREFUL
    if queues_of(plan) is not None and is_amqp:
        raise UsageError(
            "--ack-mode, --durable, --persistent, --confirms and --transactions are AMQP's: set"
            f" what {plan.system.name} calls them"
        )
    delay_ms, timeout_ms = parameters.ack_after_ms, plan.workload.op_timeout_ms
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
    parameters = parameters_of(plan)
    return describe_queues(parameters) + (", transactions" if parameters.transactions else "")


WORKLOAD = WorkloadRecord(
    name="queue",
    summary="enqueues and dequeues on a few queues, drained at the end",
    needs=(AMQP,),
    or_needs=(QUEUES,),
    parameters=QueueParameters,
    complete=one_a_node,
    check=check_parameters,
    build=queue_workload,
    checkers=queue_checkers,
    draw=draw_parameters,
    describe=describe,
    lower=("queues",),
    calm={
        "body_bytes": SMALLEST_BYTES,
        "enqueue_fraction": 1.0,
        "transactions": False,
        "behind": 0,
        "patient": False,
        "copied": False,
    },
)
