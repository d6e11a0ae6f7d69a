"""Health checks answer 200 with ``{"status": "ok"}`` or 503 with a reason.

The body of a 503 is ``{"status": "failed", "reason": ...}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from shalott.broker.base.errors import BrokerError
from shalott.broker.base.http_api import Request, Response, bad_request, json_response, not_found
from shalott.broker.base.tls import expiry_of
from shalott.broker.rabbit.amqp.queue_protocol import Confirmed, Content, Get, Got, Publish
from shalott.broker.rabbit.amqp.services import Queues
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    queue_rows,
    require_vhost,
    running_queues,
)
from shalott.broker.rabbit.management.nodes import is_disk_alarm, listeners
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.processes.process import Process

OK: Mapping[str, object] = {"status": "ok"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR_S = 8000 * 365 * 86400  # dates have no later years


def failed(reason: str, **detail: object) -> Response:
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
        return failed("No active listener", missing=port, ports=ports)
    return json_response({**OK, "port": port})


async def protocol_listener(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """AMQP by any of its names."""
    wanted = parameters["protocol"].lower()
    protocol = "amqp" if wanted in ("amqp091", "amqp0.9.1", "amqp-0-9-1", "amqp10") else wanted
    protocols = [listener["protocol"] for listener in listeners(backend)]
    if protocol not in protocols:
        return failed("No active listener", missing=protocol, protocols=protocols)
    return json_response({**OK, "protocol": protocol})


DAY_S = 86400
UNITS_S: Mapping[str, int] = {
    "days": DAY_S,
    "weeks": 7 * DAY_S,
    "months": 30 * DAY_S,
    "years": 365 * DAY_S,
}


async def certificate_expiration(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of this node's listeners, within so many units from now."""
    within, unit = parameters["within"], parameters["unit"]
    if unit not in UNITS_S:
        known = ", ".join(UNITS_S)
        raise bad_request(f"Time unit not recognised. Supported units: {known}.")
    if not within.isdecimal():
        raise bad_request("Invalid expiration value.")
    until_s = backend.env.clock.wall_ns() // 1_000_000_000 + int(within) * UNITS_S[unit]
    until = (EPOCH + timedelta(seconds=min(until_s, FAR_S))).strftime("%Y-%m-%d %H:%M:%S")
    config = backend.config
    expired = []
    for protocol, host, tls in (
        ("amqp/ssl", config.bind_host, config.ssl),
        ("https", config.management_host, config.management_ssl),
    ):
        if tls is None:
            continue
        dates = {"cacertfile": expiry_of(tls.cacertfile), "certfile": expiry_of(tls.certfile)}
        if any(date and date <= until for date in dates.values()):
            expired.append(
                {
                    "node": config.name,
                    "protocol": protocol,
                    "interface": host,
                    "port": tls.port,
                    "cacertfile": tls.cacertfile,
                    "certfile": tls.certfile,
                    **{f"{name}_expires_on": [date] for name, date in dates.items() if date},
                }
            )
    return failed("Certificates expiring", expired=expired) if expired else json_response(OK)


async def quorum_critical(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of quorum queues, which are none here."""
    alone = len(backend.config.node_names) == 1
    return json_response({**OK, "reason": "single node cluster"} if alone else OK)


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
    Route("GET", "/api/health/checks/protocol-listener/:protocol", protocol_listener),
    Route("GET", "/api/health/checks/certificate-expiration/:within/:unit", certificate_expiration),
    Route("GET", "/api/health/checks/node-is-quorum-critical", quorum_critical),
    Route("GET", "/api/health/checks/node-is-mirror-sync-critical", mirror_sync_critical),
)


# -- aliveness -------------------------------------------------------------------------------------

# The aliveness test: a message through a queue and back, from inside the node.

QUEUE = "aliveness-test"
TIMEOUT_MS = 5000


class Probe(Process):
    """Stands in for a channel: the queue processes confirm to it and monitor it."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = asyncio.Event()

    async def handle(self, message: Message) -> None:
        if isinstance(message, Confirmed):
            self.confirmed.set()


async def probe_queues(backend: ManagementBackend, queues: Queues, vhost: str) -> str:
    """What is wrong; empty if nothing is.

    Raises BrokerError too. The queue is left, as RabbitMQ's is.
    """
    row = await queues.declare(
        vhost=vhost,
        name=QUEUE,
        durable=False,
        auto_delete=False,
        exclusive_owner=None,
        arguments={},
    )
    if row.pid is None or not queues.is_available(row):
        return f"queue '{QUEUE}' has no master that can be reached"
    body = b"test_message"
    message_id = backend.env.rng.getrandbits(63)
    content = Content(message_id, "", QUEUE, b"\0\0", body, persistent=False)
    probe = Probe()
    channel = backend.runtime.spawn(probe)
    try:
        for process in (row.pid, *row.slave_pids):
            backend.runtime.send(process, Publish(channel, 1, content))
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await probe.confirmed.wait()
        get = Get(channel, no_ack=True)
        answer = await backend.runtime.call(row.pid, get, timeout_ms=TIMEOUT_MS, caller=channel)
    except TimeoutError:
        return f"queue '{QUEUE}' did not confirm a message in {TIMEOUT_MS} ms"
    finally:
        await backend.runtime.kill(channel)
    return "" if isinstance(answer, Got) else f"queue '{QUEUE}' did not give the message back"
