"""/api/users and /api/whoami: those of the node's configuration, all of them administrators.

Password hashes are not shown: the configuration has the passwords themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shalott.broker.base.http_api import Request, Response, json_response, not_found
from shalott.broker.rabbit.management.backend import ManagementBackend, Route

TAGS = ("administrator",)


def view_user(name: str) -> dict[str, Any]:
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
    Route("GET", "/api/whoami", whoami),
    Route("GET", "/api/users", list_users),
    Route("GET", "/api/users/:name", show_user),
)
