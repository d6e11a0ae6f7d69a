"""Argument tables: reduced to plain values, validated at declare, compared at redeclare.

The rules are RabbitMQ's (rabbit/rabbit_amqqueue.erl, check_declare_arguments): an argument that a
broker knows must have a sensible value, one that it doesn't know is kept and ignored.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import TypeGuard

from shalott.broker.rabbit.amqp.errors import PRECONDITION_FAILED, SYNTAX_ERROR, AmqpError

_MAX_NESTING = 32  # of tables and arrays in each other
_MAX_MS = 2**32 - 1  # timers can't be longer
MAX_PRIORITY = 255  # an octet (rabbit_common/include/rabbit.hrl)


def plain_table(table: Mapping[str, object] | None) -> dict[str, object]:
    """A field table without types that only AMQP has, so that rows and comparisons are simple.

    Raises AmqpError(502) on one that is nested absurdly deep.
    """
    return {key: _plain(value, 1) for key, value in (table or {}).items()}


def _plain(value: object, depth: int) -> object:
    if depth > _MAX_NESTING:
        raise AmqpError(SYNTAX_ERROR, f"a table is nested over {_MAX_NESTING} levels deep")
    if isinstance(value, dict):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, datetime.datetime):
        return int(value.timestamp())
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_number(value: object, least: int, most: int | None, complaint: str) -> str | None:
    if not _is_integer(value):
        return "must be an integer"
    if value < 0:
        return "must not be negative"
    if most is not None and value > most:
        return f"must be {most} at most" if complaint == "" else complaint
    return "must not be zero" if value < least else None


def _check_non_negative(value: object) -> str | None:
    return _check_number(value, 0, None, "")


def _check_milliseconds(value: object) -> str | None:
    return _check_number(value, 0, _MAX_MS, "is too large")


def _check_expires(value: object) -> str | None:
    return _check_number(value, 1, _MAX_MS, "is too large")


def _check_max_priority(value: object) -> str | None:
    return _check_number(value, 0, MAX_PRIORITY, "")


def _check_string(value: object) -> str | None:
    return None if isinstance(value, str) else "must be a string"


def _check_bool(value: object) -> str | None:
    return None if isinstance(value, bool) else "must be a boolean"


def _one_of(*allowed: object) -> Callable[[object], str | None]:
    names = ", ".join(str(choice) for choice in allowed)
    return lambda value: None if value in allowed else f"must be one of: {names}"


_QUEUE_CHECKS: Mapping[str, Callable[[object], str | None]] = {
    "x-expires": _check_expires,
    "x-message-ttl": _check_milliseconds,
    "x-dead-letter-exchange": _check_string,
    "x-dead-letter-routing-key": _check_string,
    "x-max-length": _check_non_negative,
    "x-max-length-bytes": _check_non_negative,
    "x-max-priority": _check_max_priority,
    "x-overflow": _one_of("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-queue-mode": _one_of("default", "lazy"),
    "x-queue-type": _one_of("classic"),
    "x-queue-version": _one_of(1, 2),
    "x-single-active-consumer": _check_bool,
    "x-queue-master-locator": _one_of("client-local", "min-masters", "random"),
}

_COMPARED_AT_QUEUE_REDECLARE = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-single-active-consumer",
)


def check_queue_arguments(queue: str, arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406) on the first argument that can't be."""
    for name, value in arguments.items():
        check = _QUEUE_CHECKS.get(name)
        fault = None if check is None else check(value)
        if fault is not None:
            raise _invalid(name, value, f"queue '{queue}'", fault)
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        value = arguments["x-dead-letter-routing-key"]
        fault = "needs x-dead-letter-exchange as well"
        raise _invalid("x-dead-letter-routing-key", value, f"queue '{queue}'", fault)


def check_exchange_arguments(exchange: str, arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406)."""
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        where = f"exchange '{exchange}'"
        raise _invalid("alternate-exchange", alternate, where, "must be a string")


def check_binding_arguments(arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406). Only headers exchanges read them; nonsense is refused for all."""
    match = arguments.get("x-match")
    if match is not None and match not in ("all", "any", "all-with-x", "any-with-x"):
        fault = "must be one of: all, any, all-with-x, any-with-x"
        raise _invalid("x-match", match, "a binding", fault)


def check_consumer_arguments(arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406)."""
    priority = arguments.get("x-priority", 0)
    if not _is_integer(priority):
        raise _invalid("x-priority", priority, "a consumer", "must be an integer")
    on_failover = arguments.get("x-cancel-on-ha-failover", False)
    if not isinstance(on_failover, bool):
        raise _invalid("x-cancel-on-ha-failover", on_failover, "a consumer", "must be a boolean")


def check_same_queue_arguments(
    where: str, received: Mapping[str, object], current: Mapping[str, object]
) -> None:
    """Raises AmqpError(406) if a redeclaration differs in an argument that matters."""
    check_same_arguments(where, received, current, _COMPARED_AT_QUEUE_REDECLARE)


def check_same_arguments(
    where: str,
    received: Mapping[str, object],
    current: Mapping[str, object],
    names: tuple[str, ...],
) -> None:
    for name in names:
        check_same(name, where, received.get(name), current.get(name))


def check_same(name: str, where: str, received: object, current: object) -> None:
    """Raises AmqpError(406) if one property of a redeclaration differs."""
    if received != current:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"inequivalent arg '{name}' for {where}:"
            f" received {_show(received)} but current is {_show(current)}",
        )


def _show(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "'true'" if value else "'false'"
    return f"'{value}'"


def _invalid(name: str, value: object, where: str, fault: str) -> AmqpError:
    text = f"invalid arg '{name}' for {where}: {_show(value)} {fault}"
    return AmqpError(PRECONDITION_FAILED, text)
