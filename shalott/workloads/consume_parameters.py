"""What the workload ``consume`` can be told: its queues, its publishers, its consumers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from shalott.clients.amqp_libraries.library_client import AmqpClientName, check_client
from shalott.core.errors import UsageError
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan

PLAIN = "plain"
FEATURES = (
    "ttl",  # the queue's
    "message-ttl",  # messages have one of their own
    "length",  # max-length, drop-head
    "reject",  # max-length, reject-publish
    "dead-letters",
    "single-active",
    "priorities",  # of messages
    "expires",
    "exclusive",  # its consumers ask for it
    "recreated",  # deleted and declared again
    "lazy",  # its messages are on disk
)
USUAL_KINDS = (
    PLAIN,
    "dead-letters",
    "single-active",
    "ttl+dead-letters",
    "length+dead-letters",
    "exclusive",
    "recreated",
)


class ConsumeParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Queue number n has the n-th of ``kinds``, which begin anew when they end; a kind is ``plain``
    or features joined by +. Which parameter is about what is in its description."""

    kinds: Annotated[
        tuple[str, ...],
        msgspec.Meta(description=f"What queues have: plain, or of {', '.join(FEATURES)}, by +."),
    ] = USUAL_KINDS
    client: Annotated[
        AmqpClientName,
        msgspec.Meta(description="Who consumes: own, or a library with its own recovery."),
    ] = "own"
    queues: Annotated[int, msgspec.Meta(ge=0, description="How many; 0: one of each kind.")] = 0
    consumers: Annotated[
        int, msgspec.Meta(ge=1, le=16, description="How many each queue has, at most.")
    ] = 2
    body_bytes: Annotated[
        int, msgspec.Meta(ge=SMALLEST_BYTES, description="Size of a message.")
    ] = 64

    # What queues have, whose kind says so.
    ttl_ms: Annotated[int, msgspec.Meta(ge=1, description="Of queues, or of messages.")] = 1000
    max_length: Annotated[int, msgspec.Meta(ge=1, description="Messages, at most.")] = 20
    expires_ms: Annotated[
        int, msgspec.Meta(ge=1, description="A queue without a consumer is deleted.")
    ] = 1000
    max_priority: Annotated[
        int, msgspec.Meta(ge=1, le=10, description="Of messages of queues that have priorities.")
    ] = 3

    # Publishers. Shares of the publishes.
    fanout: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Publishes to exchanges that are bound.")
    ] = 0.15
    unrouted: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Publishes to an alternate exchange.")
    ] = 0.05
    unroutable: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Publishes that have no route.")
    ] = 0.02

    # Consumers that come and go. Shares of the operations; what is left publishes.
    cancels: Annotated[
        float, msgspec.Meta(ge=0, le=0.2, description="Operations that cancel a consumer.")
    ] = 0.02
    closes: Annotated[
        float, msgspec.Meta(ge=0, le=0.2, description="Operations that close a channel.")
    ] = 0.02
    hang_ups: Annotated[
        float, msgspec.Meta(ge=0, le=0.2, description="Operations that drop a connection.")
    ] = 0.01
    deletes: Annotated[
        float, msgspec.Meta(ge=0, le=0.2, description="Operations that delete a queue.")
    ] = 0.01
    away_ms: Annotated[
        int, msgspec.Meta(ge=0, description="A consumer that was ended is away so long, at most.")
    ] = 1500

    rests: Annotated[
        float,
        msgspec.Meta(ge=0, le=0.2, description="Operations before which a queue's rest begins."),
    ] = 0.003
    rest_ms: Annotated[
        int, msgspec.Meta(ge=0, description="A queue that rests has no consumer so long, at most.")
    ] = 3000

    # What they are like. Shares of the consumers.
    prefetch: Annotated[
        Literal["mixed", "one", "window", "unlimited"],
        msgspec.Meta(description="Of each consumer; mixed: one of all."),
    ] = "mixed"
    window: Annotated[int, msgspec.Meta(ge=1, description="The largest prefetch.")] = 10
    per_channel: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Consumers whose limit is the channel's.")
    ] = 0.25
    no_ack: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Consumers that do not acknowledge.")
    ] = 0.0
    cancel_on_failover: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Consumers with x-cancel-on-ha-failover.")
    ] = 0.3
    consumer_priorities: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Consumers with an x-priority of 1 to 3.")
    ] = 0.2
    shared_channels: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Consumers on a channel that has some.")
    ] = 0.25

    # How they settle.
    settle_ms: Annotated[
        int, msgspec.Meta(ge=0, description="The slowest settle a delivery so long after it came.")
    ] = 200
    batches: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Consumers that settle several at once.")
    ] = 0.3
    shuffled: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Consumers that settle out of order.")
    ] = 0.3
    nacks: Annotated[float, msgspec.Meta(ge=0, le=0.5, description="Deliveries nacked.")] = 0.03
    rejects: Annotated[float, msgspec.Meta(ge=0, le=0.5, description="Deliveries rejected.")] = 0.03
    requeued: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Share of those that is to come again.")
    ] = 0.7
    never: Annotated[
        float, msgspec.Meta(ge=0, le=0.5, description="Deliveries that are never settled.")
    ] = 0.01
    recovers: Annotated[
        float, msgspec.Meta(ge=0, le=0.5, description="Deliveries answered by basic.recover.")
    ] = 0.005


def parameters_of(plan: Plan) -> ConsumeParameters:
    return make_parameters(ConsumeParameters, plan.workload.parameters)


def features_of(kind: str) -> tuple[str, ...]:
    """None of ``plain``. Raises UsageError: a kind that can't be."""
    if kind == PLAIN:
        return ()
    features = tuple(kind.split("+"))
    unknown = [feature for feature in features if feature not in FEATURES]
    if unknown:
        raise UsageError(
            f"--kinds {kind}: unknown {unknown[0]}: give {PLAIN}, or of {', '.join(FEATURES)}"
        )
    if "length" in features and "reject" in features:
        raise UsageError(f"--kinds {kind}: a queue that is full drops or rejects, not both")
    return features


def check_parameters(plan: Plan) -> None:
    """Raises UsageError."""
    parameters = parameters_of(plan)
    if not parameters.kinds:
        raise UsageError("--kinds: give at least one")
    for kind in parameters.kinds:
        features_of(kind)
    check_client(parameters.client, plan.cluster.backend)
