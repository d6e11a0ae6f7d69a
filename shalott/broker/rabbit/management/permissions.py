"""/api/permissions: what users may do in vhosts. The users are those of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
    not_found,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.queues import running_queues
from shalott.broker.rabbit.management.vhosts import require_vhost
from shalott.broker.rabbit.metadata import permissions, vhosts
from shalott.broker.rabbit.metadata.records import PermissionRow


class PermissionBody(msgspec.Struct, kw_only=True):
    """Three regular expressions on names."""

    configure: str
    write: str
    read: str


def view_permission(row: PermissionRow) -> dict[str, Any]:
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


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/permissions", list_permissions),
    Route("GET", "/api/vhosts/:vhost/permissions", list_permissions),
    Route("GET", "/api/users/:user/permissions", list_permissions),
    Route("GET", "/api/permissions/:vhost/:user", show_permission),
    Route("PUT", "/api/permissions/:vhost/:user", put_permission),
    Route("DELETE", "/api/permissions/:vhost/:user", delete_permission),
)
