"""/api/shalott/views: every node's own view of the cluster, side by side.

The node that is asked asks all others, also those that it does not count as running: nodes that ran
apart are linked again when the network is whole, and each still has a cluster of its own. One that
gives no answer is told as unreachable from here, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from shalott.broker.base.errors import CallTimeout, ProcessError
from shalott.broker.base.http_api import Request, Response, json_response
from shalott.broker.rabbit.management.agent import NAME, TIMEOUT_MS, Look, LookTold
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.claims import view_claims
from shalott.broker.rabbit.management.nodes import cluster_nodes, view_node
from shalott.broker.rabbit.management.queue_view import count_of
from shalott.broker.rabbit.management.ring_view import own_ring
from shalott.broker.rabbit.processes.messages import Name


async def look(backend: ManagementBackend, wanted: Look) -> dict[str, Any]:
    """What this node, and it alone, has to say."""
    if wanted.queue:
        return await own_ring(backend, wanted.queue)
    counted = await asyncio.gather(
        *(count_of(backend, pid) for pid in backend.local_queues().values())
    )
    return {
        **await view_claims(backend),
        "linked": backend.runtime.nodes(),
        "message_bytes": sum(each.message_bytes for each in counted if each is not None),
        "self": await view_node(backend, backend.config.name),
    }


async def looks_of_all(backend: ManagementBackend, wanted: Look) -> list[dict[str, Any]]:
    """Of every node of the cluster, in their order: ``node``, ``reachable``, ``reason`` (why not),
    and what it says."""
    nodes = cluster_nodes(backend)
    return list(await asyncio.gather(*(_look_of(backend, node, wanted) for node in nodes)))


async def _look_of(backend: ManagementBackend, node: str, wanted: Look) -> dict[str, Any]:
    if node == backend.config.name:
        return {"node": node, "reachable": True, "reason": "", **await look(backend, wanted)}
    try:
        answer = await backend.runtime.call(Name(node, NAME), wanted, timeout_ms=TIMEOUT_MS)
    except CallTimeout:
        return {"node": node, "reachable": False, "reason": f"no answer in {TIMEOUT_MS} ms"}
    except ProcessError as error:
        return {"node": node, "reachable": False, "reason": str(error)}
    if not isinstance(answer, LookTold):
        return {"node": node, "reachable": False, "reason": "it does not know what is asked"}
    told = msgspec.json.decode(answer.shown, type=dict[str, Any])
    return {**told, "node": node, "reachable": True, "reason": ""}


async def list_views(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    shown = {"asked": backend.config.name, "views": await looks_of_all(backend, Look())}
    return json_response(shown)


ROUTES: tuple[Route, ...] = (Route("GET", "/api/shalott/views", list_views),)
