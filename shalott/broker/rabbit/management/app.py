"""/api/shalott/app: the broker on this node, stopped and started while the node stays; and what may
be done to the node while it is stopped.

RabbitMQ has this in rabbitmqctl only: ``stop_app``, ``start_app``, ``reset``, ``force_reset``,
``join_cluster`` and ``force_boot``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route


class AppBody(msgspec.Struct):
    action: str = ""
    node: str = ""


async def show_app(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    standing = backend.clustering.standing
    return json_response(
        {
            "node": backend.config.name,
            "phase": backend.phase,
            "life": backend.env.incarnation,
            "alone": standing.alone,
            "joining": standing.joining,
            "problem": standing.problem,
        }
    )


async def act_on_app(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """The body is ``{"action": "stop"}`` (or start, reset, force_reset, force_boot), or
    ``{"action": "join", "node": NODE}``. The answer does not wait for what follows."""
    body = decode_body(request, AppBody)
    try:
        await _act(backend, body)
    except ApiError:
        raise
    except BrokerError as error:
        raise bad_request(str(error)) from error
    return Response(204)


async def _act(backend: ManagementBackend, body: AppBody) -> None:
    match body.action:
        case "stop":
            backend.stop_app()
        case "start":
            backend.start_app()
        case "reset" | "force_reset":
            await backend.clustering.reset(force=body.action == "force_reset")
        case "join":
            await backend.clustering.join(body.node)
        case "force_boot":
            await backend.clustering.force_boot()
        case _:
            raise bad_request(f"unknown action '{body.action}'")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/shalott/app", show_app),
    Route("POST", "/api/shalott/app", act_on_app),
)
