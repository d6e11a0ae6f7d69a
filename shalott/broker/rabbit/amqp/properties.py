"""The few content properties that a broker reads. The property list itself is kept and passed on as
it came.

The list is a word of flags (bit 15 first; bit 0 set means that another word follows) and then the
values of the properties whose flag is set, in the specification's order.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from pamqp import commands, decode

from shalott.broker.rabbit.amqp.arguments import MAX_EXPIRY_MS
from shalott.broker.rabbit.amqp.errors import PRECONDITION_FAILED, SYNTAX_ERROR, AmqpError
from shalott.broker.rabbit.amqp.tables import (
    KIND_NAMES,
    join_table,
    read_table,
    split_array,
    split_table,
)

_FIELDS: tuple[tuple[int, str, str], ...] = tuple(
    (flag, name, commands.Basic.Properties.amqp_type(name))
    for name, flag in commands.Basic.Properties.flags.items()
)
_KINDS: Mapping[str, str] = {name: kind for _, name, kind in _FIELDS}
_READ = ("headers", "delivery_mode", "priority", "expiration", "user_id", "reply_to")
_SELECTED = "CC and BCC"  # no property's name
_BCC = b"BCC"
T = TypeVar("T")


class Properties(msgspec.Struct, frozen=True):
    """As queues want them; ``headers`` in plain values, for routing."""

    persistent: bool = False
    priority: int = 0
    expiration_ms: int | None = None
    headers: dict[str, object] = {}
    user_id: str | None = None
    reply_to: str | None = None
    also: tuple[str, ...] = ()  # routing keys of the headers CC and BCC
    has_bcc: bool = False


def read_properties(data: bytes) -> Properties:
    """Raises AmqpError: 502 if the list is malformed, 406 if a value means nothing."""
    try:
        values = _decode_list(data)
    except (ValueError, struct.error, OverflowError, OSError, RecursionError) as error:
        text = f"the content properties can't be decoded: {error}"
        raise AmqpError(SYNTAX_ERROR, text) from error
    expiration_ms = _expiration_ms(_typed(values, "expiration", str))
    selected = _selected(values.pop(_SELECTED, ()))
    return Properties(
        persistent=values.get("delivery_mode") == 2,
        priority=_typed(values, "priority", int) or 0,
        expiration_ms=expiration_ms,
        headers=_typed(values, "headers", dict) or {},
        user_id=_typed(values, "user_id", str),
        reply_to=_typed(values, "reply_to", str),
        also=tuple(key for keys in selected.values() for key in keys),
        has_bcc=_BCC in selected,
    )


def _selected(headers: object) -> dict[bytes, list[str]]:
    """Sender-selected distribution: more routing keys, by header. Raises AmqpError(406)."""
    assert isinstance(headers, tuple)
    found: dict[bytes, list[str]] = {}
    for name in (b"CC", _BCC):
        value = next((value for key, value in headers if key == name), None)
        if value is None:
            continue
        if value[:1] != b"A":
            kind = KIND_NAMES[value[0]]
            text = f'invalid message: {{unacceptable_type_in_header,"{name.decode()}",{kind}}}'
            raise AmqpError(PRECONDITION_FAILED, text)
        keys = [each[5:] for each in split_array(value[1:]) if each[:1] == b"S"]
        found[name] = [key.decode(errors="replace") for key in keys]
    return found


def without_bcc(data: bytes) -> bytes:
    """The list as consumers are to see it."""
    values = split_properties(data)
    fields = split_table(values["headers"])
    values["headers"] = join_table(field for field in fields if field[0] != _BCC)
    return join_properties(values)


def with_reply_to(data: bytes, address: str) -> bytes:
    encoded = address.encode()
    values = {**split_properties(data), "reply_to": bytes((len(encoded),)) + encoded}
    return join_properties(values)


def _typed(values: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    value = values.get(name)
    assert value is None or isinstance(value, kind), f"{name} is decoded by its type"
    return value


def split_properties(data: bytes) -> dict[str, bytes]:
    """The list's properties, each still encoded. Raises ValueError or struct.error."""
    (flags,) = struct.unpack_from(">H", data)
    offset = 2
    word = flags
    while word & 1:  # no property lives in a further word
        (word,) = struct.unpack_from(">H", data, offset)
        offset += 2
    values: dict[str, bytes] = {}
    for flag, name, kind in _FIELDS:
        if flags & flag:
            end = offset + _size(data, offset, kind)
            if end > len(data):
                raise ValueError(f"{name} runs past the end of the list")
            values[name] = data[offset:end]
            offset = end
    return values


def join_properties(values: Mapping[str, bytes]) -> bytes:
    """The inverse."""
    flags = sum(flag for flag, name, _ in _FIELDS if name in values)
    return struct.pack(">H", flags) + b"".join(
        values[name] for _, name, _ in _FIELDS if name in values
    )


def _size(data: bytes, offset: int, kind: str) -> int:
    if kind == "shortstr":
        return 1 + (data[offset] if offset < len(data) else 0)
    if kind == "table":
        return 4 + int(struct.unpack_from(">I", data, offset)[0])
    return 8 if kind == "timestamp" else 1  # else: an octet


def _decode_list(data: bytes) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, encoded in split_properties(data).items():
        if name == "headers":
            values[name] = read_table(encoded)
            fields = split_table(encoded)
            values[_SELECTED] = tuple(each for each in fields if each[0] in (b"CC", _BCC))
        elif name in _READ:
            values[name] = decode.by_type(encoded, _KINDS[name])[1]
    return values


def _expiration_ms(text: str | None) -> int | None:
    if text is None:
        return None
    fault = _fault_of(text)
    if fault is not None:
        raise AmqpError(PRECONDITION_FAILED, f"invalid expiration '{text}': {fault}")
    return int(text)


def _fault_of(expiration: str) -> str | None:
    """In RabbitMQ's words (rabbit_basic:parse_expiration)."""
    number = re.match(r"[+-]?[0-9]+", expiration)
    if number is None:
        return "no_integer"
    rest = expiration[number.end() :]
    if rest:
        return f'{{leftover_string,"{rest}"}}'
    milliseconds = int(number.group()[:20])
    if milliseconds < 0:
        return f"{{value_negative,{milliseconds}}}"
    return f"{{value_too_large,{milliseconds}}}" if milliseconds > MAX_EXPIRY_MS else None
