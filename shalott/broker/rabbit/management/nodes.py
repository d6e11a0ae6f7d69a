"""/api/overview and /api/nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shalott.broker.base.http_api import Request, Response, json_response, not_found
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.queue_view import queue_rows, view_queues
from shalott.broker.rabbit.management.rates import summed
from shalott.broker.rabbit.management.topology import exchange_rows
from shalott.broker.rabbit.metadata.membership import FORGOTTEN

# Below this RabbitMQ stops its publishers; here the health checks say so.
DISK_FREE_LIMIT_BYTES = 50_000_000
VERSION = "0.1.0"
COMPATIBLE_VERSION = "3.13.0"  # of RabbitMQ, whose shapes these are


async def is_disk_alarm(backend: ManagementBackend) -> bool:
    return await backend.env.disk.free_bytes() < DISK_FREE_LIMIT_BYTES


async def view_node(backend: ManagementBackend, name: str) -> dict[str, Any]:
    """Of another node this one knows whether they run together, and the partitions it told of."""
    running = name in backend.metadata.running_nodes()
    shown: dict[str, Any] = {
        "name": name,
        "type": "disc",
        "running": running,
        "partitions": list(backend.partitions().get(name, ())),
        "being_drained": False,
        "mem_alarm": "memory" in backend.alarms.of(name),
    }
    if name != backend.config.name:
        return shown
    free = await backend.env.disk.free_bytes()
    now_ns = backend.env.clock.monotonic_ns()
    return {
        **shown,
        "running": running and backend.phase == "running",
        "status": backend.phase,
        "incarnation": backend.env.incarnation,
        "uptime": (now_ns - backend.started_ns) // 1_000_000,
        "disk_free": free,
        "disk_free_limit": DISK_FREE_LIMIT_BYTES,
        "disk_free_alarm": free < DISK_FREE_LIMIT_BYTES,
        "mem_used": backend.memory.used,
        "mem_limit": backend.memory.limit_bytes,
        "net_ticktime": backend.config.net_tick_ms / 1000,
        "cluster_partition_handling": backend.config.partition_mode,
    }


def cluster_nodes(backend: ManagementBackend) -> list[str]:
    """The nodes that belong to the cluster, as this one's tables have it, running or not."""
    names = backend.config.node_names
    return [name for name in names if backend.metadata.read(FORGOTTEN, name) is None]


async def list_nodes(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response([await view_node(backend, name) for name in cluster_nodes(backend)])


async def show_node(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    if parameters["name"] not in cluster_nodes(backend):
        raise not_found()
    return json_response(await view_node(backend, parameters["name"]))


def listeners(backend: ManagementBackend) -> list[dict[str, Any]]:
    """AMQP is only spoken while the broker runs; the rest as long as the node lives."""
    config = backend.config
    ports = [("clustering", config.cluster_port), ("http", config.management_port)]
    if backend.phase == "running":
        ports.insert(0, ("amqp", config.amqp_port))
    return [
        {
            "node": config.name,
            "protocol": protocol,
            "ip_address": config.management_host if protocol == "http" else config.bind_host,
            "port": port,
        }
        for protocol, port in ports
    ]


async def overview(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    queues = await view_queues(backend, queue_rows(backend))
    counted = ("messages", "messages_ready", "messages_unacknowledged")
    connections = backend.connections()
    return json_response(
        {
            "product_name": "Shalott",
            "product_version": VERSION,
            "management_version": COMPATIBLE_VERSION,
            "rabbitmq_version": COMPATIBLE_VERSION,
            "cluster_name": "shalott",
            "node": backend.config.name,
            "message_stats": summed([q["message_stats"] for q in queues if "message_stats" in q]),
            "queue_totals": {key: sum(q.get(key, 0) for q in queues) for key in counted},
            "object_totals": {
                "queues": len(queues),
                "exchanges": len(exchange_rows(backend)),
                "consumers": sum(queue.get("consumers", 0) for queue in queues),
                "connections": len(connections),
                "channels": sum(connection.channels for connection in connections),
            },
            "listeners": listeners(backend),
        }
    )


async def cluster_name(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response({"name": "shalott"})


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/overview", overview),
    Route("GET", "/api/cluster-name", cluster_name),
    Route("GET", "/api/nodes", list_nodes),
    Route("GET", "/api/nodes/:name", show_node),
)
