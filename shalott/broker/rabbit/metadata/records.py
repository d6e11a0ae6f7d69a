"""The rows of the replicated metadata tables.

RabbitMQ keeps these in Mnesia (rabbit/rabbit_amqqueue.erl, gm.erl, rabbit_policy.erl). As there, a
durable queue has two rows: ``queue`` is the live one with every process in it and is in memory
only; ``durable_queue`` is on disk, keeps the definition and the last master, and is what a
restarted cluster recovers from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from shalott.broker.rabbit.processes.messages import Pid

ExchangeType = Literal["direct", "fanout", "topic", "headers"]


class QueueRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="queue"):
    """A queue. Mirrors are in order of joining: the first is the oldest and is promoted first."""

    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    exclusive_owner: Pid | None = None  # the connection's process
    arguments: dict[str, object] = {}
    pid: Pid | None = None  # the master
    slave_pids: tuple[Pid, ...] = ()
    sync_slave_pids: tuple[Pid, ...] = ()
    # GM members that belong to (queue process, group member id): they share one process here
    gm_pids: tuple[Pid, ...] = ()
    slave_pids_pending_shutdown: tuple[Pid, ...] = ()
    recoverable_slaves: tuple[str, ...] = ()  # nodes that had a mirror when last seen
    state: Literal["live", "crashed", "stopped"] = "live"
    policy: str | None = None  # name of the policy in force
    definition: dict[str, object] = {}  # its definition
    policy_version: int = 0

    @property
    def key(self) -> str:
        return queue_key(self.vhost, self.name)


class ExchangeRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="exchange"):
    vhost: str
    name: str
    type: ExchangeType
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, object] = {}


class BindingRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="binding"):
    """From an exchange to a queue or, if ``to_exchange``, to an exchange."""

    vhost: str
    source: str
    destination: str
    to_exchange: bool = False
    routing_key: str = ""
    arguments: dict[str, object] = {}
    durable: bool = True


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="policy"):
    """A policy as RabbitMQ's management API shows it. ``pattern`` is a regular expression on the
    name.
    """

    vhost: str
    name: str
    pattern: str
    definition: dict[str, object]
    priority: int = 0
    apply_to: Literal["all", "queues", "exchanges"] = "all"


class GroupRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="group"):
    """A GM group (#gm_group): members in ring order, the dead among them until their messages are
    settled.
    """

    name: str
    version: int
    members: tuple[GroupMember, ...]


class MemberId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A GM member: the group's version when it joined, and its process."""

    version: int
    pid: Pid


class GroupMember(msgspec.Struct, frozen=True, array_like=True):
    id: MemberId
    alive: bool = True


class ForgottenRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="forgotten"):
    """A node that the cluster was told to forget (membership.py)."""

    node: str


class VhostRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="vhost"):
    """A virtual host; "/" is always there, with a row only if it was described anew (vhosts.py)."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    tracing: bool = False


class PermissionRow(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="permission"
):
    """What a user may do in a vhost: regular expressions on names (permissions.py). Not
    ``granted``: nothing, not even to open a connection."""

    user: str
    vhost: str
    configure: str = ""
    write: str = ""
    read: str = ""
    granted: bool = True


class TopicPermissionRow(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="topic_permission"
):
    """What a user may do with which routing keys of a topic exchange (permissions.py)."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class UserRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="user"):
    """A user, or one of the configuration that was changed (users.py). ``password_hash``: as in
    definitions, "" never fits. ``gone``: deleted, though the configuration names it."""

    name: str
    password_hash: str = ""
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = {}
    gone: bool = False


class ParameterRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="parameter"):
    """A runtime parameter; one without component and vhost is the cluster's (parameters.py)."""

    name: str
    value: object
    component: str = ""
    vhost: str = ""


Record = (
    QueueRow
    | ExchangeRow
    | BindingRow
    | PolicyRow
    | GroupRow
    | ForgottenRow
    | VhostRow
    | PermissionRow
    | TopicPermissionRow
    | UserRow
    | ParameterRow
)

# table -> whether it is kept on disk. Keys: see the functions below.
TABLES: Mapping[str, bool] = {
    "queue": False,
    "durable_queue": True,
    "exchange": True,
    "binding": True,
    "policy": True,
    "gm_group": False,
    "forgotten": True,
    "vhost": True,
    "operator_policy": True,
    "permission": True,
    "topic_permission": True,
    "user": True,
    "parameter": True,
}


def queue_key(vhost: str, name: str) -> str:
    """Key of queue, durable_queue and gm_group rows."""
    return f"{name}@{vhost}"


def exchange_key(vhost: str, name: str) -> str:
    return f"{name}@{vhost}"


def policy_key(vhost: str, name: str) -> str:
    return f"{name}@{vhost}"


def binding_key(row: BindingRow) -> str:
    kind = "exchange" if row.to_exchange else "queue"
    arguments = msgspec.json.encode(row.arguments, order="deterministic").decode()
    return f"{row.source}>{kind}:{row.destination}#{row.routing_key}@{row.vhost}{arguments}"
