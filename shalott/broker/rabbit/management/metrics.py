"""/metrics: this node's figures for Prometheus, under the names, types and texts of
rabbitmq_prometheus 3.10.

/metrics has sums, /metrics/per-object a line for each queue, connection and channel,
/metrics/detailed?family=NAME&vhost=NAME those of one family. As there, a queue is told by the node
that has its master, a client by its own node. Figures are taken when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shalott.broker.base.http_api import Request, Response, not_found
from shalott.broker.rabbit.amqp.counts import (
    CHANNELS_CLOSED,
    CHANNELS_OPENED,
    DEAD,
    DELIVERED,
    EXPECTED,
    OPENED,
    PUBLISHERS,
    ROUTED,
)
from shalott.broker.rabbit.config import RABBITMQ_VERSION
from shalott.broker.rabbit.management import columns
from shalott.broker.rabbit.management.backend import ManagementBackend, Route, queue_rows
from shalott.broker.rabbit.management.clients import clients_of_node
from shalott.broker.rabbit.management.nodes import view_node
from shalott.broker.rabbit.management.parameters import cluster_name
from shalott.broker.rabbit.management.queues import view_queues

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["gauge", "counter", "untyped"]
Of = Literal["node", "queue", "connection", "channel"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``source``: as of a column. ``family``: of /metrics/detailed."""

    name: str
    kind: Kind
    text: str
    source: columns.Source
    of: Of = "node"
    family: str = ""
    divided_by: int = 1


def _queue(
    name: str, text: str, source: str, family: str = "queue_metrics", kind: Kind = "gauge"
) -> Metric:
    return Metric(f"queue_{name}", kind, text, source, "queue", family)


def _connection(
    name: str, text: str, source: str, family: str = "connection_coarse_metrics"
) -> Metric:
    kind: Kind = "counter" if name.endswith("_total") else "gauge"
    return Metric(f"connection_{name}", kind, text, source, "connection", family)


def _channel(name: str, text: str, source: str) -> Metric:
    return Metric(name, "gauge", text, source, "channel", "channel_metrics")


def _counted(name: str, text: str, count: str) -> Metric:
    """Of a channel, what it has done."""
    source, text = f"message_stats.{count}", f"Total number of {text}"
    return Metric(f"channel_{name}_total", "counter", text, source, "channel")


_OPTIONAL = "messages published as non-mandatory into an exchange"
_MANDATORY = "messages published as mandatory into an exchange"
_MODE = "acknowledgement mode"
METRICS: Sequence[Metric] = (
    Metric(
        "alarms_free_disk_space_watermark",
        "untyped",
        "is 1 if free disk space watermark alarm is in effect",
        "disk_free_alarm",
    ),
    Metric(
        "alarms_memory_used_watermark",
        "untyped",
        "is 1 if VM memory watermark alarm is in effect",
        "mem_alarm",
    ),
    Metric("connections_opened_total", "counter", "Total number of connections opened", OPENED),
    Metric(
        "connections_closed_total",
        "counter",
        "Total number of connections closed or terminated",
        "closed",
    ),
    Metric("channels_opened_total", "counter", "Total number of channels opened", CHANNELS_OPENED),
    Metric("channels_closed_total", "counter", "Total number of channels closed", CHANNELS_CLOSED),
    Metric("process_open_tcp_sockets", "gauge", "Open TCP sockets", "connections"),
    Metric("process_resident_memory_bytes", "gauge", "Memory used in bytes", "mem_used"),
    Metric("disk_space_available_bytes", "gauge", "Disk space available in bytes", "disk_free"),
    Metric("resident_memory_limit_bytes", "gauge", "Memory high watermark in bytes", "mem_limit"),
    Metric(
        "disk_space_available_limit_bytes",
        "gauge",
        "Free disk space low watermark in bytes",
        "disk_free_limit",
    ),
    Metric("erlang_net_ticktime_seconds", "gauge", "Inter-node heartbeat interval", "net_ticktime"),
    Metric("erlang_uptime_seconds", "gauge", "Node uptime", "uptime", divided_by=1000),
    Metric("connections", "gauge", "Connections currently open", "connections"),
    Metric("channels", "gauge", "Channels currently open", "channels"),
    Metric("consumers", "gauge", "Consumers currently connected", "consumers"),
    Metric("queues", "gauge", "Queues available", "queues"),
    _queue(
        "messages_ready",
        "Messages ready to be delivered to consumers",
        "messages_ready",
        "queue_coarse_metrics",
    ),
    _queue(
        "messages_unacked",
        "Messages delivered to consumers but not yet acknowledged",
        "messages_unacknowledged",
        "queue_coarse_metrics",
    ),
    _queue(
        "messages",
        "Sum of ready and unacknowledged messages - total queue depth",
        "messages",
        "queue_coarse_metrics",
    ),
    _queue("consumers", "Consumers on a queue", "consumers", "queue_consumer_count"),
    _queue("consumer_capacity", "Consumer capacity", "consumer_capacity"),
    _queue("consumer_utilisation", "Same as consumer capacity", "consumer_utilisation"),
    _queue("process_memory_bytes", "Memory in bytes used by the Erlang queue process", "memory"),
    _queue("messages_ram", "Ready and unacknowledged messages stored in memory", "messages_ram"),
    _queue(
        "messages_ram_bytes",
        "Size of ready and unacknowledged messages stored in memory",
        "message_bytes_ram",
    ),
    _queue("messages_ready_ram", "Ready messages stored in memory", "messages_ready_ram"),
    _queue(
        "messages_unacked_ram",
        "Unacknowledged messages stored in memory",
        "messages_unacknowledged_ram",
    ),
    _queue("messages_persistent", "Persistent messages", "messages_persistent"),
    _queue(
        "messages_persistent_bytes",
        "Size in bytes of persistent messages",
        "message_bytes_persistent",
    ),
    _queue(
        "messages_bytes",
        "Size in bytes of ready and unacknowledged messages",
        "message_bytes",
    ),
    _queue("messages_ready_bytes", "Size in bytes of ready messages", "message_bytes_ready"),
    _queue(
        "messages_unacked_bytes",
        "Size in bytes of all unacknowledged messages",
        "message_bytes_unacknowledged",
    ),
    _queue("messages_paged_out", "Messages paged out to disk", "messages_paged_out"),
    _queue(
        "messages_paged_out_bytes",
        "Size in bytes of messages paged out to disk",
        "message_bytes_paged_out",
    ),
    _queue(
        "head_message_timestamp",
        "Timestamp of the first message in the queue, if any",
        "head_message_timestamp",
    ),
    _queue(
        "disk_reads_total",
        "Total number of times queue read messages from disk",
        "disk_reads",
        kind="counter",
    ),
    _queue(
        "disk_writes_total",
        "Total number of times queue wrote messages to disk",
        "disk_writes",
        kind="counter",
    ),
    _queue(
        "messages_published_total",
        "Total number of messages published to queues",
        "message_stats.publish",
        "queue_delivery_metrics",
        kind="counter",
    ),
    _connection(
        "incoming_bytes_total", "Total number of bytes received on a connection", "recv_oct"
    ),
    _connection("outgoing_bytes_total", "Total number of bytes sent on a connection", "send_oct"),
    _connection(
        "incoming_packets_total",
        "Total number of packets received on a connection",
        "recv_cnt",
        "connection_metrics",
    ),
    _connection(
        "outgoing_packets_total",
        "Total number of packets sent on a connection",
        "send_cnt",
        "connection_metrics",
    ),
    _connection(
        "pending_packets",
        "Number of packets waiting to be sent on a connection",
        "send_pend",
        "connection_metrics",
    ),
    _connection("channels", "Channels on a connection", "channels", "connection_metrics"),
    _channel("channel_consumers", "Consumers on a channel", "consumer_count"),
    _channel(
        "channel_messages_unacked",
        "Delivered but not yet acknowledged messages",
        "messages_unacknowledged",
    ),
    _channel(
        "channel_messages_unconfirmed",
        "Published but not yet confirmed messages",
        "messages_unconfirmed",
    ),
    _channel(
        "channel_messages_uncommitted",
        "Messages received in a transaction but not yet committed",
        "messages_uncommitted",
    ),
    _channel(
        "channel_acks_uncommitted",
        "Message acknowledgements in a transaction not yet committed",
        "acks_uncommitted",
    ),
    _channel(
        "consumer_prefetch",
        "Limit of unacknowledged messages for each consumer",
        "prefetch_count",
    ),
    _channel(
        "channel_prefetch",
        "Total limit of unacknowledged messages for all consumers on a channel",
        "global_prefetch_count",
    ),
    _counted("messages_published", "messages published into an exchange on a channel", "publish"),
    _counted(
        "messages_confirmed",
        "messages published into an exchange and confirmed on the channel",
        "confirm",
    ),
    _counted(
        "messages_unroutable_returned",
        f"{_MANDATORY} and returned to the publisher as unroutable",
        "return_unroutable",
    ),
    _counted(
        "messages_unroutable_dropped",
        f"{_OPTIONAL} and dropped as unroutable",
        "drop_unroutable",
    ),
    _counted("get_ack", f"messages fetched with basic.get in manual {_MODE}", "get"),
    _counted("get", f"messages fetched with basic.get in automatic {_MODE}", "get_no_ack"),
    _counted(
        "messages_delivered_ack", f"messages delivered to consumers in manual {_MODE}", "deliver"
    ),
    _counted(
        "messages_delivered",
        f"messages delivered to consumers in automatic {_MODE}",
        "deliver_no_ack",
    ),
    _counted("messages_redelivered", "messages redelivered to consumers", "redeliver"),
    _counted("messages_acked", "messages acknowledged by consumers", "ack"),
    _counted("get_empty", "times basic.get operations fetched no message", "get_empty"),
)


@dataclass(frozen=True, slots=True)
class Global:
    """Of all clients since the broker started, the sum of ``counts``."""

    name: str
    text: str
    counts: Sequence[str]
    labels: Mapping[str, str]

    @property
    def kind(self) -> Kind:
        return "counter" if self.name.endswith("_total") else "gauge"


_AMQP: Mapping[str, str] = {"protocol": "amqp091"}
_CLASSIC: Mapping[str, str] = {**_AMQP, "queue_type": "rabbit_classic_queue"}
_CONSUME, _GET = (
    "delivered to consumers using basic.consume",
    "delivered to consumers using basic.get",
)


def _received(name: str, text: str, *counts: str) -> Global:
    return Global(f"messages_{name}_total", f"Total number of {text}", counts, _AMQP)


def _delivered(name: str, text: str, *counts: str) -> Global:
    return Global(f"messages_{name}_total", f"Total number of {text}", counts, _CLASSIC)


def _dead_lettered(reason: str, cause: str) -> Global:
    labels = {"queue_type": _CLASSIC["queue_type"], "dead_letter_strategy": "at_most_once"}
    text = f"Total number of messages dead-lettered due to {cause}"
    return Global(f"messages_dead_lettered_{reason}_total", text, (DEAD + reason,), labels)


GLOBALS: Sequence[Global] = (
    _delivered("acknowledged", "messages acknowledged by consumers", "ack"),
    _received("confirmed", "messages confirmed to publishers", "confirm"),
    _dead_lettered("expired", "message TTL exceeded"),
    _dead_lettered("maxlen", "overflow drop-head or reject-publish-dlx"),
    _dead_lettered("rejected", "basic.reject or basic.nack"),
    _delivered(
        "delivered_consume_auto_ack",
        f"messages {_CONSUME} with automatic acknowledgment",
        "deliver_no_ack",
    ),
    _delivered(
        "delivered_consume_manual_ack", f"messages {_CONSUME} with manual acknowledgment", "deliver"
    ),
    _delivered(
        "delivered_get_auto_ack", f"messages {_GET} with automatic acknowledgment", "get_no_ack"
    ),
    _delivered("delivered_get_manual_ack", f"messages {_GET} with manual acknowledgment", "get"),
    _delivered("delivered", "messages delivered to consumers", *DELIVERED),
    _delivered("get_empty", "times basic.get operations fetched no message", "get_empty"),
    _received(
        "received_confirm", "messages received from publishers expecting confirmations", EXPECTED
    ),
    _received("received", "messages received from publishers", "publish"),
    _delivered("redelivered", "messages redelivered to consumers", "redeliver"),
    _received("routed", "messages routed to queues or streams", ROUTED),
    _received("unroutable_dropped", f"{_OPTIONAL} and dropped as unroutable", "drop_unroutable"),
    _received(
        "unroutable_returned",
        f"{_MANDATORY} and returned to the publisher as unroutable",
        "return_unroutable",
    ),
    Global("consumers", "Current number of consumers", ("consumers",), _AMQP),
    Global("publishers", "Current number of publishers", (PUBLISHERS,), _AMQP),
)
# What tells one from the others, by kind: label and source.
LABELS: Mapping[Of, columns.Columns] = {
    "node": {},
    "queue": {"vhost": "vhost", "queue": "name"},
    "connection": {"connection": "pid"},
    "channel": {"channel": "pid"},
}
Rows = Sequence[columns.Row]


async def _rows(backend: ManagementBackend) -> Mapping[Of, Rows]:
    own = [
        row
        for row in queue_rows(backend)
        if row.pid is not None and row.pid.node == backend.config.name
    ]
    connections = clients_of_node(backend, "connections")
    channels = clients_of_node(backend, "channels")
    node = {
        **await view_node(backend, backend.config.name),
        **dict.fromkeys((OPENED, CHANNELS_OPENED, CHANNELS_CLOSED), 0),
        **backend.counts.every(),
        "closed": backend.counts.of(OPENED) - len(connections),
        "connections": len(connections),
        "channels": len(channels),
        "consumers": len(clients_of_node(backend, "consumers")),
        "queues": len(own),
    }
    return {
        "node": [node],
        "queue": await view_queues(backend, own),
        "connection": connections,
        "channel": channels,
    }


def _figure(metric: Metric, row: columns.Row) -> float | None:
    found = columns.value(row, metric.source)
    if not isinstance(found, bool | int | float):
        return None
    return found / metric.divided_by if metric.divided_by > 1 else found


def _summed(metric: Metric, rows: Rows) -> list[str]:
    found = [figure for row in rows if (figure := _figure(metric, row)) is not None]
    name = f"rabbitmq_{metric.name}"
    if metric.name == "queue_head_message_timestamp":
        return []  # of many there is no sum
    return [f"{name} {_written(sum(found))}"]


def _each(metric: Metric, rows: Rows, prefix: str) -> list[str]:
    lines = []
    for row in rows:
        figure = _figure(metric, row)
        if figure is None:
            continue
        labels = _labels(
            {name: str(columns.value(row, at)) for name, at in LABELS[metric.of].items()}
        )
        lines.append(f"{prefix}{metric.name}{labels} {_written(figure)}")
    return lines


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (f'{name}="{_escaped(text)}"' for name, text in labels.items())
    joined = ",".join(pairs)
    return f"{{{joined}}}" if joined else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _written(figure: float) -> str:
    return str(int(figure)) if isinstance(figure, bool | int) else repr(figure)


def _head(metric: Metric, prefix: str) -> list[str]:
    name = f"{prefix}{metric.name}"
    return [f"# TYPE {name} {metric.kind}", f"# HELP {name} {metric.text}"]


def _information(backend: ManagementBackend) -> list[str]:
    """Who this is: its labels are what is told."""
    version = {"rabbitmq_version": RABBITMQ_VERSION, "prometheus_plugin_version": RABBITMQ_VERSION}
    identity = {
        "rabbitmq_node": backend.config.name,
        "rabbitmq_cluster": cluster_name(backend),
        "rabbitmq_cluster_permanent_id": "",
    }
    return [
        "# TYPE rabbitmq_build_info untyped",
        "# HELP rabbitmq_build_info RabbitMQ & Erlang/OTP version info",
        f"rabbitmq_build_info{_labels(version)} 1",
        "# TYPE rabbitmq_identity_info untyped",
        "# HELP rabbitmq_identity_info RabbitMQ node & cluster identity info",
        f"rabbitmq_identity_info{_labels(identity)} 1",
    ]


def _globals(node: columns.Row) -> list[str]:
    lines = []
    for each in GLOBALS:
        name = f"rabbitmq_global_{each.name}"
        figure = sum(count for key in each.counts if isinstance(count := node.get(key), int))
        lines += [f"# TYPE {name} {each.kind}", f"# HELP {name} {each.text}"]
        lines.append(f"{name}{_labels(each.labels)} {figure}")
    return lines


async def show(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    rows, lines = await _rows(backend), []
    for metric in METRICS:
        lines += [*_head(metric, "rabbitmq_"), *_summed(metric, rows[metric.of])]
    return _answer([*lines, *_information(backend), *_globals(rows["node"][0])])


async def show_each(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    rows, lines = await _rows(backend), []
    for metric in METRICS:
        lines += [*_head(metric, "rabbitmq_"), *_each(metric, rows[metric.of], "rabbitmq_")]
    return _answer([*lines, *_information(backend), *_globals(rows["node"][0])])


async def show_detailed(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    families = request.query.get("family", "").split(",")
    vhost, prefix = request.query.get("vhost"), "rabbitmq_detailed_"
    rows, lines = await _rows(backend), []
    for metric in METRICS:
        if metric.family and metric.family in families:
            chosen = [row for row in rows[metric.of] if vhost in (None, row.get("vhost"))]
            lines += [*_head(metric, prefix), *_each(metric, chosen, prefix)]
    return _answer(lines)


def _answer(lines: Sequence[str]) -> Response:
    body = "".join(f"{line}\n" for line in lines).encode()
    return Response(200, body, {"Content-Type": CONTENT_TYPE})


async def respond(backend: ManagementBackend, request: Request) -> Response:
    """On a port of its own, where RabbitMQ's plugin listens: who reaches it may read."""
    for route in ROUTES:
        if request.method in ("GET", "HEAD") and route.pattern == request.segments:
            return await route.handler(backend, request, {})
    return not_found().response()


ROUTES: tuple[Route, ...] = (
    Route("GET", "/metrics", show),
    Route("GET", "/metrics/per-object", show_each),
    Route("GET", "/metrics/detailed", show_detailed),
)
