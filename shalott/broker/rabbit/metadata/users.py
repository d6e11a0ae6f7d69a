"""Users: who they are, their passwords' hashes, and the tags that say what they may manage.

After rabbit/rabbit_auth_backend_internal.erl and rabbit_password.erl. Those of a node's
configuration are there from the start, as administrators, as RabbitMQ's default user is; a row says
otherwise, also that one is gone. A hash is four bytes of salt and the digest of salt and password,
in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping

import msgspec

from shalott.broker.rabbit.metadata import permissions
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.permissions import Reads
from shalott.broker.rabbit.metadata.records import PermissionRow, TopicPermissionRow, UserRow
from shalott.broker.rabbit.metadata.vhosts import DEFAULT

TABLE = "user"
ADMINISTRATOR = "administrator"
SALT_BYTES = 4
DEFAULT_ALGORITHM = "rabbit_password_hashing_sha256"
ALGORITHMS: Mapping[str, Callable[[bytes], bytes]] = {
    DEFAULT_ALGORITHM: lambda data: hashlib.sha256(data).digest(),
    "rabbit_password_hashing_sha512": lambda data: hashlib.sha512(data).digest(),
    "rabbit_password_hashing_md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
}
LIMITS = ("max-connections", "max-channels")


def hash_password(password: str, salt: bytes, algorithm: str = DEFAULT_ALGORITHM) -> str:
    digest = ALGORITHMS[algorithm](salt + password.encode())
    return base64.b64encode(salt + digest).decode()


def fits(row: UserRow, password: str) -> bool:
    """Whether it is the user's. An empty one fits no one."""
    try:
        salt = base64.b64decode(row.password_hash, validate=True)[:SALT_BYTES]
    except (binascii.Error, ValueError):
        return False
    if not password or not row.password_hash or row.hashing_algorithm not in ALGORITHMS:
        return False
    own = hash_password(password, salt, row.hashing_algorithm)
    return hmac.compare_digest(own, row.password_hash)


class Users:
    """As a node sees them. ``configured``: names and passwords of its configuration."""

    def __init__(self, tables: Reads, configured: Mapping[str, str]) -> None:
        self._tables = tables
        self._configured = configured

    def find(self, name: str) -> UserRow | None:
        row = self._tables.read(TABLE, name)
        if isinstance(row, UserRow):
            return None if row.gone else row
        password = self._configured.get(name)
        if password is None:
            return None
        salt = hashlib.sha256(name.encode()).digest()[:SALT_BYTES]  # the same each time
        return UserRow(
            name=name, password_hash=hash_password(password, salt), tags=(ADMINISTRATOR,)
        )

    def all(self) -> list[UserRow]:
        """By name."""
        names = sorted(
            dict.fromkeys((*self._configured, *(key for key, _ in self._tables.rows(TABLE))))
        )
        return [row for name in names if (row := self.find(name)) is not None]

    def authenticate(self, name: str, password: str) -> UserRow | None:
        """None for a stranger, and for a wrong password."""
        row = self.find(name)
        return row if row is not None and fits(row, password) else None


def is_changed(tables: Reads, name: str) -> bool:
    """Whether the table knows the name, and not only the configuration."""
    return tables.read(TABLE, name) is not None


def put(tx: Transaction, row: UserRow, configured: Mapping[str, str]) -> bool:
    """Write it. A new one may do nothing anywhere, "/" included. False if it was there."""
    is_new = Users(tx, configured).find(row.name) is None
    tx.write(TABLE, row.name, row)
    if is_new:
        permissions.withdraw(tx, DEFAULT, row.name)
    return is_new


def limit(
    tx: Transaction, name: str, configured: Mapping[str, str], what: str, value: int | None
) -> None:
    """None clears it. Of a user that is there."""
    row = Users(tx, configured).find(name)
    if row is not None:
        limits = {key: each for key, each in row.limits.items() if key != what}
        if value is not None:
            limits[what] = value
        tx.write(TABLE, name, msgspec.structs.replace(row, limits=limits))


def delete(tx: Transaction, name: str, configured: Mapping[str, str]) -> bool:
    """With its permissions. False if there is none."""
    if Users(tx, configured).find(name) is None:
        return False
    if name in configured:
        tx.write(TABLE, name, UserRow(name=name, gone=True))
    else:
        tx.delete(TABLE, name)
    for table in (permissions.TABLE, permissions.TOPIC_TABLE):
        for key, row in tx.rows(table):
            if isinstance(row, PermissionRow | TopicPermissionRow) and row.user == name:
                tx.delete(table, key)
    permissions.withdraw(tx, DEFAULT, name)
    return True
