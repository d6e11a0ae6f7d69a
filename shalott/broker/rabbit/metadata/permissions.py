"""What a user may do in a virtual host: configure, write and read, each a pattern on names.

After rabbit/rabbit_auth_backend_internal.erl. Users are those of the nodes' configuration. In "/"
each of them may do everything until an operator says otherwise, as RabbitMQ's guest may; in another
vhost nothing, and can't even open a connection to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import PermissionRow, Record, TopicPermissionRow
from shalott.broker.rabbit.metadata.vhosts import DEFAULT

TABLE = "permission"
TOPIC_TABLE = "topic_permission"
EVERYTHING = ".*"
DEFAULT_EXCHANGE = "amq.default"  # what the exchange without a name is called here

Right = Literal["configure", "write", "read"]


class Reads(Protocol):
    """Tables, or a node's view of them."""

    def read(self, table: str, key: str) -> Record | None: ...

    def rows(self, table: str) -> Sequence[tuple[str, Record]]: ...


def permission_key(vhost: str, user: str) -> str:
    return f"{user}@{vhost}"


def everything(vhost: str, user: str) -> PermissionRow:
    return PermissionRow(
        user=user, vhost=vhost, configure=EVERYTHING, write=EVERYTHING, read=EVERYTHING
    )


def find(tables: Reads, vhost: str, user: str) -> PermissionRow | None:
    """None: the user has no business there."""
    row = tables.read(TABLE, permission_key(vhost, user))
    if isinstance(row, PermissionRow):
        return row if row.granted else None
    return everything(vhost, user) if vhost == DEFAULT else None


def of_vhost(tables: Reads, vhost: str, users: Iterable[str]) -> list[PermissionRow]:
    """Of the users who have some, by name."""
    found = (find(tables, vhost, user) for user in sorted(users))
    return [row for row in found if row is not None]


def problem_of(*patterns: str) -> str | None:
    """Why these patterns can't be; None if they can."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} is not a regular expression: {error}"
    return None


def grant(tx: Transaction, row: PermissionRow) -> bool:
    """False if there were some before."""
    is_new = find(tx, row.vhost, row.user) is None
    tx.write(TABLE, permission_key(row.vhost, row.user), row)
    return is_new


def withdraw(tx: Transaction, vhost: str, user: str) -> bool:
    """False if there were none."""
    if find(tx, vhost, user) is None:
        return False
    none = PermissionRow(user=user, vhost=vhost, granted=False)
    tx.write(TABLE, permission_key(vhost, user), none)
    return True


# -- topics ----------------------------------------------------------------------------------------


def topic_key(vhost: str, user: str, exchange: str) -> str:
    return f"{user}>{exchange}@{vhost}"


def topic_rows(tables: Reads) -> list[TopicPermissionRow]:
    return [row for _, row in tables.rows(TOPIC_TABLE) if isinstance(row, TopicPermissionRow)]


def grant_topics(tx: Transaction, row: TopicPermissionRow) -> bool:
    """False if there was one before."""
    key = topic_key(row.vhost, row.user, row.exchange)
    is_new = tx.read(TOPIC_TABLE, key) is None
    tx.write(TOPIC_TABLE, key, row)
    return is_new


def withdraw_topics(tx: Transaction, vhost: str, user: str, exchange: str | None = None) -> bool:
    """Of one exchange, or of all. False if there were none."""
    keys = [
        key
        for key, row in tx.rows(TOPIC_TABLE)
        if isinstance(row, TopicPermissionRow)
        and (row.vhost, row.user) == (vhost, user)
        and exchange in (None, row.exchange)
    ]
    for key in keys:
        tx.delete(TOPIC_TABLE, key)
    return bool(keys)


# -- as often as they are asked --------------------------------------------------------------------


class Permissions:
    """One user's in one vhost, as often as they are asked: patterns are searched once a name."""

    def __init__(self, tables: Reads, vhost: str, user: str) -> None:
        self._tables = tables
        self._vhost = vhost
        self._user = user
        self._row: PermissionRow | None = None
        self._known: dict[tuple[Right, str], bool] = {}

    def allow(self, right: Right, name: str) -> bool:
        row = find(self._tables, self._vhost, self._user)
        if row is None:
            return False
        if row != self._row:
            self._row = row
            self._known.clear()
        key = (right, name or DEFAULT_EXCHANGE)
        if key not in self._known:
            pattern: str = getattr(row, right)
            self._known[key] = pattern == EVERYTHING or _fits(pattern, key[1])
        return self._known[key]


def may_topic(
    tables: Reads, vhost: str, user: str, exchange: str, right: Literal["write", "read"], key: str
) -> bool:
    """Whether the user may publish to a topic exchange, or bind to it, with this routing key.
    Without a row, yes; {username} and {vhost} stand for themselves in the patterns."""
    row = tables.read(TOPIC_TABLE, topic_key(vhost, user, exchange))
    if not isinstance(row, TopicPermissionRow):
        return True
    pattern = row.write if right == "write" else row.read
    return _fits(pattern.replace("{username}", user).replace("{vhost}", vhost), key)


def _fits(pattern: str, name: str) -> bool:
    """An empty pattern fits nothing but an empty name, as in RabbitMQ."""
    return re.search(pattern or "^$", name) is not None
