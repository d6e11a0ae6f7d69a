"""/api/shalott/members: who belongs to the cluster; an operator forgets nodes, and lets them in.

RabbitMQ has this in rabbitmqctl only: ``forget_cluster_node`` and, at the node that joins,
``reset`` and ``join_cluster``. What is refused and in which words is the same. A node that joins
is let in by one that runs, and is started with an empty disk: it sees to that itself
(node/clustering.py), or the operator does, who asks a node that runs to admit it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    bad_request,
    json_response,
    unavailable,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.nodes import cluster_nodes
from shalott.broker.rabbit.metadata import membership
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.mirrored import rows

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
    """Of a node that is down: it belongs to the cluster no longer. Its last masters are given to
    mirrors that are down too, or their queues are deleted."""
    node = _running_broker(backend, parameters)
    if node not in cluster_nodes(backend):
        raise _stranger()
    if node == backend.config.name:
        raise bad_request("a node can't forget itself: ask another one")
    if node in backend.runtime.nodes() or node in backend.metadata.running_nodes():
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
    Route("GET", "/api/shalott/members", list_members),
    Route("DELETE", "/api/shalott/members/:name", forget_member),
    Route("PUT", "/api/shalott/members/:name", admit_member),
)
