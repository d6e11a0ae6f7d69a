"""Virtual hosts: which there are, and how one comes and goes with all that is in it.

"/" is always there; RabbitMQ lets it be deleted. Rows of other tables have their vhost behind an @
in their keys, so a vhost's name has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import (
    BindingRow,
    ExchangeRow,
    PermissionRow,
    PolicyRow,
    Record,
    VhostRow,
    exchange_key,
)

TABLE = "vhost"
DEFAULT = "/"
# What goes with a vhost, besides its queues.
_BELONGING: Sequence[tuple[str, type[BindingRow | PolicyRow | ExchangeRow | PermissionRow]]] = (
    ("binding", BindingRow),
    ("policy", PolicyRow),
    ("operator_policy", PolicyRow),
    ("permission", PermissionRow),
    ("exchange", ExchangeRow),
)


class Reads(Protocol):
    """Tables, or a node's view of them."""

    def read(self, table: str, key: str) -> Record | None: ...

    def rows(self, table: str) -> Sequence[tuple[str, Record]]: ...


def exists(tables: Reads, vhost: str) -> bool:
    return vhost == DEFAULT or tables.read(TABLE, vhost) is not None


def names(tables: Reads) -> list[str]:
    """All of them, in order."""
    return sorted([DEFAULT, *(key for key, _ in tables.rows(TABLE))])


def problem_of(vhost: str) -> str | None:
    """Why no vhost can have this name; None if one can."""
    if not vhost:
        return "a vhost needs a name"
    return "the name of a vhost can't have an @ here" if "@" in vhost else None


def add(tx: Transaction, vhost: str, exchanges: Iterable[ExchangeRow]) -> bool:
    """With the exchanges that each has from the start. False if it is there already."""
    if vhost == DEFAULT or tx.read(TABLE, vhost) is not None:
        return False
    tx.write(TABLE, vhost, VhostRow(name=vhost))
    for row in exchanges:
        tx.write("exchange", exchange_key(row.vhost, row.name), row)
    return True


def drop(tx: Transaction, vhost: str) -> bool:
    """With its exchanges, bindings, policies and permissions; its queues are gone. False if there
    is none.
    """
    if tx.read(TABLE, vhost) is None:
        return False
    for table, kind in _BELONGING:
        for key, row in tx.rows(table):
            if isinstance(row, kind) and row.vhost == vhost:
                tx.delete(table, key)
    tx.delete(TABLE, vhost)
    return True
