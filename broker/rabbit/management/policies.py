"""/api/policies lists, shows, sets and clears policies.

A change reaches the queues through the metadata tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from shalott.broker.base.http.messages import (
    Request,
    Response,
    bad_request,
    decode_body,
    is_true,
    json_response,
    not_found,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.queues import running_queues
from shalott.broker.rabbit.management.vhosts import require_vhost
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import PolicyRow, policy_key
from shalott.broker.rabbit.mirrored.policy import normalise, validate

TABLE = "policy"


class PolicyBody(msgspec.Struct, kw_only=True, rename={"apply_to": "apply-to"}):
    """What PUT takes. Unknown keys (RabbitMQ's tools send vhost and name along) are ignored."""

    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: Literal["all", "queues", "exchanges"] = "all"


def view_policy(row: PolicyRow) -> dict[str, Any]:
    return {
        "vhost": row.vhost,
        "name": row.name,
        "pattern": row.pattern,
        "apply-to": row.apply_to,
        "definition": row.definition,
        "priority": row.priority,
    }


async def list_policies(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    vhost = parameters.get("vhost")
    if vhost is not None:
        require_vhost(backend, vhost)
    rows = [row for _, row in backend.metadata.rows(TABLE) if isinstance(row, PolicyRow)]
    return json_response([view_policy(row) for row in rows if vhost in (None, row.vhost)])


async def show_policy(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """As this node has it. With consistent=true in the query (our own) the tables' leader confirms
    it: 503 while it can't.
    """
    key = policy_key(parameters["vhost"], parameters["name"])
    if is_true(request, "consistent"):
        running_queues(backend)
        row = await backend.metadata.transact(lambda tx: tx.read(TABLE, key), confirmed=True)
    else:
        row = backend.metadata.read(TABLE, key)
    if not isinstance(row, PolicyRow):
        raise not_found()
    return json_response(view_policy(row))


async def put_policy(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if it is new, 204 if it replaces one."""
    running_queues(backend)
    require_vhost(backend, parameters["vhost"])
    body = decode_body(request, PolicyBody)
    row = PolicyRow(
        vhost=parameters["vhost"],
        name=parameters["name"],
        pattern=body.pattern,
        definition=normalise(body.definition),
        priority=body.priority,
        apply_to=body.apply_to,
    )
    problem = validate(row)
    if problem is not None:
        raise bad_request(problem)
    key = policy_key(row.vhost, row.name)

    def store(tx: Transaction) -> bool:
        is_new = tx.read(TABLE, key) is None
        tx.write(TABLE, key, row)
        return is_new

    return Response(201 if await backend.metadata.transact(store, once=True) else 204)


async def delete_policy(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """404 if this node knows none: then nothing was done. 204 once there is none any more, whoever
    was the first to delete it: what a lost answer was about is not told apart.
    """
    running_queues(backend)
    key = policy_key(parameters["vhost"], parameters["name"])
    if backend.metadata.read(TABLE, key) is None:
        raise not_found()

    def clear(tx: Transaction) -> None:
        if tx.read(TABLE, key) is not None:
            tx.delete(TABLE, key)

    await backend.metadata.transact(clear, confirmed=True, once=True)
    return Response(204)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/policies", list_policies),
    Route("GET", "/api/policies/:vhost", list_policies),
    Route("GET", "/api/policies/:vhost/:name", show_policy),
    Route("PUT", "/api/policies/:vhost/:name", put_policy),
    Route("DELETE", "/api/policies/:vhost/:name", delete_policy),
)
