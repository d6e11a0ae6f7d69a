"""Exchanges of the workload ``consume`` that route by patterns and by headers.

The n-th queue that exchanges route to is bound with the n-th of ``PATTERNS`` and of ``HEADERS``,
which begin anew when they end; which of them a message fits is said here, for the broker is to say
the same. Source: AMQP 0-9-1, 3.1.3.3 and 3.1.3.4; RabbitMQ, Exchange to Exchange Bindings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.clients.amqp.consumer_client import (
    EXCHANGE_PREFIX,
    Arguments,
    Binding,
    ExchangeDeclaration,
)
from shalott.core.consumer_generator import Route

BY_PATTERN, BY_HEADERS = "shalott.topic", "shalott.headers"
PATTERNS = ("#", "eu.*", "*.orders.#", "us.orders")
TO_ALL = "all.*"  # what fits this goes to the exchange that copies to every queue
KEYS: Mapping[str, tuple[int, ...]] = {
    "eu.orders": (0, 1, 2),
    "us.orders": (0, 2, 3),
    "us.orders.late": (0, 2),
    "eu": (0,),
    "all.orders": (0, 1, 2, 3),
}
HEADERS: Sequence[Arguments] = (
    {"x-match": "all", "kind": "one", "size": "small"},
    {"x-match": "any", "kind": "one", "size": "large"},
    {"x-match": "any", "kind": "two", "size": "large"},
    {"x-match": "all", "kind": "two", "size": "large"},
)
HEADED: Sequence[tuple[Mapping[str, str], tuple[int, ...]]] = (
    ({"kind": "one", "size": "small"}, (0, 1)),
    ({"kind": "two", "size": "small", "more": "yes"}, (2,)),
)


def pattern_exchanges(copying: str) -> tuple[ExchangeDeclaration, ...]:
    """``copying``: the exchange that copies to every queue; it is declared with them."""
    return (
        ExchangeDeclaration(name=BY_PATTERN, kind="topic"),
        ExchangeDeclaration(name=copying, kind="fanout", bindings=(Binding(BY_PATTERN, TO_ALL),)),
        ExchangeDeclaration(name=BY_HEADERS, kind="headers"),
    )


def pattern_bindings(position: int) -> tuple[Binding, ...]:
    """Of the queue at that position."""
    place = position % len(PATTERNS)
    return Binding(BY_PATTERN, PATTERNS[place]), Binding(BY_HEADERS, "", HEADERS[place])


def pattern_routes(queues: Sequence[str], weight: float) -> tuple[Route, ...]:
    each = weight / (len(KEYS) + len(HEADED))

    def to(places: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(name for at, name in enumerate(queues) if at % len(PATTERNS) in places)

    by_pattern = (
        Route(key=EXCHANGE_PREFIX + BY_PATTERN, weight=each, to=to(places), routing_key=key)
        for key, places in KEYS.items()
    )
    by_headers = (
        Route(key=EXCHANGE_PREFIX + BY_HEADERS, weight=each, to=to(places), headers=headers)
        for headers, places in HEADED
    )
    return (*by_pattern, *by_headers)
