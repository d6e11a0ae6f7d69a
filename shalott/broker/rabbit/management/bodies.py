"""What requests say: RabbitMQ's tools send booleans and numbers as strings too
(rabbit_mgmt_util.erl, parse_bool and parse_int).
"""

from __future__ import annotations

from shalott.broker.base.http_api import bad_request

Flag = bool | str
Number = int | str


def flag(value: Flag) -> bool:
    """Raises ApiError(400)."""
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise bad_request(f"not_boolean: {value}")
    return value == "true"


def number(value: Number) -> int:
    """Raises ApiError(400)."""
    if isinstance(value, int):
        return value
    try:
        return int(value)
    except ValueError:
        raise bad_request(f"not_integer: {value}") from None


def words(value: str | list[str]) -> tuple[str, ...]:
    """Tags: a list, or one string with commas between them."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def short(name: str) -> str:
    """A name that AMQP can carry. Raises ApiError(400)."""
    if len(name.encode()) > 255:
        raise bad_request("a name has at most 255 bytes")
    return name
