"""Argument tables: validated at declare, compared at redeclare.

The rules are RabbitMQ's (rabbit/rabbit_amqqueue.erl, check_declare_arguments): an argument that a
broker knows must have a sensible value, one that it doesn't know is kept and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard

from shalott.broker.rabbit.amqp.errors import PRECONDITION_FAILED, AmqpError

MAX_EXPIRY_MS = 315_360_000_000  # ten years
MAX_PRIORITY = 255  # an octet (rabbit_common/include/rabbit.hrl)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def type_name(value: object) -> str:
    """What RabbitMQ calls the AMQP type that clients give a value like this."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    names = {str: "longstr", float: "double", dict: "table", list: "array", bytes: "binary"}
    return names.get(type(value), "void")


# What is wrong with a value, in RabbitMQ's words: a term of Erlang.


def _unacceptable(value: object) -> str:
    return f"{{unacceptable_type,{type_name(value)}}}"


def _check_integer(value: object) -> str | None:
    return None if _is_integer(value) else f'"expected integer, got {type_name(value)}"'


def _check_non_negative(value: object) -> str | None:
    is_negative = _is_integer(value) and value < 0
    return f"{{value_negative,{value}}}" if is_negative else _check_integer(value)


def _check_milliseconds(value: object) -> str | None:
    if _is_integer(value) and value > MAX_EXPIRY_MS:
        return f"{{value_too_large,{value}}}"
    return _check_non_negative(value)


def _check_expires(value: object) -> str | None:
    return "{value_zero,0}" if value == 0 and _is_integer(value) else _check_milliseconds(value)


def _check_max_priority(value: object) -> str | None:
    if _is_integer(value) and value > MAX_PRIORITY:
        return f"{{max_value_exceeded,{value}}}"
    return _check_non_negative(value)


def _check_string(value: object) -> str | None:
    return None if isinstance(value, str) else _unacceptable(value)


def _check_bool(value: object) -> str | None:
    return None if isinstance(value, bool) else _unacceptable(value)


def _check_version(value: object) -> str | None:
    fault = _check_non_negative(value)
    return fault or (None if value in (1, 2) else f"\"unsupported queue version '{value}'\"")


def _one_of(complaint: str, *allowed: str) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        return _check_string(value) or (None if value in allowed else complaint.format(value=value))

    return check


_QUEUE_CHECKS: Mapping[str, Callable[[object], str | None]] = {
    "x-expires": _check_expires,
    "x-message-ttl": _check_milliseconds,
    "x-dead-letter-exchange": _check_string,
    "x-dead-letter-routing-key": _check_string,
    "x-max-length": _check_non_negative,
    "x-max-length-bytes": _check_non_negative,
    "x-max-priority": _check_max_priority,
    "x-overflow": _one_of("invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx"),
    "x-queue-mode": _one_of("\"unsupported queue mode '{value}'\"", "default", "lazy"),
    "x-queue-type": _one_of("\"unsupported queue type '{value}'\"", "classic"),
    "x-queue-version": _check_version,
    "x-single-active-consumer": _check_bool,
    "x-queue-master-locator": _one_of(
        "invalid_queue_locator_arg", "client-local", "min-masters", "random"
    ),
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


def check_queue_arguments(where: str, arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406) on the first argument that can't be. ``where``: the queue in words."""
    for name, value in arguments.items():
        check = _QUEUE_CHECKS.get(name)
        fault = None if check is None else check(value)
        if fault is not None:
            raise _invalid(name, where, fault)
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise _invalid("x-dead-letter-routing-key", where, "routing_key_but_no_dlx_defined")


def check_exchange_arguments(where: str, arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406)."""
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        kind = type_name(alternate)
        text = f"invalid type '{kind}' for arg 'alternate-exchange' in {where}"
        raise AmqpError(PRECONDITION_FAILED, text)


def check_binding_arguments(arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406). Only headers exchanges read them; nonsense is refused for all."""
    match = arguments.get("x-match", "all")
    if match not in ("all", "any", "all-with-x", "any-with-x"):
        shown = f'value <<"{match}">>; expected all, any, all-with-x, or any-with-x'
        if not isinstance(match, str):
            shown = f"type {type_name(match)} (value {match}); expected longstr"
        raise AmqpError(PRECONDITION_FAILED, f"Invalid x-match field {shown}")


def check_consumer_arguments(where: str, arguments: Mapping[str, object]) -> None:
    """Raises AmqpError(406)."""
    checks = {"x-priority": _check_integer, "x-cancel-on-ha-failover": _check_bool}
    for name, check in checks.items():
        fault = check(arguments[name]) if name in arguments else None
        if fault is not None:
            raise _invalid(name, where, fault)


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
        mine, theirs = received.get(name), current.get(name)
        if mine is None or theirs is None:
            _check_same(name, where, _with_type(mine), _with_type(theirs))
        else:
            check_same(name, where, mine, theirs)


def check_same(name: str, where: str, received: object, current: object) -> None:
    """Raises AmqpError(406) if one property of a redeclaration differs."""
    if received != current:
        _check_same(name, where, _show(received), _show(current))


def _check_same(name: str, where: str, received: str, current: str) -> None:
    if received != current:
        text = (
            f"inequivalent arg '{name}' for {where}: received {received} but current is {current}"
        )
        raise AmqpError(PRECONDITION_FAILED, text)


def _with_type(value: object) -> str:
    return "none" if value is None else f"the value {_show(value)} of type '{type_name(value)}'"


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "'true'" if value else "'false'"
    return f"'{value}'"


def _invalid(name: str, where: str, fault: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{name}' for {where}: {fault}")
