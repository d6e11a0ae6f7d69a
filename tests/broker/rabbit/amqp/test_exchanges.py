"""Routing over rows: exchange types, chains and cycles, the topic trie against a slow matcher."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.broker.rabbit.amqp.exchanges import (
    Router,
    RoutingTable,
    TopicTrie,
    headers_match,
    predeclared_exchanges,
)
from shalott.broker.rabbit.metadata.records import (
    BindingRow,
    ExchangeRow,
    binding_key,
    exchange_key,
)
from tests.world.rabbit.doubles import MemoryMetadata

pytestmark = pytest.mark.unit


def exchange(name: str, type_: Any = "direct", **arguments: Any) -> ExchangeRow:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return ExchangeRow(vhost="/", name=name, type=type_, arguments=named)


def binding(source: str, destination: str, key: str = "", **options: Any) -> BindingRow:
    return BindingRow(vhost="/", source=source, destination=destination, routing_key=key, **options)


def route(
    exchanges: list[ExchangeRow],
    bindings: list[BindingRow],
    name: str,
    key: str = "",
    headers: dict[str, Any] | None = None,
) -> list[str]:
    return RoutingTable(exchanges, bindings).route("/", name, (key,), headers or {})


def test_direct_takes_the_exact_key_only() -> None:
    bindings = [binding("x", "a", "k"), binding("x", "b", "k"), binding("x", "c", "kk")]
    assert route([exchange("x")], bindings, "x", "k") == ["a", "b"]
    assert route([exchange("x")], bindings, "x", "") == []


def test_fanout_ignores_the_key() -> None:
    bindings = [binding("x", "a", "k"), binding("x", "b")]
    assert route([exchange("x", "fanout")], bindings, "x", "z") == ["a", "b"]


def test_two_bindings_are_one_copy() -> None:
    bindings = [binding("x", "a", "#"), binding("x", "a", "k")]
    assert route([exchange("x", "topic")], bindings, "x", "k") == ["a"]


def test_default_exchange_routes_to_the_queue_of_that_name() -> None:
    assert route([], [], "", "q") == ["q"]


def test_other_vhosts_do_not_matter() -> None:
    row = BindingRow(vhost="other", source="x", destination="a", routing_key="k")
    assert route([exchange("x")], [row], "x", "k") == []


def test_exchanges_chain_and_may_form_cycles() -> None:
    exchanges = [exchange("x"), exchange("y", "fanout"), exchange("z", "topic")]
    bindings = [
        binding("x", "y", "k", to_exchange=True),
        binding("y", "z", to_exchange=True),
        binding("z", "x", "#", to_exchange=True),
        binding("z", "a", "k"),
        binding("x", "b", "k"),
    ]
    assert route(exchanges, bindings, "x", "k") == ["b", "a"]


def test_exchange_and_queue_of_one_name_are_told_apart() -> None:
    bindings = [binding("x", "y", "k"), binding("y", "a", "k")]
    assert route([exchange("x"), exchange("y")], bindings, "x", "k") == ["y"]


def test_alternate_exchange_takes_what_matches_nothing() -> None:
    exchanges = [exchange("x", alternate_exchange="y"), exchange("y", "fanout")]
    bindings = [binding("x", "a", "k"), binding("y", "b")]
    assert route(exchanges, bindings, "x", "k") == ["a"]
    assert route(exchanges, bindings, "x", "other") == ["b"]


def test_alternate_exchanges_may_form_cycles_or_not_exist() -> None:
    exchanges = [exchange("x", alternate_exchange="y"), exchange("y", alternate_exchange="x")]
    assert route(exchanges, [], "x", "k") == []
    assert route([exchange("x", alternate_exchange="gone")], [], "x", "k") == []


def test_alternate_may_be_the_default_exchange() -> None:
    assert route([exchange("x", alternate_exchange="")], [], "x", "q") == ["q"]


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any", "a": 1}, {"a": 2}, False),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"x-custom": 1, "a": 1}, {"a": 1}, True),
        ({"x-match": "all-with-x", "x-custom": 1}, {}, False),
        ({"x-match": "all-with-x", "x-custom": 1}, {"x-custom": 1}, True),
        ({"x-match": "any-with-x", "x-custom": 1, "a": 1}, {"x-custom": 1}, True),
        ({"a": {"b": [1]}}, {"a": {"b": [1]}}, True),
    ],
)
def test_headers(arguments: dict[str, Any], headers: dict[str, Any], expected: bool) -> None:
    assert headers_match(arguments, headers) is expected
    row = binding("x", "a", arguments=arguments)
    assert route([exchange("x", "headers")], [row], "x", "", headers) == ["a"] * expected


# -- topics ----------------------------------------------------------------------------------------


def slow_match(pattern: str, key: str) -> bool:
    """The definition, by brute force."""

    def match(patterns: list[str], words: list[str]) -> bool:
        if not patterns:
            return not words
        head, rest = patterns[0], patterns[1:]
        if head == "#":
            return any(match(rest, words[n:]) for n in range(len(words) + 1))
        return bool(words) and (head in ("*", words[0])) and match(rest, words[1:])

    return match(pattern.split("."), key.split("."))


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#", "", True),
        ("#", "a.b", True),
        ("*", "", True),  # one empty word
        ("", "", True),
        ("#.b", "b", True),
        ("#.b.#", "a.b.c", True),
        ("#.#", "a", True),
        ("*.#.*", "a", False),
        ("*.#.*", "a.b", True),
        ("a..b", "a..b", True),
    ],
)
def test_topic_patterns(pattern: str, key: str, expected: bool) -> None:
    trie = TopicTrie()
    trie.add(binding("x", "q", pattern))
    assert bool(trie.match(key)) is expected
    assert slow_match(pattern, key) is expected


words = st.sampled_from(["a", "b", ""])
keys = st.lists(words, min_size=1, max_size=5).map(".".join)
patterns = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), min_size=1, max_size=5).map(".".join)


@pytest.mark.explore
@given(st.lists(patterns, min_size=1, max_size=8, unique=True), keys)
def test_trie_agrees_with_the_definition(some: list[str], key: str) -> None:
    trie = TopicTrie()
    for pattern in some:
        trie.add(binding("x", "q", pattern))
    found = [row.routing_key for row in trie.match(key)]
    assert sorted(found) == sorted(pattern for pattern in some if slow_match(pattern, key))


# -- the router ------------------------------------------------------------------------------------


def test_router_follows_the_tables() -> None:
    metadata = MemoryMetadata()
    router = Router(metadata)
    assert router.exchange("/", "x") is None
    assert router.exchange("/", "") is not None
    row = exchange("x")
    metadata.put("exchange", exchange_key("/", "x"), row)
    assert router.exchange("/", "x") == row
    bound = binding("x", "q", "k")
    metadata.put("binding", binding_key(bound), bound)
    assert router.route("/", "x", "k", {}) == ["q"]
    metadata.remove("binding", binding_key(bound))
    assert router.route("/", "x", "k", {}) == []


def test_predeclared_exchanges() -> None:
    rows = {row.name: row.type for row in predeclared_exchanges("/")}
    assert rows == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
        "amq.topic": "topic",
    }
    assert all(re.fullmatch(r"(amq\..+)?", name) for name in rows)
