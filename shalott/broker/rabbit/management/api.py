"""The management API as one function: a request and a node give a response.

Paths, names and shapes are those of RabbitMQ's management plugin (its api/index.html), so that
scripts written for it work here, and one harness observes both brokers. What is below /api/shalott
is our own; beside the API stands the page that shows what it tells (pages.py).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hmac
from collections.abc import Mapping

from shalott.broker.base.errors import BrokerError, CallTimeout, MetadataUnavailable, ProcessError
from shalott.broker.base.http_api import ApiError, Request, Response, bad_request, find, unavailable
from shalott.broker.rabbit.amqp.errors import AmqpError
from shalott.broker.rabbit.management import (
    app,
    claims,
    clients,
    health,
    members,
    memory,
    nodes,
    permissions,
    policies,
    queues,
    ring,
    topology,
    users,
    vhosts,
    views,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.pages import find_page

ROUTES: tuple[Route, ...] = (
    *nodes.ROUTES,
    *queues.ROUTES,
    *policies.ROUTES,
    *permissions.ROUTES,
    *topology.ROUTES,
    *vhosts.ROUTES,
    *clients.ROUTES,
    *health.ROUTES,
    *claims.ROUTES,
    *members.ROUTES,
    *app.ROUTES,
    *users.ROUTES,
    *views.ROUTES,
    *ring.ROUTES,
    *memory.ROUTES,
)


async def respond(backend: ManagementBackend, request: Request) -> Response:
    """Never raises a BrokerError: each becomes a response that says what is the matter."""
    page = find_page(request)
    if page is not None:
        return page
    try:
        user = authenticate(backend.config.users, request.headers.get("authorization", ""))
        handler, parameters = find(ROUTES, request.method, request.segments)
        return await handler(backend, dataclasses.replace(request, user=user), parameters)
    except BrokerError as error:
        return _to_api_error(error).response()


def _to_api_error(error: BrokerError) -> ApiError:
    match error:
        case ApiError():
            return error
        case AmqpError():
            return bad_request(str(error))
        case MetadataUnavailable():
            return unavailable(f"the write's outcome is unknown: {error}")
        case CallTimeout():
            return unavailable(f"no answer in time: {error}")
        case ProcessError():
            return unavailable(str(error))
        case _:
            return ApiError(500, "Internal Server Error", str(error))


def authenticate(users: Mapping[str, str], authorization: str) -> str:
    """The user's name. Raises ApiError(401)."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            name, _, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = password = ""
        known = users.get(name)
        if known is not None and hmac.compare_digest(known.encode(), password.encode()):
            return name
    challenge = {"WWW-Authenticate": 'Basic realm="Shalott"'}
    raise ApiError(401, "not_authorised", "Login failed", challenge)
