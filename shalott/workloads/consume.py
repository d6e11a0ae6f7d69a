"""The consume workload: applications that subscribe, acknowledge some, and die with the rest.

Publishers send with confirms to queues and exchanges; consumers come and go, and settle what they
get at once, late, out of order, several at a time, or never (docs/reference/consumers.md). After
the heal consumers go on until their queues are empty; then they leave, and what is left is taken
from every queue at every node, those of dead letters and of what had no route too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shalott.checkers.checker import Checker
from shalott.checkers.consumers.consume_rules import ConsumeRules
from shalott.checkers.consumers.consumer_checkers import consumer_checkers
from shalott.clients.amqp.channel import guest_of
from shalott.clients.amqp.consumer_client import EXCHANGE_PREFIX, ConsumerClients
from shalott.clients.amqp_libraries.library_client import make_clients
from shalott.core.consumer_generator import (
    Churn,
    ConsumeOut,
    DeclareQueues,
    Fates,
    StopConsumers,
    consumer_mix,
)
from shalott.core.generator import Generator, Phases, Stagger, TimeLimit
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.op import Invocation
from shalott.core.plan import Plan
from shalott.core.queue_generator import drain
from shalott.core.rng import Draw, Range, stream_key
from shalott.core.subscription import Habits
from shalott.workloads.consume_parameters import (
    USUAL_KINDS,
    ConsumeParameters,
    Topology,
    check_parameters,
    parameters_of,
    topology_of,
)
from shalott.workloads.record import Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import run_checkers

AMQP = "amqp-0-9-1"
NS_PER_MS = 1_000_000
STUCK_AFTER_MS = 10_000
# Consumers come, settle and go in a second or two: many short runs show more than a few long ones.
# What a new master does when all is well again is seen where faults end before the load does.
SEARCHED = {
    # Dead letters that are on their way when all nodes go are lost, as RabbitMQ says.
    "promises": ("one-at-a-time",),
    "time_limit_ms": (15_000, 15_000, 30_000),
    "interval_ms": Range(3000, 8000, 500),
    "faults_until": (0.5, 0.7, 1.0),
    "outages": 0.0,  # queues expire, and then nothing that is sent to them is acknowledged
}
CONSUME_OUT_MS = STUCK_AFTER_MS + 5_000
STOP_MS = 15_000
DECLARE_MS = 15_000
DRAIN_MS = 60_000


def habits_of(parameters: ConsumeParameters) -> Habits:
    """How the run's consumers are drawn."""
    return Habits(
        window=parameters.window,
        prefetch=parameters.prefetch,
        per_channel=parameters.per_channel,
        no_ack=parameters.no_ack,
        cancel_on_failover=parameters.cancel_on_failover,
        with_priority=parameters.consumer_priorities,
        join=parameters.shared_channels,
        batches=parameters.batches,
        shuffled=parameters.shuffled,
        slowest_ms=parameters.settle_ms,
        nack=parameters.nacks,
        reject=parameters.rejects,
        requeue=parameters.requeued,
        never=parameters.never,
        recover=parameters.recovers,
    )


def churn_of(parameters: ConsumeParameters) -> Churn:
    """How often consumers and queues come and go."""
    return Churn(
        cancel=parameters.cancels,
        close=parameters.closes,
        hang_up=parameters.hang_ups,
        delete=parameters.deletes,
        purge=parameters.purges,
        away_ms=parameters.away_ms,
        rest=parameters.rests,
        rest_ms=parameters.rest_ms,
    )


def load_generator(plan: Plan, topology: Topology) -> Generator:
    threads = plan.workload.concurrency
    mix = consumer_mix(
        slots=topology.slots(threads),
        threads=threads,
        routes=topology.routes(),
        fates=Fates(topology.recreated, topology.purged, topology.vanishing),
        churn=churn_of(topology.parameters),
        habits=habits_of(topology.parameters),
        seed=plan.seed,
    )
    paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(plan.seed, "consume", "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * NS_PER_MS)


def final_generator(
    plan: Plan, topology: Topology, nodes: Sequence[str] | None = None
) -> Generator:
    """Consume out, stop, and drain. ``nodes``: all, if not given."""
    asked = plan.cluster.nodes if nodes is None else nodes
    everyone, threads = plan.cluster.nodes, plan.workload.concurrency
    slots = [
        slot for slot in topology.slots(threads) if everyone[slot.thread % len(everyone)] in asked
    ]
    main = tuple(queue.name for queue in topology.main)

    def declare() -> Generator:
        return TimeLimit(DeclareQueues(topology.vanishing), DECLARE_MS * NS_PER_MS)

    return Phases(
        (
            declare(),
            TimeLimit(ConsumeOut(tuple(slots), threads), CONSUME_OUT_MS * NS_PER_MS),
            TimeLimit(StopConsumers(tuple(range(threads)), threads), STOP_MS * NS_PER_MS),
            declare(),
            TimeLimit(drain(asked, main), DRAIN_MS * NS_PER_MS),
            # What expired meanwhile lies in the queues of dead letters now.
            TimeLimit(drain(asked, topology.names), DRAIN_MS * NS_PER_MS),
        )
    )


def set_up(topology: Topology) -> tuple[Invocation, ...]:
    """Every exchange and queue; queues are spread over the nodes by their arguments."""
    return tuple(
        Invocation(
            f="declare-exchange" if key.startswith(EXCHANGE_PREFIX) else "declare-queue", key=key
        )
        for key in topology.declarations()
    )


def consume_workload(plan: Plan) -> Workload:
    topology = topology_of(parameters_of(plan))
    return Workload(
        name="consume",
        queues=topology.lasting,
        declares_queues=True,
        port="amqp",
        make_client=make_clients(
            topology.parameters.client,
            ConsumerClients(
                declarations=topology.declarations(),
                body_bytes=topology.parameters.body_bytes,
                op_timeout_ms=plan.workload.op_timeout_ms,
                credentials=guest_of(plan),
            ),
            plan.workload.concurrency,
        ),
        setup=set_up(topology),
        setup_repeats=True,
        generator=load_generator(plan, topology),
        final_generator=final_generator(plan, topology),
        final_at=partial(final_generator, plan, topology),
    )


def consume_rules(plan: Plan) -> ConsumeRules:
    """What the run's judges must know of it.

    A loss is invalid under every profile, as in the workload ``queue``: documented windows of loss
    are told, not forgiven.
    """
    return ConsumeRules(
        queues=topology_of(parameters_of(plan)).rules(),
        keeps_acknowledged=plan.gates.delivery != "at-most-once",
        stuck_after_ms=STUCK_AFTER_MS,
        client=parameters_of(plan).client,
    )


def consume_checkers(plan: Plan) -> Sequence[Checker]:
    """What consumers were promised, and what every run is judged by."""
    return (*consumer_checkers(consume_rules(plan)), *run_checkers(plan))


def one_of_each(values: Values, serving: int) -> Values:
    """``queues`` = 0 means: one of each kind."""
    return {**values, "queues": values.get("queues") or len(values.get("kinds") or USUAL_KINDS)}


_KINDS = (
    "plain",
    "dead-letters",
    "single-active",
    "single-active+dead-letters",
    "exclusive",
    "exclusive+dead-letters",
    "exclusive+priorities",
    "recreated",
    "recreated+dead-letters",
    "purged",
    "purged+priorities",
    "purged+lazy",
    "expires",
    "ttl",
    "ttl+dead-letters",
    "ttl+single-active+dead-letters",
    "message-ttl+dead-letters",
    "length",
    "length+dead-letters",
    "reject",
    "reject+ttl+dead-letters",
    "priorities",
    "priorities+dead-letters",
    "lazy+ttl+dead-letters",
    "lazy+dead-letters",
    "lazy+priorities",
    "lazy+length+dead-letters",
)


def draw_parameters(draw: Draw) -> Values:
    """Every feature now and then, most runs without most of them."""
    count = draw.knob("queues", (2, 3, 3, 4))
    return {
        "kinds": [draw.knob(f"kind-{number}", _KINDS) for number in range(1, count + 1)],
        "queues": count,
        "consumers": draw.knob("consumers", (1, 2, 2, 3)),
        "body_bytes": draw.knob("body_bytes", (12, 64, 64, 1024)),
        "ttl_ms": draw.knob("ttl_ms", (200, 500, 2000)),
        "max_length": draw.knob("max_length", (3, 10, 30)),
        "expires_ms": draw.knob("expires_ms", (500, 1000)),
        "max_priority": draw.knob("max_priority", (1, 3, 9)),
        "fanout": draw.knob("fanout", (0.0, 0.1, 0.3)),
        "unrouted": draw.knob("unrouted", (0.0, 0.03)),
        "unroutable": draw.knob("unroutable", (0.0, 0.02)),
        "patterns": draw.knob("patterns", (0.0, 0.0, 0.2)),
        "cancels": draw.knob("cancels", (0.0, 0.0, 0.01, 0.03)),
        "closes": draw.knob("closes", (0.0, 0.0, 0.01, 0.03)),
        "hang_ups": draw.knob("hang_ups", (0.0, 0.0, 0.01, 0.02)),
        "deletes": draw.knob("deletes", (0.01, 0.02)),
        "purges": draw.knob("purges", (0.005, 0.02)),
        "away_ms": draw.knob("away_ms", (200, 1500, 4000)),
        "rests": draw.knob("rests", (0.0, 0.02, 0.05)),
        "rest_ms": draw.knob("rest_ms", (1500, 4000, 8000)),
        "prefetch": draw.knob("prefetch", ("mixed", "mixed", "one", "window", "unlimited")),
        "window": draw.knob("window", (3, 10, 30)),
        "per_channel": draw.knob("per_channel", (0.0, 0.3, 1.0)),
        "no_ack": draw.knob("no_ack", (0.0, 0.0, 0.0, 0.2)),
        "cancel_on_failover": draw.knob("cancel_on_failover", (0.0, 0.5, 1.0)),
        "consumer_priorities": draw.knob("consumer_priorities", (0.0, 0.0, 0.5)),
        "shared_channels": draw.knob("shared_channels", (0.0, 0.3, 0.8)),
        "settle_ms": draw.knob("settle_ms", (0, 50, 200, 600)),
        "batches": draw.knob("batches", (0.0, 0.3, 1.0)),
        "shuffled": draw.knob("shuffled", (0.0, 0.3, 1.0)),
        "nacks": draw.knob("nacks", (0.0, 0.05, 0.15)),
        "rejects": draw.knob("rejects", (0.0, 0.05)),
        "requeued": draw.knob("requeued", (0.0, 0.7, 1.0)),
        "never": draw.knob("never", (0.0, 0.0, 0.02)),
        "recovers": draw.knob("recovers", (0.0, 0.0, 0.01)),
    }


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    topology = topology_of(parameters)
    kinds = ", ".join("+".join(queue.features) or "plain" for queue in topology.main)
    return (
        f"{len(topology.main)} queues ({kinds}) with {parameters.consumers} consumers each,"
        f" prefetch {parameters.prefetch}, settled within {parameters.settle_ms} ms"
    )


WORKLOAD = WorkloadRecord(
    name="consume",
    summary="publishers and consumers that come, acknowledge, and die with the rest",
    needs=(AMQP,),
    parameters=ConsumeParameters,
    complete=one_of_each,
    check=check_parameters,
    build=consume_workload,
    checkers=consume_checkers,
    draw=draw_parameters,
    search=SEARCHED,
    describe=describe,
    lower=("queues", "consumers"),
    calm={
        "body_bytes": SMALLEST_BYTES,
        "kinds": ["plain"],
        "fanout": 0.0,
        "unrouted": 0.0,
        "unroutable": 0.0,
        "cancels": 0.0,
        "closes": 0.0,
        "hang_ups": 0.0,
        "deletes": 0.0,
        "purges": 0.0,
        "patterns": 0.0,
        "prefetch": "unlimited",
        "per_channel": 0.0,
        "no_ack": 0.0,
        "cancel_on_failover": 0.0,
        "consumer_priorities": 0.0,
        "shared_channels": 0.0,
        "settle_ms": 0,
        "batches": 0.0,
        "shuffled": 0.0,
        "nacks": 0.0,
        "rejects": 0.0,
        "never": 0.0,
        "recovers": 0.0,
    },
)
