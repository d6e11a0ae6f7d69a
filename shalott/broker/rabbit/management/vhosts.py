"""/api/vhosts: list, show, add and delete. What else names one asks here whether there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from shalott.broker.base.errors import ProcessError
from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    json_response,
    not_found,
    unavailable,
)
from shalott.broker.rabbit.amqp.exchanges import predeclared_exchanges
from shalott.broker.rabbit.management.agent import NAME, TIMEOUT_MS, CloseVhost
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.queue_view import queue_rows
from shalott.broker.rabbit.metadata import permissions, vhosts
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.processes.messages import Name


def require_vhost(backend: ManagementBackend, vhost: str) -> None:
    """Raises ApiError(404)."""
    if not vhosts.exists(backend.metadata, vhost):
        raise not_found()


def view_vhost(backend: ManagementBackend, vhost: str) -> dict[str, Any]:
    state = "running" if backend.phase == "running" else "stopped"
    return {"name": vhost, "tracing": False, "cluster_state": {backend.config.name: state}}


async def list_vhosts(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response([view_vhost(backend, name) for name in vhosts.names(backend.metadata)])


async def show_vhost(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    require_vhost(backend, parameters["vhost"])
    return json_response(view_vhost(backend, parameters["vhost"]))


async def add_vhost(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if it is new, 204 if it was there. Who makes one may do everything in it; with
    permissions=none in the query (our own) nobody may do anything, as after rabbitmqctl's
    add_vhost."""
    vhost = parameters["vhost"]
    if backend.queues is None:
        raise unavailable(f"the broker on this node is {backend.phase}")
    problem = vhosts.problem_of(vhost)
    if problem is not None:
        raise bad_request(problem)
    exchanges = predeclared_exchanges(vhost)
    owner = None if request.query.get("permissions") == "none" else request.user

    def add(tx: Transaction) -> bool:
        is_new = vhosts.add(tx, vhost, exchanges)
        if is_new and owner is not None:
            permissions.grant(tx, permissions.everything(vhost, owner))
        return is_new

    is_new = await backend.metadata.transact(add, confirmed=True, once=True)
    return Response(201 if is_new else 204)


async def delete_vhost(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Its clients are sent away, its queues deleted, and then all the rest of it at once."""
    vhost, queues = parameters["vhost"], backend.queues
    require_vhost(backend, vhost)
    if queues is None:
        raise unavailable(f"the broker on this node is {backend.phase}")
    if vhost == vhosts.DEFAULT:
        raise bad_request("the vhost / can't be deleted here")
    await _close_connections(backend, vhost)
    for row in queue_rows(backend):
        if row.vhost == vhost:
            await queues.remove(row)
    await backend.metadata.transact(lambda tx: vhosts.drop(tx, vhost), confirmed=True, once=True)
    await _close_connections(backend, vhost)  # those that came meanwhile
    return Response(204)


async def _close_connections(backend: ManagementBackend, vhost: str) -> None:
    """At every running node; one that does not answer in time closes them when it has read it."""

    async def ask(node: str) -> None:
        request = CloseVhost(vhost)
        try:
            await backend.runtime.call(Name(node, NAME), request, timeout_ms=TIMEOUT_MS)
        except ProcessError:
            pass

    await asyncio.gather(*(ask(node) for node in backend.metadata.running_nodes()))


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/vhosts", list_vhosts),
    Route("GET", "/api/vhosts/:vhost", show_vhost),
    Route("PUT", "/api/vhosts/:vhost", add_vhost),
    Route("DELETE", "/api/vhosts/:vhost", delete_vhost),
)
