"""/api/vhosts: list, show, add and delete. What else names one asks here whether there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
    unavailable,
)
from shalott.broker.rabbit.amqp.exchanges import predeclared_exchanges
from shalott.broker.rabbit.management.agent import CloseClients
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    cluster_nodes,
    queue_rows,
    require_vhost,
    running_queues,
    summed,
)
from shalott.broker.rabbit.management.bodies import Flag, flag, words
from shalott.broker.rabbit.management.queues import view_queues
from shalott.broker.rabbit.management.users import close_clients
from shalott.broker.rabbit.metadata import permissions, vhosts
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import VhostRow

COUNTED = ("messages", "messages_ready", "messages_unacknowledged")


def view_row(row: VhostRow) -> dict[str, object]:
    tags = list(row.tags)
    return {
        "name": row.name,
        "description": row.description,
        "tags": tags,
        "default_queue_type": "undefined",
        "metadata": {"description": row.description, "tags": tags},
        "tracing": row.tracing,
    }


async def view_vhosts(backend: ManagementBackend, names: Sequence[str]) -> list[dict[str, object]]:
    """With sums over their queues, where they have some."""
    rows = [row for row in queue_rows(backend) if row.vhost in names]
    counted = await view_queues(backend, rows)
    running = backend.metadata.running_nodes() if backend.phase == "running" else []
    states = {node: "running" if node in running else "stopped" for node in cluster_nodes(backend)}
    shown = []
    for name in names:
        row = vhosts.find(backend.metadata, name)
        own = [queue for queue in counted if queue["vhost"] == name]
        told = [n for key in COUNTED for q in own if isinstance(n := q.get(key), int)]
        sums = {key: sum(n for q in own if isinstance(n := q.get(key), int)) for key in COUNTED}
        stats = summed([s for q in own if isinstance(s := q.get("message_stats"), dict)])
        shown.append(
            {
                **view_row(VhostRow(name=name) if row is None else row),
                "cluster_state": states,
                **(sums if told else {}),
                **({"message_stats": stats} if stats else {}),
            }
        )
    return shown


async def list_vhosts(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(await view_vhosts(backend, vhosts.names(backend.metadata)))


async def show_vhost(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    require_vhost(backend, parameters["vhost"])
    (shown,) = await view_vhosts(backend, [parameters["vhost"]])
    return json_response(shown)


class VhostBody(msgspec.Struct, kw_only=True):
    description: str | None = None
    tags: str | list[str] | None = None
    tracing: Flag | None = None


async def add_vhost(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if it is new, 204 if it was there. Who makes one may do everything in it; with
    permissions=none in the query (our own) no user may do anything, as after rabbitmqctl's
    add_vhost."""
    vhost = parameters["vhost"]
    if backend.queues is None:
        raise unavailable(f"the broker on this node is {backend.phase}")
    problem = vhosts.problem_of(vhost)
    if problem is not None:
        raise bad_request(problem)
    body = decode_body(request, VhostBody)
    given: dict[str, object] = {
        **({} if body.description is None else {"description": body.description}),
        **({} if body.tags is None else {"tags": words(body.tags)}),
        **({} if body.tracing is None else {"tracing": flag(body.tracing)}),
    }
    exchanges = predeclared_exchanges(vhost)
    owner = None if request.query.get("permissions") == "none" else request.user

    def add(tx: Transaction) -> bool:
        is_new = vhosts.add(tx, vhost, exchanges)
        vhosts.describe(tx, vhost, given)
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
    sent_away = CloseClients(f"vhost '{vhost}' is deleted", vhost=vhost)
    await close_clients(backend, sent_away)
    for row in queue_rows(backend):
        if row.vhost == vhost:
            await queues.remove(row)
    await backend.metadata.transact(lambda tx: vhosts.drop(tx, vhost), confirmed=True, once=True)
    await close_clients(backend, sent_away)  # those that came meanwhile
    return Response(204)


async def start_vhost(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """It runs wherever the broker does."""
    running_queues(backend)
    require_vhost(backend, parameters["vhost"])
    if parameters["node"] not in backend.metadata.running_nodes():
        raise bad_request(f"the broker does not run on node {parameters['node']}")
    return Response(204)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/vhosts", list_vhosts),
    Route("GET", "/api/vhosts/:vhost", show_vhost),
    Route("PUT", "/api/vhosts/:vhost", add_vhost),
    Route("DELETE", "/api/vhosts/:vhost", delete_vhost),
    Route("POST", "/api/vhosts/:vhost/start/:node", start_vhost),
)
