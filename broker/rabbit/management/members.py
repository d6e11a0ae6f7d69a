"""/api/shalott/members: who belongs to the cluster; an operator forgets nodes, and lets them in.

RabbitMQ has this in rabbitmqctl only: ``forget_cluster_node`` and, at the node that joins,
``reset`` and ``join_cluster``. What is refused and in which words is the same. A node that joins
here is let in by one that runs, and is started with an empty disk, which the operator sees to.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from shalott.broker.base.http.messages import (
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
    running = backend.metadata.running_nodes()

    def forget(tx: Transaction) -> list[str]:
        membership.forget(tx, node)
        keys = [key for key, _ in tx.rows(rows.DURABLE)]
        return [key for key in keys if rows.forget_master(tx, key, node, running) == "deleted"]

    deleted = await backend.metadata.transact(forget, confirmed=True)
    log.warning("forgot %s; queues deleted with it: %s", node, ", ".join(deleted) or "none")
    return Response(204)


async def admit_member(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of a node that was forgotten: it may join when it starts."""
    node = _running_broker(backend, parameters)
    if node not in backend.config.node_names:
        raise _stranger()
    if not await backend.metadata.transact(lambda tx: membership.admit(tx, node), confirmed=True):
        raise bad_request("The node is already a member of this cluster")
    log.info("%s may join", node)
    return Response(204)


def _running_broker(backend: ManagementBackend, parameters: Mapping[str, str]) -> str:
    """The node that is asked about. Raises ApiError if this one's broker does not run."""
    if backend.phase != "running":
        raise unavailable(f"the broker is {backend.phase}")
    return parameters["name"]


def _stranger() -> ApiError:
    return ApiError(404, "not_found", "The node selected is not in the cluster")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/shalott/members", list_members),
    Route("DELETE", "/api/shalott/members/:name", forget_member),
    Route("PUT", "/api/shalott/members/:name", admit_member),
)
