"""Router: from a path to a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from shalott.broker.base.http.messages import ApiError, Request, Response, not_found

Backend = TypeVar("Backend")

HandlerOf = Callable[[Backend, Request, Mapping[str, str]], Awaitable[Response]]


@dataclass(frozen=True)  # no slots: a generic class must take its __orig_class__
class RouteOf(Generic[Backend]):
    """For one kind of node. ``path`` is like /api/queues/:vhost/:name; what the ``:`` segments
    match is handed over.
    """

    method: str
    path: str
    handler: HandlerOf[Backend]


def find(
    routes: Sequence[RouteOf[Backend]], method: str, segments: tuple[str, ...]
) -> tuple[HandlerOf[Backend], Mapping[str, str]]:
    """Raises ApiError 404 if no route has the path, 405 if none of those that have it the method.

    A literal segment goes before a parameter: routes are tried in order, so list literals first.
    """
    wanted = "GET" if method == "HEAD" else method
    allowed: list[str] = []
    for route in routes:
        parameters = _match(tuple(route.path.strip("/").split("/")), segments)
        if parameters is None:
            continue
        if route.method == wanted:
            return route.handler, parameters
        allowed.append(route.method)
    if not allowed:
        raise not_found()
    if "GET" in allowed:
        allowed.append("HEAD")
    names = ", ".join(sorted(dict.fromkeys(allowed)))
    reason = f"{method} is not allowed here; allowed are {names}"
    raise ApiError(405, "Method Not Allowed", reason, {"Allow": names})


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> Mapping[str, str] | None:
    if len(pattern) != len(segments):
        return None
    parameters = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith(":"):
            parameters[expected[1:]] = given
        elif expected != given:
            return None
    return parameters
