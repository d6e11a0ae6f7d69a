"""Health checks answer 200 with ``{"status": "ok"}`` or 503 with a reason.

The body of a 503 is ``{"status": "failed", "reason": ...}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shalott.broker.base.errors import BrokerError
from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    json_response,
    not_found,
)
from shalott.broker.rabbit.management.aliveness import probe_queues
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.nodes import is_disk_alarm, listeners
from shalott.broker.rabbit.management.queue_view import queue_rows
from shalott.broker.rabbit.management.queues import running_queues
from shalott.broker.rabbit.management.vhosts import require_vhost
from shalott.broker.rabbit.metadata.records import QueueRow

OK: Mapping[str, Any] = {"status": "ok"}


def failed(reason: str, **detail: Any) -> Response:
    return json_response({"status": "failed", "reason": reason, **detail}, 503)


async def aliveness_test(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Declare a queue, publish to it, get the message back."""
    require_vhost(backend, parameters["vhost"])
    queues = running_queues(backend)
    try:
        problem = await probe_queues(backend, queues, parameters["vhost"])
    except BrokerError as error:
        problem = str(error)
    return failed(problem) if problem else json_response(OK)


async def node_health(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """The old check: is the node's broker running, with room to write? 200 either way, as ever."""
    if parameters.get("node", backend.config.name) != backend.config.name:
        raise not_found()
    problem = await _node_problem(backend)
    return json_response({"status": "failed", "reason": problem} if problem else OK)


async def _node_problem(backend: ManagementBackend) -> str:
    if backend.phase != "running":
        return f"the broker on this node is {backend.phase}"
    return "a disk alarm is in effect" if await is_disk_alarm(backend) else ""


async def alarms(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Memory's of all nodes, for "local-alarms" of this one; disk's of this node."""
    own = backend.config.name
    is_local = request.segments[-1] == "local-alarms"
    nodes = (own,) if is_local else backend.config.node_names
    found = [{"node": n, "resource": kind} for n in nodes for kind in backend.alarms.of(n)]
    if await is_disk_alarm(backend):
        found.append({"node": own, "resource": "disk"})
    if found:
        return failed("an alarm is in effect", alarms=found)
    return json_response(OK)


async def virtual_hosts(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    if backend.phase != "running":
        return failed("a vhost is down", **{"virtual-hosts": ["/"]})
    return json_response(OK)


async def port_listener(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    if not parameters["port"].isdecimal():
        raise bad_request("the port must be a number")
    port = int(parameters["port"])
    ports = [listener["port"] for listener in listeners(backend)]
    if port not in ports:
        return failed("no active listener", missing=port, ports=ports)
    return json_response({**OK, "port": port})


async def mirror_sync_critical(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Would stopping this node lose messages of a mirrored queue, or take it away?"""
    critical = [row for row in queue_rows(backend) if _is_sync_critical(backend, row)]
    if critical:
        shown = [{"name": row.name, "vhost": row.vhost, "type": "classic"} for row in critical]
        return failed("mirrored queues without a synchronised mirror online", queues=shown)
    return json_response(OK)


def _is_sync_critical(backend: ManagementBackend, row: QueueRow) -> bool:
    return (
        row.pid is not None
        and row.pid.node == backend.config.name
        and "ha-mode" in row.definition
        and not any(backend.runtime.is_alive(pid) for pid in row.sync_slave_pids)
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/aliveness-test/:vhost", aliveness_test),
    Route("GET", "/api/healthchecks/node", node_health),
    Route("GET", "/api/healthchecks/node/:node", node_health),
    Route("GET", "/api/health/checks/alarms", alarms),
    Route("GET", "/api/health/checks/local-alarms", alarms),
    Route("GET", "/api/health/checks/virtual-hosts", virtual_hosts),
    Route("GET", "/api/health/checks/port-listener/:port", port_listener),
    Route("GET", "/api/health/checks/node-is-mirror-sync-critical", mirror_sync_critical),
)
