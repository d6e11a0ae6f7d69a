"""Requests and responses of the management API, and the errors that become responses.

Bodies are JSON, errors ``{"error": ..., "reason": ...}``: RabbitMQ's shapes, so that its users'
scripts work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

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


def json_response(value: Any, status: int = 200) -> Response:
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
