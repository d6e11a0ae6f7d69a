"""/api/shalott/claims: what this node, and it alone, believes of its own role for each queue.

Every other view of a queue is assembled from replicated rows; two masters of a split cluster may
both be hidden by them. Here the queue processes of this node are asked themselves, and the rows
only fill in what a node without such a process knows. It answers in every phase of the node, also
paused or booting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from shalott.broker.base.errors import ProcessError
from shalott.broker.base.http_api import Request, Response, json_response
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.queue_view import is_live, queue_rows
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.messages import Claim, Claimed
from shalott.broker.rabbit.processes.messages import Pid

CLAIM_TIMEOUT_MS = 1000


async def own_claim(backend: ManagementBackend, key: str, pid: Pid) -> Claimed:
    """What the process says; if it is too busy to answer, what the row says of it."""
    try:
        answer = await backend.runtime.call(pid, Claim(), timeout_ms=CLAIM_TIMEOUT_MS)
    except ProcessError:
        answer = None
    if isinstance(answer, Claimed):
        return answer
    row = backend.metadata.read("queue", key)
    is_member = isinstance(row, QueueRow) and pid in (row.pid, *row.slave_pids)
    role = "none"
    if is_member and backend.runtime.is_alive(pid):
        role = "master" if isinstance(row, QueueRow) and row.pid == pid else "mirror"
    epoch = backend.metadata.version("queue", key)
    return Claimed(key, role, epoch, "unresponsive", 0, 0, False)


async def own_claims(backend: ManagementBackend) -> dict[str, Claimed]:
    processes = backend.local_queues()
    answers = await asyncio.gather(*(own_claim(backend, *item) for item in processes.items()))
    return dict(zip(processes, answers, strict=True))


def view_claim(
    backend: ManagementBackend, key: str, row: QueueRow | None, own: Claimed | None
) -> dict[str, Any]:
    name, _, vhost = key.rpartition("@")
    role = own.role if own is not None and own.role in ("master", "mirror") else "none"
    live = row is not None and backend.metadata.read("queue", key) is not None
    if role == "master":
        master = backend.config.name
    else:
        master = row.pid.node if live and row is not None and row.pid is not None else ""
    if own is not None:
        state = own.state
    else:
        state = "running" if row is not None and is_live(backend, row) else "down"
    return {
        "group": name if vhost == "/" else key,
        "role": role,
        "epoch": backend.metadata.version("queue", key) if own is None else own.epoch,
        "master": master,
        "mirrors": [pid.node for pid in row.slave_pids] if live and row is not None else [],
        "synchronised": [pid.node for pid in row.sync_slave_pids]
        if live and row is not None
        else [],
        "state": state,
        "messages": 0 if own is None else own.ready + own.unacknowledged,
    }


async def view_claims(backend: ManagementBackend) -> dict[str, Any]:
    """The node's own view of the cluster, and of each queue."""
    own = await own_claims(backend)
    rows = {row.key: row for row in queue_rows(backend)}
    keys = sorted(dict.fromkeys([*rows, *own]))
    return {
        "node": backend.config.name,
        "status": backend.phase,
        "incarnation": backend.env.incarnation,
        "running_nodes": backend.metadata.running_nodes(),
        "partitions": list(backend.partitions().get(backend.config.name, ())),
        "claims": [view_claim(backend, key, rows.get(key), own.get(key)) for key in keys],
    }


async def claims(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(await view_claims(backend))


ROUTES: tuple[Route, ...] = (Route("GET", "/api/shalott/claims", claims),)
