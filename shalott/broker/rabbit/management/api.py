"""The management API as one function: a request and a node give a response.

Paths, names and shapes are those of RabbitMQ's management plugin (its api/index.html), so that
scripts written for it work here, and one harness observes both brokers. What is below /api/shalott
is our own; beside the API stands the page that shows what it tells (pages.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.resources import files

import msgspec

from shalott.broker.base.errors import BrokerError, CallTimeout, MetadataUnavailable, ProcessError
from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    bad_request,
    find,
    json_response,
    unavailable,
)
from shalott.broker.rabbit.amqp import errors as amqp
from shalott.broker.rabbit.amqp.errors import AmqpError
from shalott.broker.rabbit.management import (
    access,
    clients,
    definitions,
    health,
    messages,
    metrics,
    nodes,
    parameters,
    policies,
    queues,
    topology,
    upkeep,
    users,
    vhosts,
    views,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.shaping import shape
from shalott.broker.rabbit.metadata.records import UserRow

ROUTES: tuple[Route, ...] = (
    *nodes.ROUTES,
    *queues.ROUTES,
    *policies.ROUTES,
    *topology.ROUTES,
    *messages.ROUTES,
    *users.ROUTES,
    *parameters.ROUTES,
    *definitions.ROUTES,
    *metrics.ROUTES,
    *vhosts.ROUTES,
    *clients.ROUTES,
    *health.ROUTES,
    *upkeep.ROUTES,
    *views.ROUTES,
)


async def respond(backend: ManagementBackend, request: Request) -> Response:
    """Never raises a BrokerError: each becomes a response that says what is the matter."""
    page = find_page(request)
    if page is not None:
        return page
    try:
        if any(request.segments == route.pattern for route in upkeep.OPEN_ROUTES):
            handler, parameters = find(upkeep.OPEN_ROUTES, request.method, request.segments)
            return await handler(backend, request, parameters)
        user = access.authenticate(backend, request)
        access.check(backend, user, request)
        answer = await handle(backend, dataclasses.replace(request, user=user.name))
        if request.method not in access.READING:
            return answer
        if not access.sees_all(user):
            answer = _as_seen(backend, user, answer)
        return shape(answer, request.query)
    except BrokerError as error:
        return _to_api_error(error).response()


async def handle(backend: ManagementBackend, request: Request) -> Response:
    """Of one who may. Raises BrokerError."""
    handler, parameters = find(ROUTES, request.method, request.segments)
    return await handler(backend, request, parameters)


async def serve_other(backend: ManagementBackend, request: Request) -> Response:
    """What another node was asked and this one is to do."""
    try:
        return await handle(backend, request)
    except BrokerError as error:
        return _to_api_error(error).response()


def _as_seen(backend: ManagementBackend, user: UserRow, answer: Response) -> Response:
    if answer.status != 200 or not answer.body.startswith(b"["):
        return answer
    return json_response(access.visible(backend, user, msgspec.json.decode(answer.body)))


def _to_api_error(error: BrokerError) -> ApiError:
    match error:
        case ApiError():
            return error
        case AmqpError(code=amqp.ACCESS_REFUSED):
            return ApiError(401, "not_authorised", error.text)
        case AmqpError(code=amqp.NOT_FOUND):
            return ApiError(404, "not_found", error.text)
        case AmqpError(code=amqp.INTERNAL_ERROR):
            return unavailable(error.text)
        case AmqpError():
            return bad_request(error.text)
        case MetadataUnavailable():
            return unavailable(f"the write's outcome is unknown: {error}")
        case CallTimeout():
            return unavailable(f"no answer in time: {error}")
        case ProcessError():
            return unavailable(str(error))
        case _:
            return ApiError(500, "Internal Server Error", str(error))


# -- the page --------------------------------------------------------------------------------------

# The management page's files. They hold nothing of the node, so anybody may have them; what they
# show they ask of the API, with the name and password that their reader gives.
#
# The policy lets the page load and ask its own node only, and run no script but its files.

CONTENT_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
NAMES = (
    *("index.html", "style.css", "app.js", "api.js", "dom.js", "overview.js", "cluster.js"),
    *("queues.js", "queue.js", "ring.js", "policies.js", "listings.js"),
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_FOLDER = files("shalott.broker.rabbit.management").joinpath("page")
# Read when the node starts: a node has no files but those of its disk.
CONTENTS: Mapping[str, bytes] = {name: _FOLDER.joinpath(name).read_bytes() for name in NAMES}


def find_page(request: Request) -> Response | None:
    """The file at / or at /page/NAME; None if the request is for something else."""
    if request.method not in ("GET", "HEAD"):
        return None
    match request.segments:
        case ("",) | ("index.html",):
            name = "index.html"
        case ("page", name) if name in CONTENTS:
            pass
        case _:
            return None
    content_type = CONTENT_TYPES[name.rpartition(".")[2]]
    return Response(200, CONTENTS[name], {**HEADERS, "Content-Type": content_type})
