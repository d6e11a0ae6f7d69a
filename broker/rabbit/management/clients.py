"""/api/connections of this node: list, show and close.

Channels and consumers are only counted (in connections and queues); asked to list them, the node
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shalott.broker.base.http.messages import ApiError, Request, Response, json_response, not_found
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.management.backend import ManagementBackend, Route


def view_connection(backend: ManagementBackend, info: ConnectionInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "node": backend.config.name,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "user": info.user,
        "vhost": info.vhost,
        "state": info.state,
        "channels": info.channels,
        "peer_host": info.peer_host,
        "peer_port": info.peer_port,
        "connected_at": info.connected_at_ns // 1_000_000,
    }


def find_connection(backend: ManagementBackend, name: str) -> ConnectionInfo:
    """Raises ApiError(404)."""
    for info in backend.connections():
        if info.name == name:
            return info
    raise not_found()


async def list_connections(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response([view_connection(backend, info) for info in backend.connections()])


async def show_connection(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(view_connection(backend, find_connection(backend, parameters["name"])))


async def close_connection(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    info = find_connection(backend, parameters["name"])
    reason = request.headers.get("x-reason", "closed via the management API")
    backend.close_connection(info.pid, reason)
    return Response(204)


async def not_listed(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    what, where = (
        request.segments[1],
        "connection" if request.segments[1] == "channels" else "queue",
    )
    raise ApiError(501, "not_implemented", f"{what} are not listed, only counted for each {where}")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/connections", list_connections),
    Route("GET", "/api/connections/:name", show_connection),
    Route("DELETE", "/api/connections/:name", close_connection),
    Route("GET", "/api/channels", not_listed),
    Route("GET", "/api/consumers", not_listed),
    Route("GET", "/api/consumers/:vhost", not_listed),
)
