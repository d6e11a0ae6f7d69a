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
from importlib.resources import files

from shalott.broker.base.errors import BrokerError, CallTimeout, MetadataUnavailable, ProcessError
from shalott.broker.base.http_api import ApiError, Request, Response, bad_request, find, unavailable
from shalott.broker.rabbit.amqp.errors import AmqpError
from shalott.broker.rabbit.management import (
    clients,
    health,
    nodes,
    policies,
    queues,
    topology,
    vhosts,
    views,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route

ROUTES: tuple[Route, ...] = (
    *nodes.ROUTES,
    *queues.ROUTES,
    *policies.ROUTES,
    *topology.ROUTES,
    *vhosts.ROUTES,
    *clients.ROUTES,
    *health.ROUTES,
    *views.ROUTES,
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
