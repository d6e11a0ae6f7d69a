"""/api/connections, /api/channels and /api/consumers: of every node that runs. A connection is
closed at the node that has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from shalott.broker.base.errors import ProcessError
from shalott.broker.base.http_api import Request, Response, json_response, not_found
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.amqp.queue_protocol import Stat, Stats
from shalott.broker.rabbit.amqp.services import ChannelInfo, ConsumerInfo
from shalott.broker.rabbit.management.agent import CloseClients, Kind, Listed, of_all_nodes
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    queue_rows,
    require_vhost,
)
from shalott.broker.rabbit.management.messages import jsonable
from shalott.broker.rabbit.management.queues import STAT_TIMEOUT_MS
from shalott.broker.rabbit.management.users import close_clients
from shalott.broker.rabbit.metadata.records import QueueRow


def view_connection(backend: ManagementBackend, info: ConnectionInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "pid": str(info.pid),
        "node": backend.config.name,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": info.mechanism,
        "host": info.host,
        "port": info.port,
        "client_properties": jsonable(info.client_properties),
        "channel_max": info.channel_max,
        "frame_max": info.frame_max,
        "timeout": info.timeout_s,
        "recv_cnt": info.received,
        "recv_oct": info.received_bytes,
        "send_cnt": info.sent,
        "send_oct": info.sent_bytes,
        "send_pend": info.unsent_bytes,
        "ssl": False,
        **info.tls,
        "user": info.user,
        "vhost": info.vhost,
        "state": info.state,
        "channels": info.channels,
        "peer_host": info.peer_host,
        "peer_port": info.peer_port,
        "connected_at": info.connected_at_ns // 1_000_000,
    }


def view_channel(
    backend: ManagementBackend, connection: ConnectionInfo, info: ChannelInfo
) -> dict[str, Any]:
    return {
        "name": f"{connection.name} ({info.number})",
        "pid": str(info.pid),
        "number": info.number,
        "node": backend.config.name,
        "user": connection.user,
        "vhost": connection.vhost,
        "state": "running",
        "transactional": info.transactional,
        "confirm": info.confirms,
        "consumer_count": len(info.consumers),
        "messages_unacknowledged": info.unacknowledged,
        "messages_unconfirmed": info.unconfirmed,
        "messages_uncommitted": info.uncommitted,
        "acks_uncommitted": info.uncommitted_acks,
        "prefetch_count": info.prefetch,
        "global_prefetch_count": info.channel_prefetch,
        **_stats(backend, info),
        "connection_details": {
            "name": connection.name,
            "pid": str(connection.pid),
            "peer_host": connection.peer_host,
            "peer_port": connection.peer_port,
        },
    }


def _stats(backend: ManagementBackend, info: ChannelInfo) -> dict[str, object]:
    """As RabbitMQ: none before anything was done."""
    if not info.counts:
        return {}
    now_ns = backend.env.clock.monotonic_ns()
    return {"message_stats": backend.rates.message_stats(str(info.pid), info.counts, now_ns)}


def view_consumer(
    backend: ManagementBackend, connection: ConnectionInfo, channel: ChannelInfo, info: ConsumerInfo
) -> dict[str, Any]:
    return {
        "queue": {"name": info.queue, "vhost": connection.vhost},
        "consumer_tag": info.tag,
        "channel_details": {
            "name": f"{connection.name} ({channel.number})",
            "pid": str(channel.pid),
            "node": backend.config.name,
            "number": channel.number,
            "connection_name": connection.name,
            "user": connection.user,
            "peer_host": connection.peer_host,
            "peer_port": connection.peer_port,
        },
        "ack_required": not info.no_ack,
        "exclusive": info.exclusive,
        "prefetch_count": info.prefetch,
        "active": True,
        "activity_status": "up",
        "arguments": {"x-priority": info.priority} if info.priority else {},
    }


def clients_of_node(backend: ManagementBackend, kind: Kind) -> Listed:
    """What this node has, as it is shown."""
    if kind == "connections":
        return [view_connection(backend, info) for info in backend.connections()]
    channels = [(one, each) for one, own in backend.channels() for each in own]
    if kind == "channels":
        return [view_channel(backend, *pair) for pair in channels]
    return [
        view_consumer(backend, connection, channel, info)
        for connection, channel in channels
        for info in channel.consumers
    ]


def send_away(backend: ManagementBackend, wanted: CloseClients) -> None:
    """Close this node's connections that are meant."""
    for info in backend.connections():
        meant = (
            wanted.vhost in (None, info.vhost)
            and wanted.user in (None, info.user)
            and wanted.name in (None, info.name)
        )
        if meant:
            backend.close_connection(info.pid, wanted.text)


async def _all(backend: ManagementBackend, kind: Kind) -> Listed:
    return await of_all_nodes(backend, kind, clients_of_node(backend, kind))


async def list_connections(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """All, or those of a vhost."""
    shown, vhost = await _all(backend, "connections"), parameters.get("vhost")
    if vhost is not None:
        require_vhost(backend, vhost)
        shown = [one for one in shown if one["vhost"] == vhost]
    return json_response(shown)


async def show_connection(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    for shown in await _all(backend, "connections"):
        if shown["name"] == parameters["name"]:
            return json_response(shown)
    raise not_found()


async def close_connection(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """At the node that has it."""
    if all(one["name"] != parameters["name"] for one in await _all(backend, "connections")):
        raise not_found()
    await close_clients(backend, CloseClients(_reason(request), name=parameters["name"]))
    return Response(204)


async def list_connections_of_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    shown = await _all(backend, "connections")
    return json_response([one for one in shown if one["user"] == parameters["user"]])


async def close_connections_of_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    await close_clients(backend, CloseClients(_reason(request), user=parameters["user"]))
    return Response(204)


def _reason(request: Request) -> str:
    return request.headers.get("x-reason", "Closed via management plugin")


async def list_channels(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """All, those of a vhost, or those of a connection."""
    shown = await _all(backend, "channels")
    vhost, name = parameters.get("vhost"), parameters.get("name")
    if vhost is not None:
        require_vhost(backend, vhost)
        shown = [one for one in shown if one["vhost"] == vhost]
    if name is not None:
        if all(one["name"] != name for one in await _all(backend, "connections")):
            raise not_found()
        shown = [one for one in shown if one["connection_details"]["name"] == name]
    return json_response(shown)


async def show_channel(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    for shown in await _all(backend, "channels"):
        if shown["name"] == parameters["name"]:
            return json_response(shown)
    raise not_found()


async def list_consumers(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Who is active where one at a time may be is the queue's master's to tell."""
    vhost = parameters.get("vhost")
    if vhost is not None:
        require_vhost(backend, vhost)
    shown = [
        one for one in await _all(backend, "consumers") if vhost in (None, one["queue"]["vhost"])
    ]
    single = [
        row for row in queue_rows(backend) if row.arguments.get("x-single-active-consumer") is True
    ]
    actives = await asyncio.gather(*(_active_of(backend, row) for row in single))
    by_queue = {(row.vhost, row.name): one for row, one in zip(single, actives, strict=True)}
    for one in shown:
        queue = one["queue"]["vhost"], one["queue"]["name"]
        if queue in by_queue:
            one["active"] = by_queue[queue] == [one["channel_details"]["pid"], one["consumer_tag"]]
            one["activity_status"] = "single_active" if one["active"] else "waiting"
    return json_response(shown)


async def _active_of(backend: ManagementBackend, row: QueueRow) -> list[str]:
    """The channel's pid and the tag; empty if there is none, or no master to ask."""
    if row.pid is None:
        return []
    try:
        answer = await backend.runtime.call(row.pid, Stat(), timeout_ms=STAT_TIMEOUT_MS)
    except ProcessError:
        return []
    active = answer.detail.get("single_active") if isinstance(answer, Stats) else None
    return list(active) if isinstance(active, (list, tuple)) else []


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/connections", list_connections),
    Route("GET", "/api/connections/:name", show_connection),
    Route("DELETE", "/api/connections/:name", close_connection),
    Route("GET", "/api/connections/username/:user", list_connections_of_user),
    Route("DELETE", "/api/connections/username/:user", close_connections_of_user),
    Route("GET", "/api/connections/:name/channels", list_channels),
    Route("GET", "/api/vhosts/:vhost/connections", list_connections),
    Route("GET", "/api/vhosts/:vhost/channels", list_channels),
    Route("GET", "/api/channels", list_channels),
    Route("GET", "/api/channels/:name", show_channel),
    Route("GET", "/api/consumers", list_consumers),
    Route("GET", "/api/consumers/:vhost", list_consumers),
)
