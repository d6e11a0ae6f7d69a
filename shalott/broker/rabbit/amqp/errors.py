"""AmqpError: everything that closes a channel or a connection, with the protocol's own reply codes.

The AMQP 0-9-1 specification splits its codes in two. Soft errors end the channel, hard errors end
the connection; in neither case does the node suffer. ``class_id`` and ``method_id`` name the method
that failed and are filled in where they are known.
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.broker.base.errors import BrokerError

CONTENT_TOO_LARGE = 311
NO_ROUTE = 312
CONNECTION_FORCED = 320
ACCESS_REFUSED = 403
NOT_FOUND = 404
RESOURCE_LOCKED = 405
PRECONDITION_FAILED = 406
FRAME_ERROR = 501
SYNTAX_ERROR = 502
COMMAND_INVALID = 503
CHANNEL_ERROR = 504
UNEXPECTED_FRAME = 505
RESOURCE_ERROR = 506
NOT_ALLOWED = 530
NOT_IMPLEMENTED = 540
INTERNAL_ERROR = 541

NAMES: Mapping[int, str] = {
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}

SOFT_CODES = (
    CONTENT_TOO_LARGE,
    NO_ROUTE,
    ACCESS_REFUSED,
    NOT_FOUND,
    RESOURCE_LOCKED,
    PRECONDITION_FAILED,
)


class AmqpError(BrokerError):
    """A refusal that the client is told about. ``hard`` ones close the whole connection."""

    def __init__(
        self,
        code: int,
        text: str,
        *,
        class_id: int = 0,
        method_id: int = 0,
        hard: bool | None = None,
    ) -> None:
        super().__init__(f"{code} {NAMES[code]}: {text}")
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id
        # 403 is a channel error, except when it refuses a login: then there is no channel yet.
        self.hard = code not in SOFT_CODES if hard is None else hard

    @property
    def reply_text(self) -> str:
        """As sent to the client: at most 255 bytes, as a short string can hold."""
        full = f"{NAMES[self.code]} - {self.text}"
        return full.encode()[:255].decode(errors="ignore")
