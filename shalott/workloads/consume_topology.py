"""The queues and exchanges of one run, and where its messages may go: a function of the parameters.

Main queues are ``shalott.1`` to ``shalott.n``; ``shalott.n.dead`` has the dead letters of
``shalott.n``. Exchanges: ``shalott.fanout`` copies to the main queues that stay; ``shalott.direct``
knows one key, and passes on what has another to its alternate exchange, behind which is the queue
``shalott.unrouted``; ``shalott.silent`` has no binding, so that what is mandatory comes back.
Queues that may vanish are reached by their name alone: a message to them that has no route comes
back too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shalott.checkers.consumers.consume_rules import QueueRules
from shalott.clients.amqp.consumer_client import (
    EXCHANGE_PREFIX,
    Arguments,
    Declaration,
    ExchangeDeclaration,
    QueueDeclaration,
)
from shalott.core.consumer_generator import Route, Slot
from shalott.workloads.consume_parameters import ConsumeParameters, features_of

PREFIX = "shalott"
FANOUT, DIRECT, SILENT = f"{PREFIX}.fanout", f"{PREFIX}.direct", f"{PREFIX}.silent"
UNROUTED = f"{PREFIX}.unrouted"  # the alternate exchange and its queue
KNOWN_KEY, UNKNOWN_KEY = "known", "unknown"
SPREAD: Arguments = {"x-queue-master-locator": "min-masters"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MainQueue:
    """One of the queues that have consumers."""

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
        """Of every queue."""
        return (*(queue.name for queue in self.main), *self.others)

    @property
    def lasting(self) -> tuple[str, ...]:
        """Queues that are there all the time."""
        return (*(queue.name for queue in self.main if not queue.vanishes), *self.others)

    @property
    def vanishing(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.main if queue.vanishes)

    @property
    def recreated(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.main if queue.has("recreated"))

    def declarations(self) -> Mapping[str, Declaration]:
        """By key, in the order in which they can be made."""
        exchanges = (
            ExchangeDeclaration(name=UNROUTED, kind="fanout"),
            ExchangeDeclaration(name=DIRECT, kind="direct", alternate=UNROUTED),
            ExchangeDeclaration(name=FANOUT, kind="fanout"),
            ExchangeDeclaration(name=SILENT, kind="direct"),
        )
        plain = {name: QueueDeclaration(name=name, arguments=SPREAD) for name in self.others}
        unrouted = QueueDeclaration(name=UNROUTED, arguments=SPREAD, bindings=((UNROUTED, ""),))
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
            bindings.append((FANOUT, ""))
        if queue.name in self._copied[:1]:
            bindings.append((DIRECT, KNOWN_KEY))
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
        direct = max(0.0, 1 - fanout - own.unrouted - own.unroutable)
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
        return tuple(routes)

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
