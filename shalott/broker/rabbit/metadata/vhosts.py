"""Virtual hosts: which there are, and how one comes and goes with all that is in it.

"/" is always there; RabbitMQ lets it be deleted. Rows of other tables have their vhost behind an @
in their keys, so a vhost's name has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import (
    BindingRow,
    ExchangeRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    Record,
    TopicPermissionRow,
    VhostRow,
    exchange_key,
)

TABLE = "vhost"
DEFAULT = "/"
# What goes with a vhost, besides its queues.
_Belonging = (
    BindingRow | PolicyRow | ExchangeRow | PermissionRow | TopicPermissionRow | ParameterRow
)
_BELONGING: Sequence[tuple[str, type[_Belonging]]] = (
    ("binding", BindingRow),
    ("policy", PolicyRow),
    ("operator_policy", PolicyRow),
    ("permission", PermissionRow),
    ("topic_permission", TopicPermissionRow),
    ("parameter", ParameterRow),
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
    return sorted(dict.fromkeys((DEFAULT, *(key for key, _ in tables.rows(TABLE)))))


def find(tables: Reads, vhost: str) -> VhostRow | None:
    row = tables.read(TABLE, vhost)
    if isinstance(row, VhostRow):
        return row
    default = VhostRow(name=DEFAULT, description="Default virtual host")
    return default if vhost == DEFAULT else None


def problem_of(vhost: str) -> str | None:
    """Why no vhost can have this name; None if one can."""
    if not vhost:
        return "a vhost needs a name"
    return "the name of a vhost can't have an @ here" if "@" in vhost else None


def add(tx: Transaction, vhost: str, exchanges: Iterable[ExchangeRow]) -> bool:
    """With the exchanges that each has from the start. False if it is there already."""
    if exists(tx, vhost):
        return False
    tx.write(TABLE, vhost, VhostRow(name=vhost))
    for row in exchanges:
        tx.write("exchange", exchange_key(row.vhost, row.name), row)
    return True


def describe(tx: Transaction, vhost: str, changes: Mapping[str, object]) -> None:
    """Change what is said of one that is there."""
    row = find(tx, vhost)
    if row is not None and changes:
        tx.write(TABLE, vhost, msgspec.structs.replace(row, **changes))


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
