"""Columns: what RabbitMQ's tools can list of each kind of thing, by name, and where the management
API has it.

rabbitmqctl's list_* verbs print these, its help names them, and /metrics takes its figures from the
same places. Names and order are those of rabbitmqctl 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

Row = Mapping[str, object]  # of the API's JSON
Source = str | Callable[[Row], object]  # a key, with dots between keys in each other
Columns = Mapping[str, Source]


def value(row: Row, source: Source) -> object:
    """None if there is none."""
    if not isinstance(source, str):
        return source(row)
    found: object = row
    for key in source.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def same(*names: str) -> Columns:
    return {name: name for name in names}


def empty(row: Row) -> object:
    """Of quorum queues, or of a certificate that no client has shown."""
    return None


def _erlang_version(row: Row) -> object:
    """A protocol's number as a tuple is written."""
    return "{0,9,1}" if row.get("protocol") == "AMQP 0-9-1" else row.get("protocol")


def _states(row: Row) -> object:
    """Node and state, as Erlang writes a list of pairs of atoms."""
    states = row.get("cluster_state")
    return [f"{{{n}, {each}}}" for n, each in states.items()] if isinstance(states, dict) else []


def _json(key: str) -> Source:
    return lambda row: msgspec.json.encode(row.get(key)).decode()


QUEUES: Mapping[str, Source] = {
    **same("arguments", "auto_delete", "consumer_capacity", "consumer_utilisation", "consumers"),
    **same("disk_reads", "disk_writes", "durable", "exclusive", "exclusive_consumer_pid"),
    **same("exclusive_consumer_tag", "head_message_timestamp"),
    "leader": empty,
    "members": empty,
    **same("memory", "message_bytes", "message_bytes_persistent", "message_bytes_ram"),
    **same("message_bytes_ready", "message_bytes_unacknowledged", "messages"),
    **same("messages_persistent", "messages_ram", "messages_ready", "messages_ready_ram"),
    **same("messages_unacknowledged", "messages_unacknowledged_ram", "name"),
    "online": empty,
    **same("owner_pid", "pid", "policy", "slave_pids", "state"),
    "synchronised_slave_pids": "sync_slave_pids",
    "type": "type",
}
# Which list_queues of 3.10 does not have: of before, and of after.
QUEUES_BESIDE: Mapping[str, Source] = {
    "vhost": "vhost",
    "mirror_pids": "slave_pids",
    "synchronised_mirror_pids": "sync_slave_pids",
    **same("operator_policy", "effective_policy_definition", "gm_pids", "recoverable_slaves"),
}
CONNECTIONS: Mapping[str, Source] = {
    **same("auth_mechanism", "channel_max", "channels", "client_properties", "connected_at"),
    **same("frame_max", "host", "name", "peer_cert_issuer", "peer_cert_subject"),
    **same("peer_cert_validity", "peer_host", "peer_port", "pid", "port"),
    "protocol": _erlang_version,
    **same("recv_cnt", "recv_oct", "send_cnt", "send_oct", "send_pend", "ssl", "ssl_cipher"),
    **same("ssl_hash", "ssl_key_exchange", "ssl_protocol", "state", "timeout", "user", "vhost"),
}
CHANNELS: Mapping[str, Source] = {
    **same("acks_uncommitted", "confirm"),
    "connection": "connection_details.pid",
    **same("consumer_count", "global_prefetch_count", "messages_unacknowledged"),
    **same("messages_uncommitted", "messages_unconfirmed", "name", "number", "pid"),
    **same("prefetch_count", "transactional", "user", "vhost"),
}
CONSUMERS: Mapping[str, Source] = {
    **same("ack_required", "active", "activity_status", "arguments"),
    "channel_pid": "channel_details.pid",
    **same("consumer_tag", "prefetch_count"),
    "queue_name": "queue.name",
}
EXCHANGES: Mapping[str, Source] = same(
    *("arguments", "auto_delete", "durable", "internal", "name", "policy", "type")
)
BINDINGS: Mapping[str, Source] = {
    "arguments": "arguments",
    "destination_kind": "destination_type",
    "destination_name": "destination",
    "routing_key": "routing_key",
    "source_kind": lambda row: "exchange",
    "source_name": "source",
}
VHOSTS: Mapping[str, Source] = {
    "cluster_state": _states,
    **same("default_queue_type", "description", "name", "tags", "tracing"),
}
PERMISSIONS: Mapping[str, Source] = same("user", "configure", "write", "read")
USER_PERMISSIONS: Mapping[str, Source] = same("vhost", "configure", "write", "read")
TOPIC_PERMISSIONS: Mapping[str, Source] = same("user", "exchange", "write", "read")
USER_TOPIC_PERMISSIONS: Mapping[str, Source] = same("vhost", "exchange", "write", "read")
USERS: Mapping[str, Source] = {"user": "name", "tags": "tags"}
POLICIES: Mapping[str, Source] = {
    **same("vhost", "name", "pattern", "apply-to"),
    "definition": _json("definition"),
    "priority": "priority",
}
PARAMETERS: Mapping[str, Source] = {**same("component", "name"), "value": _json("value")}
GLOBAL_PARAMETERS: Mapping[str, Source] = {"name": "name", "value": _json("value")}
VHOST_LIMITS: Mapping[str, Source] = {"vhost": "vhost", "limits": _json("value")}
USER_LIMITS: Mapping[str, Source] = {"user": "user", "limits": _json("value")}
