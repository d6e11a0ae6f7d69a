"""/api/shalott/app: the broker on this node, stopped and started while the node stays.

RabbitMQ has this in rabbitmqctl only: ``stop_app`` and ``start_app``.
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.broker.base.http.messages import (
    Request,
    Response,
    bad_request,
    decode_body,
    json_response,
)
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.queues import ActionBody


async def show_app(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response({"node": backend.config.name, "phase": backend.phase})


async def act_on_app(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """The body is ``{"action": "stop"}`` or ``{"action": "start"}``. The answer does not wait."""
    action = decode_body(request, ActionBody).action
    if action == "stop":
        backend.stop_app()
    elif action == "start":
        backend.start_app()
    else:
        raise bad_request(f"unknown action '{action}': known are stop and start")
    return Response(204)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/shalott/app", show_app),
    Route("POST", "/api/shalott/app", act_on_app),
)
