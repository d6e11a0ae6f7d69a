"""Exchanges: where a message goes, as a pure function of the metadata rows.

Routing visits exchanges breadth first, each at most once, so that bindings between exchanges and
alternate exchanges may form cycles. The queues come out in a stable order and each only once: one
message, one copy a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from shalott.broker.rabbit.metadata.api import Metadata, Transaction
from shalott.broker.rabbit.metadata.policies import POLICIES, in_force
from shalott.broker.rabbit.metadata.records import (
    BindingRow,
    ExchangeRow,
    QueueRow,
    Record,
    binding_key,
    exchange_key,
    queue_key,
)

EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")
ALTERNATE = "alternate-exchange"  # an argument, or a policy's key if there is no argument
NONE: Mapping[tuple[str, str], str] = {}


def predeclared_exchanges(vhost: str) -> tuple[ExchangeRow, ...]:
    """The rows that every vhost has from the start."""
    return (
        ExchangeRow(vhost=vhost, name="", type="direct"),
        ExchangeRow(vhost=vhost, name="amq.direct", type="direct"),
        ExchangeRow(vhost=vhost, name="amq.fanout", type="fanout"),
        ExchangeRow(vhost=vhost, name="amq.headers", type="headers"),
        ExchangeRow(vhost=vhost, name="amq.match", type="headers"),
        ExchangeRow(vhost=vhost, name="amq.rabbitmq.trace", type="topic", internal=True),
        ExchangeRow(vhost=vhost, name="amq.topic", type="topic"),
    )


class TopicTrie:
    """Binding patterns by their words: ``*`` is exactly one word, ``#`` any number, or none."""

    def __init__(self) -> None:
        self._children: dict[str, TopicTrie] = {}
        self._bindings: list[BindingRow] = []

    def add(self, binding: BindingRow) -> None:
        node = self
        for word in binding.routing_key.split("."):
            node = node._children.setdefault(word, TopicTrie())
        node._bindings.append(binding)

    def match(self, routing_key: str) -> list[BindingRow]:
        """The bindings whose pattern fits, each once."""
        found: list[BindingRow] = []
        states = _closure({(): self})
        for word in routing_key.split("."):
            following: dict[tuple[str, ...], TopicTrie] = {}
            for path, node in states.items():
                for step in (word, "*"):
                    if step != "#" and step in node._children:
                        following[(*path, step)] = node._children[step]
                if path and path[-1] == "#":
                    following[path] = node  # '#' swallows this word too
            states = _closure(following)
        for node in states.values():
            found.extend(node._bindings)
        return found


def _closure(states: dict[tuple[str, ...], TopicTrie]) -> dict[tuple[str, ...], TopicTrie]:
    """Every state, and those that a ``#`` reaches from it without a word."""
    waiting = deque(states.items())
    while waiting:
        path, node = waiting.popleft()
        child = node._children.get("#")
        if child is not None and (*path, "#") not in states:
            states[(*path, "#")] = child
            waiting.append(((*path, "#"), child))
    return states


def headers_match(arguments: Mapping[str, object], headers: Mapping[str, object]) -> bool:
    """Whether ``headers`` fit a headers binding. Its value None asks for presence only."""
    mode = arguments.get("x-match", "all")
    with_x = mode in ("all-with-x", "any-with-x")
    wanted = {
        name: value
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    }
    hits = (
        name in headers and (value is None or _same(headers[name], value))
        for name, value in wanted.items()
    )
    return all(hits) if str(mode).startswith("all") else any(hits)


def _same(left: object, right: object) -> bool:
    """Equal, and not merely as Python sees it: true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


class _Source:
    """The bindings out of one exchange, as its type wants to look them up."""

    def __init__(self) -> None:
        self.every: list[BindingRow] = []
        self.by_key: dict[str, list[BindingRow]] = {}
        self.topics = TopicTrie()

    def add(self, binding: BindingRow) -> None:
        self.every.append(binding)
        self.by_key.setdefault(binding.routing_key, []).append(binding)
        self.topics.add(binding)

    def match(
        self, exchange: ExchangeRow, keys: Sequence[str], headers: Mapping[str, object]
    ) -> list[BindingRow]:
        """Several keys may fit the same binding, which is then there several times."""
        if exchange.type == "direct":
            return [row for key in keys for row in self.by_key.get(key, ())]
        if exchange.type == "fanout":
            return self.every
        if exchange.type == "topic":
            return [row for key in keys for row in self.topics.match(key)]
        return [row for row in self.every if headers_match(row.arguments, headers)]


class RoutingTable:
    """All exchanges and bindings of a moment, indexed. ``alternates``: by vhost and name, the
    exchange that a policy gives to one for what it can't route."""

    def __init__(
        self,
        exchanges: Iterable[ExchangeRow],
        bindings: Iterable[BindingRow],
        alternates: Mapping[tuple[str, str], str] = NONE,
    ) -> None:
        self._exchanges = {(row.vhost, row.name): row for row in exchanges}
        self._alternates = alternates
        self._sources: dict[tuple[str, str], _Source] = {}
        for row in bindings:
            self._sources.setdefault((row.vhost, row.source), _Source()).add(row)

    def route(
        self, vhost: str, exchange: str, keys: Sequence[str], headers: Mapping[str, object]
    ) -> list[str]:
        """Names of the queues that a message published to ``exchange`` goes to."""
        queues: dict[str, None] = {}
        visited: dict[str, None] = {exchange: None}
        waiting = deque([exchange])
        while waiting:
            name = waiting.popleft()
            if name == "":
                queues.update(dict.fromkeys(keys))
                continue
            row = self._exchanges.get((vhost, name))
            if row is None:
                continue
            source = self._sources.get((vhost, name))
            matched = [] if source is None else source.match(row, keys, headers)
            onward = [binding.destination for binding in matched if binding.to_exchange]
            alternate = row.arguments.get(ALTERNATE, self._alternates.get((vhost, name)))
            if not matched and isinstance(alternate, str):
                onward.append(alternate)
            for binding in matched:
                if not binding.to_exchange:
                    queues[binding.destination] = None
            for destination in onward:
                if destination not in visited:
                    visited[destination] = None
                    waiting.append(destination)
        return list(queues)


class Router:
    """Routes over the node's own tables; indexes them again only when their rows have changed."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._rows: tuple[list[tuple[str, Record]], ...] = ()
        self._table = RoutingTable((), ())

    def exchange(self, vhost: str, name: str) -> ExchangeRow | None:
        """The default exchange exists even where it was not predeclared."""
        row = self._metadata.read("exchange", exchange_key(vhost, name))
        if isinstance(row, ExchangeRow):
            return row
        return predeclared_exchanges(vhost)[0] if name == "" else None

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        also: Sequence[str] = (),
    ) -> list[str]:
        """Names of queues, which may no longer (or not yet) exist. ``also``: more keys."""
        keys = (routing_key, *also)
        if exchange == "":
            return list(dict.fromkeys(keys))
        rows = tuple(map(self._metadata.rows, ("exchange", "binding", *POLICIES)))
        if rows != self._rows:  # cheap: unchanged rows are the same objects
            self._rows = rows
            exchanges = [row for _, row in rows[0] if isinstance(row, ExchangeRow)]
            self._table = RoutingTable(
                exchanges,
                [row for _, row in rows[1] if isinstance(row, BindingRow)],
                self._alternates(exchanges),
            )
        return self._table.route(vhost, exchange, keys, headers)

    def _alternates(self, exchanges: Iterable[ExchangeRow]) -> dict[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for row in exchanges:
            policies = in_force(self._metadata, row.vhost, row.name, "exchanges")
            alternate = policies.effective.get(ALTERNATE)
            if isinstance(alternate, str):
                found[row.vhost, row.name] = alternate
        return found


# -- changes, as transaction bodies ----------------------------------------------------------------

# Changes to exchanges and bindings as transaction bodies: pure over a Transaction, and safe to run
# more than once.
#
# An auto-delete exchange goes with its last outgoing binding and takes the
# bindings that lead to it along; so removals cascade (rabbit/rabbit_binding.erl does the same).


def declare_exchange(tx: Transaction, row: ExchangeRow) -> ExchangeRow:
    """Create it, or return the one that exists."""
    key = exchange_key(row.vhost, row.name)
    current = tx.read("exchange", key)
    if isinstance(current, ExchangeRow):
        return current
    tx.write("exchange", key, row)
    return row


def add_binding(tx: Transaction, row: BindingRow) -> str | None:
    """Bind. Returns what is missing, "exchange" or "queue", and then changes nothing."""
    source = tx.read("exchange", exchange_key(row.vhost, row.source))
    if not isinstance(source, ExchangeRow):
        return "exchange"
    destination: object
    if row.to_exchange:
        destination = tx.read("exchange", exchange_key(row.vhost, row.destination))
    else:
        key = queue_key(row.vhost, row.destination)
        destination = tx.read("queue", key) or tx.read("durable_queue", key)
    if not isinstance(destination, ExchangeRow | QueueRow):
        return "destination exchange" if row.to_exchange else "queue"
    if tx.read("binding", binding_key(row)) is None:
        tx.write("binding", binding_key(row), row)
    return None


def remove_binding(tx: Transaction, row: BindingRow) -> None:
    """Unbind, if it is bound."""
    key = binding_key(row)
    if tx.read("binding", key) is not None:
        tx.delete("binding", key)
        drop_unused(tx, row.vhost, [row.source])


def is_bound(tx: Transaction, vhost: str, exchange: str) -> bool:
    """Whether anything is bound to ``exchange`` as its source."""
    return any(row.source == exchange for _, row in _bindings(tx, vhost))


def drop_exchange(tx: Transaction, vhost: str, name: str) -> None:
    """Delete an exchange with every binding from it and to it."""
    tx.delete("exchange", exchange_key(vhost, name))
    sources = []
    for key, row in _bindings(tx, vhost):
        if row.source == name:
            tx.delete("binding", key)
        elif row.to_exchange and row.destination == name:
            tx.delete("binding", key)
            sources.append(row.source)
    drop_unused(tx, vhost, sources)


def drop_unused(tx: Transaction, vhost: str, names: Iterable[str]) -> None:
    """Delete those auto-delete exchanges among ``names`` that have no binding left."""
    for name in dict.fromkeys(names):
        row = tx.read("exchange", exchange_key(vhost, name))
        if isinstance(row, ExchangeRow) and row.auto_delete and not is_bound(tx, vhost, name):
            drop_exchange(tx, vhost, name)


def _bindings(tx: Transaction, vhost: str) -> list[tuple[str, BindingRow]]:
    return [
        (key, row)
        for key, row in tx.rows("binding")
        if isinstance(row, BindingRow) and row.vhost == vhost
    ]
