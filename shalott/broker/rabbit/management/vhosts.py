"""/api/vhosts: list, show, add and delete. What else names one asks here whether there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from shalott.broker.base.errors import ProcessError
from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
    not_found,
    unavailable,
)
from shalott.broker.rabbit.amqp.exchanges import predeclared_exchanges
from shalott.broker.rabbit.management.agent import NAME, TIMEOUT_MS, CloseVhost
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    queue_rows,
    require_vhost,
    running_queues,
)
from shalott.broker.rabbit.metadata import permissions, vhosts
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import PermissionRow
from shalott.broker.rabbit.processes.messages import Name


def view_vhost(backend: ManagementBackend, vhost: str) -> dict[str, object]:
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
    permissions=none in the query (our own) no user may do anything, as after rabbitmqctl's
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


# -- permissions -----------------------------------------------------------------------------------

# /api/permissions: what users may do in vhosts. The users are those of the configuration.


class PermissionBody(msgspec.Struct, kw_only=True):
    """Three regular expressions on names."""

    configure: str
    write: str
    read: str


def view_permission(row: PermissionRow) -> dict[str, object]:
    return {
        "user": row.user,
        "vhost": row.vhost,
        "configure": row.configure,
        "write": row.write,
        "read": row.read,
    }


async def list_permissions(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of all vhosts, of one, or of one user."""
    vhost, user = parameters.get("vhost"), parameters.get("user")
    if vhost is not None:
        require_vhost(backend, vhost)
    if user is not None:
        _require_user(backend, user)
    users = backend.config.users if user is None else (user,)
    names = vhosts.names(backend.metadata) if vhost is None else [vhost]
    rows = [row for name in names for row in permissions.of_vhost(backend.metadata, name, users)]
    return json_response([view_permission(row) for row in rows])


async def show_permission(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    vhost, user = _where(backend, parameters)
    row = permissions.find(backend.metadata, vhost, user)
    if row is None:
        raise not_found()
    return json_response(view_permission(row))


async def put_permission(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if there were none, 204 if they are replaced."""
    running_queues(backend)
    vhost, user = _where(backend, parameters)
    body = decode_body(request, PermissionBody)
    row = PermissionRow(
        user=user, vhost=vhost, configure=body.configure, write=body.write, read=body.read
    )
    problem = permissions.problem_of(row)
    if problem is not None:
        raise bad_request(problem)
    is_new = await backend.metadata.transact(lambda tx: permissions.grant(tx, row), once=True)
    return Response(201 if is_new else 204)


async def delete_permission(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """404 if there are none. Connections that are open stay, and may do nothing any more."""
    running_queues(backend)
    vhost, user = _where(backend, parameters)
    if permissions.find(backend.metadata, vhost, user) is None:
        raise not_found()
    await backend.metadata.transact(
        lambda tx: permissions.withdraw(tx, vhost, user), confirmed=True, once=True
    )
    return Response(204)


def _where(backend: ManagementBackend, parameters: Mapping[str, str]) -> tuple[str, str]:
    vhost, user = parameters["vhost"], parameters["user"]
    require_vhost(backend, vhost)
    _require_user(backend, user)
    return vhost, user


def _require_user(backend: ManagementBackend, user: str) -> None:
    if user not in backend.config.users:
        raise not_found()


# -- users -----------------------------------------------------------------------------------------

# /api/users and /api/whoami: those of the node's configuration, all of them administrators.
#
# Password hashes are not shown: the configuration has the passwords themselves.

TAGS = ("administrator",)


def view_user(name: str) -> dict[str, object]:
    return {"name": name, "tags": list(TAGS), "limits": {}}


async def list_users(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response([view_user(name) for name in sorted(backend.config.users)])


async def show_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    if parameters["name"] not in backend.config.users:
        raise not_found()
    return json_response(view_user(parameters["name"]))


async def whoami(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response({"name": request.user, "tags": list(TAGS)})


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/vhosts", list_vhosts),
    Route("GET", "/api/vhosts/:vhost", show_vhost),
    Route("PUT", "/api/vhosts/:vhost", add_vhost),
    Route("DELETE", "/api/vhosts/:vhost", delete_vhost),
    Route("GET", "/api/permissions", list_permissions),
    Route("GET", "/api/vhosts/:vhost/permissions", list_permissions),
    Route("GET", "/api/users/:user/permissions", list_permissions),
    Route("GET", "/api/permissions/:vhost/:user", show_permission),
    Route("PUT", "/api/permissions/:vhost/:user", put_permission),
    Route("DELETE", "/api/permissions/:vhost/:user", delete_permission),
    Route("GET", "/api/whoami", whoami),
    Route("GET", "/api/users", list_users),
    Route("GET", "/api/users/:name", show_user),
)
