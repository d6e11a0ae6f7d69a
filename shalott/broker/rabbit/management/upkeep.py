"""What RabbitMQ's own page and a few tools ask for beside all else: how one logs in and how often
that was tried, extensions and feature flags, and a fresh start of the statistics.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import parse_qs

from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    bad_request,
    json_response,
    not_found,
)
from shalott.broker.rabbit.amqp.counts import AUTHENTICATED, REFUSED
from shalott.broker.rabbit.management.agent import relay
from shalott.broker.rabbit.management.backend import ManagementBackend, Route, cluster_nodes
from shalott.broker.rabbit.management.users import users_of

# What holds here of RabbitMQ 3.10's, and whose it is.
FEATURES: Mapping[str, tuple[str, str]] = {
    "classic_mirrored_queue_version": (
        "Support setting version for classic mirrored queues",
        "rabbit",
    ),
    "drop_unroutable_metric": (
        "Count unroutable publishes to be dropped in stats",
        "rabbitmq_management_agent",
    ),
    "empty_basic_get_metric": (
        "Count AMQP `basic.get` on empty queues in stats",
        "rabbitmq_management_agent",
    ),
    "implicit_default_bindings": (
        "Default bindings are now implicit, instead of being stored in the database",
        "rabbit",
    ),
    "user_limits": ("Configure connection and channel limits for a user", "rabbit"),
    "virtual_host_metadata": ("Virtual host metadata (description, tags, etc)", "rabbit"),
}


async def how_to_log_in(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response({"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})


async def log_in(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """A form with username and password. The cookie is for the page's scripts: this API reads
    none."""
    form = parse_qs(request.body.decode(errors="replace"))
    name, password = (form.get(key, [""])[0] for key in ("username", "password"))
    if users_of(backend).authenticate(name, password) is None:
        challenge = {"WWW-Authenticate": 'Basic realm="Shalott"'}
        raise ApiError(401, "not_authorised", "Login failed", challenge)
    token = base64.b64encode(f"{name}:{password}".encode()).decode()
    return Response(200, b'"ok"', {"Set-Cookie": f"auth={token}; Version=1"})


async def attempts(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Of AMQP clients to log in at a node, since its broker started. By source nothing is counted,
    as in RabbitMQ unless it is asked to."""
    node = parameters["node"]
    if node not in cluster_nodes(backend):
        raise not_found()
    if node != backend.config.name:
        return await relay(backend, node, request)
    if request.method == "DELETE":
        backend.counts.forget(AUTHENTICATED, REFUSED)
        return Response(204)
    good, bad = backend.counts.of(AUTHENTICATED), backend.counts.of(REFUSED)
    if request.segments[-1] == "source" or not good + bad:
        return json_response([])
    told = {
        "protocol": "amqp091",
        "auth_attempts": good + bad,
        "auth_attempts_failed": bad,
        "auth_attempts_succeeded": good,
    }
    return json_response([told])


async def extensions(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response([])


async def feature_flags(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    shown = [
        {
            "name": name,
            "desc": text,
            "doc_url": "",
            "state": "enabled",
            "stability": "stable",
            "provided_by": provider,
        }
        for name, (text, provider) in FEATURES.items()
    ]
    return json_response(shown)


async def enable_feature_flag(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """All are enabled."""
    if parameters["name"] not in FEATURES:
        raise bad_request("unsupported")
    return Response(204)


async def reset(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Rates begin anew, at every node or at one."""
    nodes = cluster_nodes(backend)
    if parameters and parameters["node"] not in nodes:
        raise not_found()
    for node in [parameters["node"]] if parameters else backend.metadata.running_nodes():
        if node == backend.config.name:
            backend.rates.forget()
        else:
            await relay(backend, node, Request("DELETE", ("api", "reset", node), user=request.user))
    return Response(204)


# Who asks need not have logged in.
OPEN_ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/auth", how_to_log_in),
    Route("POST", "/api/login", log_in),
)
ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/auth/attempts/:node", attempts),
    Route("DELETE", "/api/auth/attempts/:node", attempts),
    Route("GET", "/api/auth/attempts/:node/source", attempts),
    Route("DELETE", "/api/auth/attempts/:node/source", attempts),
    Route("GET", "/api/extensions", extensions),
    Route("GET", "/api/feature-flags", feature_flags),
    Route("PUT", "/api/feature-flags/:name/enable", enable_feature_flag),
    Route("DELETE", "/api/reset", reset),
    Route("DELETE", "/api/reset/:node", reset),
)
