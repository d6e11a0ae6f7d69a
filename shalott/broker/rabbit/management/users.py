"""/api/users, /api/permissions, /api/topic-permissions and /api/user-limits: who may do what.

Those of the node's configuration are administrators from the start (metadata/users.py).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence

import msgspec

from shalott.broker.base.errors import ProcessError
from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
    not_found,
)
from shalott.broker.rabbit.management.agent import NAME, TIMEOUT_MS, CloseClients
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    require_vhost,
    running_queues,
)
from shalott.broker.rabbit.management.bodies import Number, number, words
from shalott.broker.rabbit.metadata import parameters as runtime_parameters
from shalott.broker.rabbit.metadata import permissions, users, vhosts
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import PermissionRow, TopicPermissionRow, UserRow
from shalott.broker.rabbit.processes.messages import Name


def users_of(backend: ManagementBackend) -> users.Users:
    return users.Users(backend.metadata, backend.config.users)


def find_user(backend: ManagementBackend, name: str) -> UserRow:
    """Raises ApiError(404)."""
    row = users_of(backend).find(name)
    if row is None:
        raise not_found()
    return row


def view_user(row: UserRow) -> dict[str, object]:
    return {
        "name": row.name,
        "password_hash": row.password_hash,
        "hashing_algorithm": row.hashing_algorithm,
        "tags": list(row.tags),
        "limits": row.limits,
    }


class UserBody(msgspec.Struct, kw_only=True):
    """``tags`` must be there. Without a password and a hash the user can't log in."""

    tags: str | list[str] | None = None
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    limits: dict[str, int] | None = None


def make_salt(backend: ManagementBackend) -> bytes:
    return backend.env.rng.getrandbits(8 * users.SALT_BYTES).to_bytes(users.SALT_BYTES, "big")


def read_user(
    backend: ManagementBackend, name: str, body: UserBody, before: UserRow | None
) -> UserRow:
    """Raises ApiError(400)."""
    if not name:
        raise bad_request("a user needs a name")
    if body.tags is None:
        raise bad_request("tags_not_present")
    if body.password is not None and body.password_hash is not None:
        raise bad_request("both_password_and_password_hash_are_provided")
    algorithm = body.hashing_algorithm or users.DEFAULT_ALGORITHM
    if algorithm not in users.ALGORITHMS:
        raise bad_request(f"unknown hashing_algorithm {algorithm}")
    limits = {} if before is None else before.limits
    if body.limits is not None:
        limits = body.limits
        problem = runtime_parameters.problem_of_limits(limits, users.LIMITS, "user-limits")
        if problem is not None:
            raise bad_request(problem)
    row = UserRow(name=name, hashing_algorithm=algorithm, tags=words(body.tags), limits=limits)
    if body.password:
        salt = make_salt(backend)
        hashed = users.hash_password(body.password, salt, algorithm)
        return msgspec.structs.replace(row, password_hash=hashed)
    if body.password_hash:
        try:
            base64.b64decode(body.password_hash, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request("password_hash_is_not_base64") from None
        return msgspec.structs.replace(row, password_hash=body.password_hash)
    return row


async def list_users(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response([view_user(row) for row in users_of(backend).all()])


async def list_without_permissions(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    names = vhosts.names(backend.metadata)
    rows = [
        row
        for row in users_of(backend).all()
        if all(permissions.find(backend.metadata, vhost, row.name) is None for vhost in names)
    ]
    return json_response([view_user(row) for row in rows])


async def show_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(view_user(find_user(backend, parameters["name"])))


async def put_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if it is new, 204 if it was there."""
    running_queues(backend)
    name, configured = parameters["name"], backend.config.users
    before = users_of(backend).find(name)
    row = read_user(backend, name, decode_body(request, UserBody), before)
    is_new = await backend.metadata.transact(lambda tx: users.put(tx, row, configured), once=True)
    return Response(201 if is_new else 204)


async def delete_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Its connections are closed."""
    running_queues(backend)
    await _delete_users(backend, [find_user(backend, parameters["name"]).name])
    return Response(204)


class BulkDeleteBody(msgspec.Struct):
    users: list[str]


async def delete_users(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Those that there are."""
    running_queues(backend)
    await _delete_users(backend, decode_body(request, BulkDeleteBody).users)
    return Response(204)


async def _delete_users(backend: ManagementBackend, names: Sequence[str]) -> None:
    configured = backend.config.users

    def delete(tx: Transaction) -> list[str]:
        return [name for name in names if users.delete(tx, name, configured)]

    deleted = await backend.metadata.transact(delete, confirmed=True, once=True)
    for name in deleted:
        await close_clients(backend, CloseClients(f"user '{name}' was deleted", user=name))


async def close_clients(backend: ManagementBackend, request: CloseClients) -> None:
    """At every running node; one that does not answer in time closes them when it has read it."""

    async def ask(node: str) -> None:
        try:
            await backend.runtime.call(Name(node, NAME), request, timeout_ms=TIMEOUT_MS)
        except ProcessError:
            pass

    await asyncio.gather(*(ask(node) for node in backend.metadata.running_nodes()))


async def whoami(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    row = users_of(backend).find(request.user)
    tags = [users.ADMINISTRATOR] if row is None else list(row.tags)
    return json_response({"name": request.user, "tags": tags})


# -- what tools do --------------------------------------------------------------------------------

# /api/shalott/users/NAME changes one that is there, a thing at a time, and
# /api/shalott/authenticate tries a password: rabbitmqctl's verbs, for which RabbitMQ has no calls.


class UserChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An empty password lets no one in. ``limits`` are added to those that there are."""

    password: str | None = None
    tags: list[str] | None = None
    limits: dict[str, int] | None = None


async def change_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    running_queues(backend)
    row = find_user(backend, parameters["name"])
    body = decode_body(request, UserChange)
    if body.password is not None:
        salt = make_salt(backend)
        hashed = users.hash_password(body.password, salt) if body.password else ""
        row = msgspec.structs.replace(
            row, password_hash=hashed, hashing_algorithm=users.DEFAULT_ALGORITHM
        )
    if body.tags is not None:
        row = msgspec.structs.replace(row, tags=words(body.tags))
    if body.limits is not None:
        problem = runtime_parameters.problem_of_limits(body.limits, users.LIMITS, "user-limits")
        if problem is not None:
            raise bad_request(problem)
        row = msgspec.structs.replace(row, limits={**row.limits, **body.limits})
    await backend.metadata.transact(lambda tx: users.put(tx, row, backend.config.users), once=True)
    return Response(204)


class Credentials(msgspec.Struct):
    user: str
    password: str


async def authenticate_user(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """``reason`` is empty if it is the user's password."""
    body = decode_body(request, Credentials)
    reason = ""
    if not body.password:
        reason = f"user '{body.user}' attempted to log in with a blank password"
    elif users_of(backend).authenticate(body.user, body.password) is None:
        reason = f"user '{body.user}' - invalid credentials"
    return json_response({"reason": reason})


# -- limits of users -------------------------------------------------------------------------------


class LimitBody(msgspec.Struct):
    value: Number


async def list_user_limits(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    name = parameters.get("name")
    rows = users_of(backend).all() if name is None else [find_user(backend, name)]
    return json_response([{"user": row.name, "value": row.limits} for row in rows if row.limits])


async def put_user_limit(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """-1: no limit."""
    running_queues(backend)
    row, limit = find_user(backend, parameters["name"]), parameters["limit"]
    value = number(decode_body(request, LimitBody).value)
    problem = runtime_parameters.problem_of_limits({limit: value}, users.LIMITS, "user-limits")
    if problem is not None:
        raise bad_request(problem)
    await _change_limits(backend, row.name, limit, value)
    return Response(204)


async def delete_user_limit(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    running_queues(backend)
    row = find_user(backend, parameters["name"])
    await _change_limits(backend, row.name, parameters["limit"], None)
    return Response(204)


async def _change_limits(
    backend: ManagementBackend, name: str, limit: str, value: int | None
) -> None:
    configured = backend.config.users
    await backend.metadata.transact(
        lambda tx: users.limit(tx, name, configured, limit, value), confirmed=True, once=True
    )


# -- permissions -----------------------------------------------------------------------------------


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


def permission_rows(backend: ManagementBackend) -> list[PermissionRow]:
    names = [row.name for row in users_of(backend).all()]
    return [
        row
        for vhost in vhosts.names(backend.metadata)
        for row in permissions.of_vhost(backend.metadata, vhost, names)
    ]


async def list_permissions(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of all vhosts, of one, or of one user."""
    _require(backend, parameters)
    rows = permission_rows(backend)
    return json_response([view_permission(row) for row in rows if _is_of(row, parameters)])


async def show_permission(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    _require(backend, parameters)
    row = permissions.find(backend.metadata, parameters["vhost"], parameters["user"])
    if row is None:
        raise not_found()
    return json_response(view_permission(row))


async def put_permission(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if there were none, 204 if they are replaced."""
    running_queues(backend)
    body = decode_body(request, PermissionBody)
    _require_both(backend, parameters)
    row = PermissionRow(
        user=parameters["user"],
        vhost=parameters["vhost"],
        configure=body.configure,
        write=body.write,
        read=body.read,
    )
    problem = permissions.problem_of(row.configure, row.write, row.read)
    if problem is not None:
        raise bad_request(problem)
    is_new = await backend.metadata.transact(lambda tx: permissions.grant(tx, row), once=True)
    return Response(201 if is_new else 204)


async def delete_permission(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """404 if there are none. Connections that are open stay, and may do nothing any more."""
    running_queues(backend)
    _require(backend, parameters)
    vhost, user = parameters["vhost"], parameters["user"]
    if permissions.find(backend.metadata, vhost, user) is None:
        raise not_found()
    await backend.metadata.transact(
        lambda tx: permissions.withdraw(tx, vhost, user), confirmed=True, once=True
    )
    return Response(204)


def _is_of(row: PermissionRow | TopicPermissionRow, parameters: Mapping[str, str]) -> bool:
    wanted = parameters.get("vhost", row.vhost), parameters.get("user", row.user)
    return wanted == (row.vhost, row.user)


def _require(backend: ManagementBackend, parameters: Mapping[str, str]) -> None:
    """The vhost and the user that the path names. Raises ApiError(404)."""
    if "vhost" in parameters:
        require_vhost(backend, parameters["vhost"])
    if "user" in parameters:
        find_user(backend, parameters["user"])


def _require_both(backend: ManagementBackend, parameters: Mapping[str, str]) -> None:
    """Raises ApiError(400), as RabbitMQ does before it writes."""
    try:
        _require(backend, parameters)
    except ApiError:
        raise bad_request("vhost_or_user_not_found") from None


# -- topic permissions -----------------------------------------------------------------------------


class TopicPermissionBody(msgspec.Struct, kw_only=True):
    exchange: str
    write: str
    read: str


def view_topic_permission(row: TopicPermissionRow) -> dict[str, object]:
    return {
        "user": row.user,
        "vhost": row.vhost,
        "exchange": row.exchange,
        "write": row.write,
        "read": row.read,
    }


async def list_topic_permissions(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """All, of one vhost, of one user, or of both: then 404 if there are none."""
    _require(backend, parameters)
    rows = [row for row in permissions.topic_rows(backend.metadata) if _is_of(row, parameters)]
    if "exchange" in parameters:
        rows = [row for row in rows if row.exchange == parameters["exchange"]]
    if not rows and len(parameters) > 1:
        raise not_found()
    return json_response([view_topic_permission(row) for row in rows])


async def put_topic_permission(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    running_queues(backend)
    body = decode_body(request, TopicPermissionBody)
    _require_both(backend, parameters)
    row = TopicPermissionRow(
        user=parameters["user"],
        vhost=parameters["vhost"],
        exchange=body.exchange,
        write=body.write,
        read=body.read,
    )
    problem = permissions.problem_of(row.write, row.read)
    if problem is not None:
        raise bad_request(problem)
    is_new = await backend.metadata.transact(
        lambda tx: permissions.grant_topics(tx, row), once=True
    )
    return Response(201 if is_new else 204)


async def delete_topic_permissions(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of the exchange that the path, or the query, names, or of all."""
    running_queues(backend)
    _require(backend, parameters)
    vhost, user = parameters["vhost"], parameters["user"]
    exchange = parameters.get("exchange", request.query.get("exchange"))
    await backend.metadata.transact(
        lambda tx: permissions.withdraw_topics(tx, vhost, user, exchange), confirmed=True, once=True
    )
    return Response(204)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/permissions", list_permissions),
    Route("GET", "/api/vhosts/:vhost/permissions", list_permissions),
    Route("GET", "/api/users/:user/permissions", list_permissions),
    Route("GET", "/api/permissions/:vhost/:user", show_permission),
    Route("PUT", "/api/permissions/:vhost/:user", put_permission),
    Route("DELETE", "/api/permissions/:vhost/:user", delete_permission),
    Route("GET", "/api/topic-permissions", list_topic_permissions),
    Route("GET", "/api/vhosts/:vhost/topic-permissions", list_topic_permissions),
    Route("GET", "/api/users/:user/topic-permissions", list_topic_permissions),
    Route("GET", "/api/topic-permissions/:vhost/:user", list_topic_permissions),
    Route("PUT", "/api/topic-permissions/:vhost/:user", put_topic_permission),
    Route("DELETE", "/api/topic-permissions/:vhost/:user", delete_topic_permissions),
    Route("GET", "/api/topic-permissions/:vhost/:user/:exchange", list_topic_permissions),
    Route("DELETE", "/api/topic-permissions/:vhost/:user/:exchange", delete_topic_permissions),
    Route("GET", "/api/whoami", whoami),
    Route("GET", "/api/users", list_users),
    Route("GET", "/api/users/without-permissions", list_without_permissions),
    Route("POST", "/api/users/bulk-delete", delete_users),
    Route("GET", "/api/users/:name", show_user),
    Route("PUT", "/api/users/:name", put_user),
    Route("DELETE", "/api/users/:name", delete_user),
    Route("PUT", "/api/shalott/users/:name", change_user),
    Route("POST", "/api/shalott/authenticate", authenticate_user),
    Route("GET", "/api/user-limits", list_user_limits),
    Route("GET", "/api/user-limits/:name", list_user_limits),
    Route("PUT", "/api/user-limits/:name/:limit", put_user_limit),
    Route("DELETE", "/api/user-limits/:name/:limit", delete_user_limit),
)
