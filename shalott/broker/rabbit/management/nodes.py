"""/api/overview and /api/nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
    not_found,
    unavailable,
)
from shalott.broker.rabbit.config import RABBITMQ_VERSION
from shalott.broker.rabbit.management.agent import TIMEOUT_MS, relay
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    cluster_nodes,
    queue_rows,
    summed,
)
from shalott.broker.rabbit.management.parameters import cluster_name
from shalott.broker.rabbit.management.queues import view_queues
from shalott.broker.rabbit.management.topology import exchange_rows
from shalott.broker.rabbit.metadata import membership
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.mirrored import rows

VERSION = "0.1.0"


async def is_disk_alarm(backend: ManagementBackend) -> bool:
    return "disk" in backend.alarms.of(backend.config.name)


async def view_node(backend: ManagementBackend, name: str) -> dict[str, object]:
    """Of another node this one knows whether they run together, and the partitions it told of."""
    running = name in backend.metadata.running_nodes()
    shown: dict[str, object] = {
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
        "data_dir": backend.config.data_dir,
        "incarnation": backend.env.incarnation,
        "uptime": (now_ns - backend.started_ns) // 1_000_000,
        "disk_free": free,
        "disk_free_limit": backend.disk_space.limit_bytes,
        "disk_free_alarm": await is_disk_alarm(backend),
        "mem_used": backend.memory.used,
        "mem_limit": backend.memory.limit_bytes,
        "net_ticktime": backend.config.net_tick_ms / 1000,
        "cluster_partition_handling": backend.config.partition_mode,
    }


async def node_as_told(
    backend: ManagementBackend, request: Request, name: str
) -> dict[str, object]:
    """As the node itself has it, if it runs with this one and answers."""
    shown = await view_node(backend, name)
    if name == backend.config.name or not shown["running"]:
        return shown
    own = Request("GET", ("api", "shalott", "node"), user=request.user)
    try:
        answer = await relay(backend, name, own, timeout_ms=TIMEOUT_MS)
    except ApiError:
        return shown
    told = msgspec.json.decode(answer.body, type=dict[str, object])
    return {**told, **shown}


async def own_node(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(await view_node(backend, backend.config.name))


async def list_nodes(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    nodes = cluster_nodes(backend)
    shown = await asyncio.gather(*(node_as_told(backend, request, node) for node in nodes))
    return json_response(shown)


async def show_node(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    if parameters["name"] not in cluster_nodes(backend):
        raise not_found()
    return json_response(await node_as_told(backend, request, parameters["name"]))


def listeners(backend: ManagementBackend) -> list[dict[str, object]]:
    """AMQP is only spoken while the broker runs; the rest as long as the node lives."""
    config = backend.config
    ports = [("clustering", config.cluster_port), ("http", config.management_port)]
    if config.management_ssl is not None:
        ports.append(("https", config.management_ssl.port))
    if config.prometheus_port:
        ports.append(("http/prometheus", config.prometheus_port))
    if backend.phase == "running":
        ports.insert(0, ("amqp", config.amqp_port))
        if config.ssl is not None:
            ports.insert(1, ("amqp/ssl", config.ssl.port))
    return [
        {
            "node": config.name,
            "protocol": protocol,
            "ip_address": config.management_host if "http" in protocol else config.bind_host,
            "port": port,
        }
        for protocol, port in ports
    ]


def _contexts(backend: ManagementBackend) -> list[dict[str, object]]:
    """What this node serves over HTTP."""
    config = backend.config
    return [
        {
            "node": config.name,
            "description": "RabbitMQ Management",
            "path": "/",
            "ip": config.management_host,
            "port": str(config.management_port),
            "ssl_opts": [],
        }
    ]


def _counted(queue: Mapping[str, object], key: str) -> int:
    """A number of a queue's row; a queue whose master does not answer has none."""
    number = queue.get(key)
    return number if isinstance(number, int) else 0


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
            "management_version": RABBITMQ_VERSION,
            "rabbitmq_version": RABBITMQ_VERSION,
            "cluster_name": cluster_name(backend),
            "node": backend.config.name,
            "message_stats": summed(
                [s for q in queues if isinstance(s := q.get("message_stats"), dict)]
            ),
            "queue_totals": {key: sum(_counted(q, key) for q in queues) for key in counted},
            "object_totals": {
                "queues": len(queues),
                "exchanges": len(exchange_rows(backend)),
                "consumers": sum(_counted(queue, "consumers") for queue in queues),
                "connections": len(connections),
                "channels": sum(connection.channels for connection in connections),
            },
            "listeners": listeners(backend),
            "contexts": _contexts(backend),
        }
    )


# -- stopping and starting the broker --------------------------------------------------------------

# /api/shalott/app: the broker on this node, stopped and started while the node stays; and what may
# be done to the node while it is stopped.
#
# RabbitMQ has this in rabbitmqctl only: ``stop_app``, ``start_app``, ``reset``, ``force_reset``,
# ``join_cluster`` and ``force_boot``.


class AppBody(msgspec.Struct):
    action: str = ""
    node: str = ""


async def show_app(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    standing = backend.clustering.standing
    return json_response(
        {
            "node": backend.config.name,
            "phase": backend.phase,
            "life": backend.env.incarnation,
            "alone": standing.alone,
            "joining": standing.joining,
            "problem": standing.problem,
        }
    )


async def act_on_app(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """The body is ``{"action": "stop"}`` (or start, reset, force_reset, force_boot), or
    ``{"action": "join", "node": NODE}``. The answer does not wait for what follows."""
    body = decode_body(request, AppBody)
    try:
        await _act(backend, body)
    except ApiError:
        raise
    except BrokerError as error:
        raise bad_request(str(error)) from error
    return Response(204)


async def _act(backend: ManagementBackend, body: AppBody) -> None:
    match body.action:
        case "stop":
            backend.app.stop_app()
        case "start":
            backend.app.start_app()
        case "reset" | "force_reset":
            await backend.clustering.reset(force=body.action == "force_reset")
        case "join":
            await backend.clustering.join(body.node)
        case "force_boot":
            await backend.clustering.force_boot()
        case "seed":
            await backend.clustering.seed(body.node)
        case "suspend_listeners" | "resume_listeners":
            _require_running(backend)
            await backend.app.take_clients(body.action == "resume_listeners")
        case "shutdown":
            backend.app.shut_down()
        case _:
            raise bad_request(f"unknown action '{body.action}'")


# -- the memory limit ------------------------------------------------------------------------------

# /api/shalott/vm_memory_high_watermark: the operator's limit, for as long as the node's process
# lives (``rabbitmqctl set_vm_memory_high_watermark``; RabbitMQ has no HTTP call for it).


class Watermark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the two: a part of the machine's memory, or bytes."""

    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    absolute: Annotated[int, msgspec.Meta(ge=0)] | None = None


async def set_watermark(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    try:
        wanted = msgspec.json.decode(request.body, type=Watermark)
    except msgspec.DecodeError as error:
        raise bad_request(str(error)) from error
    if (wanted.fraction is None) == (wanted.absolute is None):
        raise bad_request("give either fraction or absolute")
    if wanted.absolute is not None:
        backend.memory.set_limit(wanted.absolute)
    elif wanted.fraction is not None:
        backend.memory.set_limit(backend.config.fraction_of_memory(wanted.fraction))
    return Response(204)


class DiskLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the two: bytes, or so many times the machine's memory."""

    bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    mem_relative: Annotated[float, msgspec.Meta(ge=0, le=1000)] | None = None


async def set_disk_limit(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """/api/shalott/disk_free_limit: for as long as the node's process lives, too."""
    wanted = decode_body(request, DiskLimit)
    if (wanted.bytes is None) == (wanted.mem_relative is None):
        raise bad_request("give either bytes or mem_relative")
    if wanted.bytes is not None:
        backend.disk_space.set_limit(wanted.bytes)
    elif wanted.mem_relative is not None:
        backend.disk_space.set_limit(backend.config.fraction_of_memory(wanted.mem_relative))
    return Response(204)


class LogLevel(msgspec.Struct):
    level: Literal["debug", "info", "warning", "error", "critical", "none"]


async def set_log_level(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """/api/shalott/log_level: of the node's process."""
    level = decode_body(request, LogLevel).level
    number = logging.CRITICAL + 1 if level == "none" else logging.getLevelName(level.upper())
    logging.getLogger("shalott").setLevel(number)
    return Response(204)


async def environment(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """/api/shalott/environment: the node's configuration, without what is secret."""
    told = msgspec.to_builtins(backend.config)
    told.pop("cookie")
    return json_response({**told, "users": sorted(backend.config.users)})


# -- members of the cluster ------------------------------------------------------------------------

# /api/shalott/members: who belongs to the cluster; an operator forgets nodes, and lets them in.
#
# RabbitMQ has this in rabbitmqctl only: ``forget_cluster_node`` and, at the node that joins,
# ``reset`` and ``join_cluster``. What is refused and in which words is the same. A node that joins
# is let in by one that runs, and is started with an empty disk: it sees to that itself
# (node/clustering.py), or the operator does, who asks a node that runs to admit it.

log = logging.getLogger("shalott.broker.management")


async def list_members(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(
        {
            "node": backend.config.name,
            "members": cluster_nodes(backend),
            "running_nodes": backend.metadata.running_nodes(),
        }
    )


async def forget_member(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of a node whose broker is down or stopped: it belongs to the cluster no longer. Its last
    masters are given to mirrors that are down too, or their queues are deleted."""
    node = _running_broker(backend, parameters)
    if node not in cluster_nodes(backend):
        raise _stranger()
    if node == backend.config.name:
        raise bad_request("a node can't forget itself: ask another one")
    if node in backend.metadata.running_nodes():
        raise bad_request(f"RabbitMQ on node {node} must be stopped before it can be removed")
    await _take_out(backend, node)
    return Response(204)


async def forget(backend: ManagementBackend, node: str) -> None:
    """The node itself asks to leave, its broker stopped. Raises BrokerError."""
    _require_running(backend)
    if node in backend.metadata.running_nodes():
        raise bad_request(f"RabbitMQ on node {node} must be stopped before it can be removed")
    if node in cluster_nodes(backend):
        await _take_out(backend, node)


async def _take_out(backend: ManagementBackend, node: str) -> None:
    running = backend.metadata.running_nodes()

    def take_out(tx: Transaction) -> list[str]:
        membership.forget(tx, node)
        keys = [key for key, _ in tx.rows(rows.DURABLE)]
        return [key for key in keys if rows.forget_master(tx, key, node, running) == "deleted"]

    deleted = await backend.metadata.transact(take_out, confirmed=True)
    log.warning("forgot %s; queues deleted with it: %s", node, ", ".join(deleted) or "none")


async def admit_member(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of a node that was forgotten: it may join when it starts."""
    node = _running_broker(backend, parameters)
    if node not in backend.config.node_names:
        raise _stranger()
    await _let_in(backend, node)
    return Response(204)


async def admit(backend: ManagementBackend, node: str) -> None:
    """The node itself asks to be let in; its disk is empty. Raises BrokerError."""
    _require_running(backend)
    if node not in backend.config.node_names:
        raise _stranger()
    await _let_in(backend, node)


async def _let_in(backend: ManagementBackend, node: str) -> None:
    if not await backend.metadata.transact(lambda tx: membership.admit(tx, node), confirmed=True):
        raise bad_request("The node is already a member of this cluster")
    log.info("%s may join", node)


def _running_broker(backend: ManagementBackend, parameters: Mapping[str, str]) -> str:
    """The node that is asked about. Raises ApiError if this one's broker does not run."""
    _require_running(backend)
    return parameters["name"]


def _require_running(backend: ManagementBackend) -> None:
    if backend.phase != "running":
        raise unavailable(f"the broker is {backend.phase}")


def _stranger() -> ApiError:
    return ApiError(404, "not_found", "The node selected is not in the cluster")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/overview", overview),
    Route("GET", "/api/nodes", list_nodes),
    Route("GET", "/api/nodes/:name", show_node),
    Route("GET", "/api/shalott/node", own_node),
    Route("GET", "/api/shalott/app", show_app),
    Route("POST", "/api/shalott/app", act_on_app),
    Route("PUT", "/api/shalott/vm_memory_high_watermark", set_watermark),
    Route("PUT", "/api/shalott/disk_free_limit", set_disk_limit),
    Route("PUT", "/api/shalott/log_level", set_log_level),
    Route("GET", "/api/shalott/environment", environment),
    Route("GET", "/api/shalott/members", list_members),
    Route("DELETE", "/api/shalott/members/:name", forget_member),
    Route("PUT", "/api/shalott/members/:name", admit_member),
)
