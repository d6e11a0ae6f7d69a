"""Changes to exchanges and bindings as transaction bodies: pure over a Transaction, and safe to run
more than once.

An auto-delete exchange goes with its last outgoing binding, whoever removes that, and takes the
bindings that lead to it along; so removals cascade (rabbit/rabbit_binding.erl does the same).
"""

from __future__ import annotations

from collections.abc import Iterable

from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import (
    BindingRow,
    ExchangeRow,
    QueueRow,
    binding_key,
    exchange_key,
    queue_key,
)


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
