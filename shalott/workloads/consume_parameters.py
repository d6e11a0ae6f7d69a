"""What the workload ``consume`` can be told: its queues, its publishers, its consumers.

The queues and exchanges of one run, and where its messages may go: a function of the parameters.

Main queues are ``shalott.1`` to ``shalott.n``; ``shalott.n.dead`` has the dead letters of
``shalott.n``. Exchanges: ``shalott.fanout`` copies to the main queues that stay; ``shalott.direct``
knows one key, and passes on what has another to its alternate exchange, behind which is the queue
``shalott.unrouted``; ``shalott.silent`` has no binding, so that what is mandatory comes back;
``shalott.topic`` and ``shalott.headers``, where there are any, route by patterns and headers.
Queues that may vanish are reached by their name alone: a message to them that has no route comes
back too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from shalott.checkers.consumers.consume_rules import QueueRules
from shalott.clients.amqp.consumer_client import (
    EXCHANGE_PREFIX,
    Arguments,
    Binding,
    Declaration,
    ExchangeDeclaration,
    QueueDeclaration,
)
from shalott.clients.amqp_libraries.library_client import AmqpClientName, check_client
from shalott.core.consumer_generator import Route, Slot
from shalott.core.errors import UsageError
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.workloads.consume_patterns import (
    pattern_bindings,
    pattern_exchanges,
    pattern_routes,
)

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
    "purged",  # now and then
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

    patterns: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Publishes routed by patterns and headers.")
    ] = 0.0

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
    purges: Annotated[
        float, msgspec.Meta(ge=0, le=0.2, description="Operations that purge a queue.")
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


PREFIX = "shalott"
FANOUT, DIRECT, SILENT = f"{PREFIX}.fanout", f"{PREFIX}.direct", f"{PREFIX}.silent"
UNROUTED = f"{PREFIX}.unrouted"  # the alternate exchange and its queue
KNOWN_KEY, UNKNOWN_KEY = "known", "unknown"
SPREAD: Arguments = {"x-queue-master-locator": "min-masters"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MainQueue:
    name: str
    features: tuple[str, ...]

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def vanishes(self) -> bool:
        """Whether it may be gone for a while, without a fault."""
        return self.has("expires") or self.has("recreated")

    @property
    def dead(self) -> str:
        """The queue of its dead letters, if it has one."""
        return f"{self.name}.dead" if self.has("dead-letters") else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """``others``: queues that have no consumers."""

    parameters: ConsumeParameters
    main: tuple[MainQueue, ...]
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*(queue.name for queue in self.main), *self.others)

    @property
    def lasting(self) -> tuple[str, ...]:
        """Queues that are there all the time."""
        return (*(queue.name for queue in self.main if not queue.vanishes), *self.others)

    @property
    def vanishing(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.main if queue.vanishes)

    @property
    def purged(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.main if queue.has("purged"))

    @property
    def recreated(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.main if queue.has("recreated"))

    def declarations(self) -> Mapping[str, Declaration]:
        """By key, in the order in which they can be made."""
        patterned = pattern_exchanges(FANOUT) if self.parameters.patterns else ()
        exchanges = (
            ExchangeDeclaration(name=UNROUTED, kind="fanout"),
            ExchangeDeclaration(name=DIRECT, kind="direct", alternate=UNROUTED),
            *(patterned or (ExchangeDeclaration(name=FANOUT, kind="fanout"),)),
            ExchangeDeclaration(name=SILENT, kind="direct"),
        )
        plain = {name: QueueDeclaration(name=name, arguments=SPREAD) for name in self.others}
        unrouted = QueueDeclaration(name=UNROUTED, arguments=SPREAD, bindings=(Binding(UNROUTED),))
        return {
            **{EXCHANGE_PREFIX + exchange.name: exchange for exchange in exchanges},
            **{queue.name: self._declaration(queue) for queue in self.main},
            **plain,
            UNROUTED: unrouted,
        }

    def _declaration(self, queue: MainQueue) -> QueueDeclaration:
        rules = self._rules(queue)
        arguments: Arguments = dict(SPREAD)
        if rules.ttl_ms:
            arguments["x-message-ttl"] = rules.ttl_ms
        if rules.max_length:
            arguments |= {"x-max-length": rules.max_length, "x-overflow": rules.overflow}
        if rules.dead_letters:
            arguments["x-dead-letter-exchange"] = ""
            arguments["x-dead-letter-routing-key"] = rules.dead_letters
        if rules.expires_ms:
            arguments["x-expires"] = rules.expires_ms
        if rules.max_priority:
            arguments["x-max-priority"] = rules.max_priority
        if queue.has("lazy"):
            arguments["x-queue-mode"] = "lazy"
        if rules.single_active:
            arguments["x-single-active-consumer"] = True
        bindings = []
        if queue.name in self._copied:
            bindings.append(Binding(FANOUT))
            if self.parameters.patterns:
                bindings += pattern_bindings(self._copied.index(queue.name))
        if queue.name in self._copied[:1]:
            bindings.append(Binding(DIRECT, KNOWN_KEY))
        return QueueDeclaration(name=queue.name, arguments=arguments, bindings=tuple(bindings))

    @property
    def _copied(self) -> tuple[str, ...]:
        """Main queues that the exchanges route to."""
        return tuple(queue.name for queue in self.main if not queue.vanishes)

    def rules(self) -> tuple[QueueRules, ...]:
        """Of every queue, for its judges."""
        own = (self._rules(queue) for queue in self.main)
        return (*own, *(QueueRules(name=name) for name in self.others))

    def _rules(self, queue: MainQueue) -> QueueRules:
        own = self.parameters
        bounded = queue.has("length") or queue.has("reject")
        return QueueRules(
            name=queue.name,
            ttl_ms=own.ttl_ms if queue.has("ttl") else 0,
            max_length=own.max_length if bounded else 0,
            overflow="reject-publish" if queue.has("reject") else "drop-head",
            dead_letters=queue.dead,
            expires_ms=own.expires_ms if queue.has("expires") else 0,
            max_priority=own.max_priority if queue.has("priorities") else 0,
            single_active=queue.has("single-active"),
        )

    def routes(self) -> tuple[Route, ...]:
        """Where messages go, by weight: shares of the publishes."""
        own, copied = self.parameters, self._copied
        fanout = own.fanout if copied else 0.0
        patterns = own.patterns if copied else 0.0
        direct = max(0.0, 1 - fanout - patterns - own.unrouted - own.unroutable)
        ttls_ms = (0, 0, own.ttl_ms // 4, own.ttl_ms)
        routes = [
            Route(
                key=queue.name,
                weight=direct / len(self.main),
                ttls_ms=ttls_ms if queue.has("message-ttl") else (),
                priorities=own.max_priority if queue.has("priorities") else 0,
            )
            for queue in self.main
        ]
        exchanges = (
            (FANOUT, "", copied, 0.8 * fanout),
            (DIRECT, KNOWN_KEY, copied[:1], 0.2 * fanout),
            (DIRECT, UNKNOWN_KEY, (UNROUTED,), own.unrouted),
            (SILENT, "", (), own.unroutable),
        )
        routes += [
            Route(key=EXCHANGE_PREFIX + exchange, weight=weight, to=to, routing_key=routing_key)
            for exchange, routing_key, to, weight in exchanges
            if weight > 0
        ]
        return (*routes, *(pattern_routes(copied, patterns) if patterns else ()))

    def slots(self, threads: int) -> tuple[Slot, ...]:
        """The consumers' places, dealt to the threads in turn."""
        places = [
            (queue, number)
            for queue in self.main
            for number in range(1 if queue.has("expires") else self.parameters.consumers)
        ]
        return tuple(
            Slot(queue.name, number, place % threads, queue.has("exclusive"))
            for place, (queue, number) in enumerate(places)
        )


def topology_of(parameters: ConsumeParameters) -> Topology:
    """Raises UsageError: a kind that can't be."""
    kinds = parameters.kinds
    main = tuple(
        MainQueue(name=f"{PREFIX}.{number + 1}", features=features_of(kinds[number % len(kinds)]))
        for number in range(parameters.queues or len(kinds))
    )
    dead = tuple(queue.dead for queue in main if queue.dead)
    return Topology(parameters=parameters, main=main, others=(*dead, UNROUTED))
