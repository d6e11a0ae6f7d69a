"""The HTTP API of a node: requests, responses, errors that become responses, and routes.

Bodies are JSON, errors ``{"error": ..., "reason": ...}``: RabbitMQ's shapes, so that its users'
scripts work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import msgspec

from shalott.broker.base.errors import BrokerError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """``segments`` is the path, split and then percent-decoded: a vhost "/" is one segment."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    user: str = ""  # once authenticated
    peer: str = ""  # the address that it came from; "" is the node itself


@dataclass(frozen=True, slots=True)
class Response:
    """``body`` is JSON unless ``headers`` have another Content-Type, or empty."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class ApiError(BrokerError):
    """Answered with ``status`` and RabbitMQ's error body."""

    def __init__(
        self, status: int, error: str, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers or {}

    def response(self) -> Response:
        body = msgspec.json.encode({"error": self.error, "reason": self.reason})
        return Response(self.status, body, self.headers)


def json_response(value: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value))


def not_found() -> ApiError:
    return ApiError(404, "Object Not Found", "Not Found")


def bad_request(reason: str) -> ApiError:
    return ApiError(400, "bad_request", reason)


def unavailable(reason: str) -> ApiError:
    return ApiError(503, "service_unavailable", reason)


def is_true(request: Request, key: str) -> bool:
    """Whether the query says ``key=true``."""
    return request.query.get(key, "false") == "true"


def decode_body(request: Request, shape: type[T]) -> T:
    """The JSON body as ``shape``; an empty one counts as {}. Raises ApiError(400)."""
    try:
        return msgspec.json.decode(request.body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from error
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error


# -- routes ----------------------------------------------------------------------------------------


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

    @cached_property
    def pattern(self) -> tuple[str, ...]:
        """The segments of ``path``."""
        return tuple(self.path.strip("/").split("/"))


def find(
    routes: Sequence[RouteOf[Backend]], method: str, segments: tuple[str, ...]
) -> tuple[HandlerOf[Backend], Mapping[str, str]]:
    """Raises ApiError 404 if no route has the path, 405 if none of those that have it the method.

    A literal segment goes before a parameter: routes are tried in order, so list literals first.
    """
    wanted = "GET" if method == "HEAD" else method
    allowed: list[str] = []
    for route in routes:
        if len(route.pattern) != len(segments):
            continue
        parameters = _match(route.pattern, segments)
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
    """The two are equally long."""
    parameters = {}
    for expected, given in zip(pattern, segments, strict=True):
        if expected.startswith(":"):
            parameters[expected[1:]] = given
        elif expected != given:
            return None
    return parameters
