"""Queues, exchanges and routes as functions of the parameters."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shalott.checkers.consumers.consume_rules import QueueRules
from shalott.clients.amqp.consumer_client import (
    Binding,
    Declaration,
    ExchangeDeclaration,
    QueueDeclaration,
)
from shalott.core.consumer_generator import Route
from shalott.core.errors import UsageError
from shalott.workloads.consume_parameters import (
    FEATURES,
    ConsumeParameters,
    Topology,
    features_of,
    topology_of,
)

pytestmark = pytest.mark.unit


def of(*kinds: str, **more: object) -> Topology:
    return topology_of(ConsumeParameters(kinds=kinds, **more))  # type: ignore[arg-type]


def test_kinds_begin_anew_when_there_are_more_queues() -> None:
    found = of("plain", "ttl+dead-letters", queues=3)
    assert [queue.features for queue in found.main] == [(), ("ttl", "dead-letters"), ()]
    assert found.names == (
        *("shalott.1", "shalott.2", "shalott.3"),
        *("shalott.2.dead", "shalott.unrouted"),
    )


def test_rules_and_arguments_say_the_same() -> None:
    found = of(
        *("ttl+dead-letters", "length", "reject", "expires", "priorities", "single-active"),
        ttl_ms=300,
        max_length=7,
        expires_ms=900,
        max_priority=4,
    )
    rules = {rule.name: rule for rule in found.rules()}
    assert rules["shalott.1"] == QueueRules(
        name="shalott.1", ttl_ms=300, dead_letters="shalott.1.dead"
    )
    assert rules["shalott.3"].overflow == "reject-publish"
    arguments = {
        name: dict(one.arguments)
        for name, one in found.declarations().items()
        if isinstance(one, QueueDeclaration)
    }
    spread = {"x-queue-master-locator": "min-masters"}
    assert arguments["shalott.1"] == {
        **spread,
        "x-message-ttl": 300,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "shalott.1.dead",
    }
    assert arguments["shalott.2"] == {**spread, "x-max-length": 7, "x-overflow": "drop-head"}
    assert arguments["shalott.3"]["x-overflow"] == "reject-publish"
    assert arguments["shalott.4"] == {**spread, "x-expires": 900}
    assert arguments["shalott.5"] == {**spread, "x-max-priority": 4}
    assert arguments["shalott.6"] == {**spread, "x-single-active-consumer": True}
    assert arguments["shalott.unrouted"] == spread == arguments["shalott.1.dead"]
    assert set(rules) == set(arguments)


def test_queues_that_may_vanish_are_reached_by_name_alone_and_not_waited_for() -> None:
    found = of("recreated", "plain", "expires")
    assert found.vanishing == ("shalott.1", "shalott.3")
    assert found.recreated == ("shalott.1",)
    assert found.lasting == ("shalott.2", "shalott.unrouted")
    declared = found.declarations()
    for name in found.vanishing:
        queue = declared[name]
        assert isinstance(queue, QueueDeclaration) and not queue.bindings
    routed = [queue for route in found.routes() for queue in route.to or ()]
    assert set(routed) == {"shalott.2", "shalott.unrouted"}


def fits(pattern: list[str], words: list[str]) -> bool:
    """A topic exchange's: * is one word, # any number of them."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(fits(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and fits(pattern[1:], words[1:])


def accepts(exchange: ExchangeDeclaration, binding: Binding, route: Route) -> bool:
    match exchange.kind:
        case "direct":
            return binding.key == route.routing_key
        case "topic":
            return fits(binding.key.split("."), route.routing_key.split("."))
        case "headers":
            wanted = {k: v for k, v in binding.arguments.items() if k != "x-match"}
            equal = [route.headers.get(name) == value for name, value in wanted.items()]
            return all(equal) if binding.arguments["x-match"] == "all" else any(equal)
    return True


def led_to(name: str, route: Route, declared: Mapping[str, Declaration]) -> set[str]:
    """The queues that an exchange passes a message on to."""
    exchange = declared[f"exchange/{name}"]
    assert isinstance(exchange, ExchangeDeclaration)
    taken = [
        one
        for one in declared.values()
        if any(each.exchange == name and accepts(exchange, each, route) for each in one.bindings)
    ]
    queues = {one.name for one in taken if isinstance(one, QueueDeclaration)}
    for one in taken:
        if isinstance(one, ExchangeDeclaration):
            queues |= led_to(one.name, route, declared)
    return queues or (led_to(exchange.alternate, route, declared) if exchange.alternate else set())


@pytest.mark.parametrize("patterns", [0.0, 0.3])
@pytest.mark.parametrize("queues", [2, 5])
def test_every_route_leads_where_the_bindings_say(queues: int, patterns: float) -> None:
    found = of("plain", "dead-letters", queues=queues, patterns=patterns)
    for route in found.routes():
        if route.to is None:
            assert route.key in found.names
            continue
        to = led_to(route.key.removeprefix("exchange/"), route, found.declarations())
        assert sorted(to) == sorted(route.to), route
    assert sum(route.weight for route in found.routes()) == pytest.approx(1)


def test_exchanges_are_declared_before_what_is_bound_to_them() -> None:
    keys = list(of("plain").declarations())
    assert keys.index("exchange/shalott.unrouted") < keys.index("exchange/shalott.direct")
    assert keys.index("exchange/shalott.fanout") < keys.index("shalott.1")


def test_consumers_are_dealt_to_the_threads_and_one_alone_keeps_a_queue_from_expiring() -> None:
    slots = of("plain", "expires", "exclusive", consumers=2).slots(3)
    assert [(slot.name, slot.thread) for slot in slots] == [
        *(("shalott.1#0", 0), ("shalott.1#1", 1), ("shalott.2#0", 2)),
        *(("shalott.3#0", 0), ("shalott.3#1", 1)),
    ]
    assert [slot.exclusive for slot in slots] == [False] * 3 + [True] * 2


@pytest.mark.parametrize("kind", ["nonsense", "ttl+nonsense", "length+reject", ""])
def test_kinds_that_can_not_be_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match="--kinds"):
        features_of(kind)


def test_every_feature_is_one_that_a_queue_can_have() -> None:
    for feature in FEATURES:
        assert of(feature).main[0].has(feature)
