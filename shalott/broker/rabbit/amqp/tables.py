"""Field tables and arrays: taken apart and put together without decoding a value, and read.

AMQP has more types than Python: a client's 16-bit integer that was decoded and encoded again
would be another type at the consumer. A broker that adds a header therefore leaves the others as
bytes. What it has to understand it reads as plain values, so that rows and comparisons are simple;
a moment is a number of seconds, and may be any.

A *value* is its type octet and what follows it; a table and an array are their four octets of
length and what follows them.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterable, Mapping

from shalott.broker.rabbit.amqp.errors import SYNTAX_ERROR, AmqpError

_LENGTH = struct.Struct(">I")
_VARIABLE = b"SxAF"  # their length is in the four octets that follow
_FIXED: Mapping[int, int] = {
    ord(kind): size
    for kinds, size in (("tbB", 1), ("su", 2), ("Iif", 4), ("D", 5), ("lLdT", 8), ("V\x00", 0))
    for kind in kinds
}

# As RabbitMQ calls them (rabbit_binary_parser.erl).
KIND_NAMES: Mapping[int, str] = {
    ord(kind): name
    for kind, name in (
        ("S", "longstr"), ("x", "binary"), ("A", "array"), ("F", "table"), ("t", "bool"),
        ("b", "byte"), ("B", "unsignedbyte"), ("s", "short"), ("u", "unsignedshort"),
        ("I", "signedint"), ("i", "unsignedint"), ("l", "long"), ("L", "long"), ("f", "float"),
        ("d", "double"), ("D", "decimal"), ("T", "timestamp"), ("V", "void"), ("\0", "void"),
    )
}  # fmt: skip

Field = tuple[bytes, bytes]  # name, value


def split_table(data: bytes) -> list[Field]:
    """Raises ValueError if ``data`` is not one table exactly."""
    _check_length(data)
    fields = []
    offset = _LENGTH.size
    while offset < len(data):
        name_end = offset + 1 + data[offset]
        value_end = name_end + _value_size(data, name_end)
        fields.append((data[offset + 1 : name_end], data[name_end:value_end]))
        offset = value_end
    return fields


def join_table(fields: Iterable[Field]) -> bytes:
    body = b"".join(bytes((len(name),)) + name + value for name, value in fields)
    return _LENGTH.pack(len(body)) + body


def split_array(data: bytes) -> list[bytes]:
    """Its values. Raises ValueError if ``data`` is not one array exactly."""
    _check_length(data)
    values = []
    offset = _LENGTH.size
    while offset < len(data):
        end = offset + _value_size(data, offset)
        values.append(data[offset:end])
        offset = end
    return values


def join_array(values: Iterable[bytes]) -> bytes:
    body = b"".join(values)
    return _LENGTH.pack(len(body)) + body


def long_string(text: str | bytes) -> bytes:
    """As a value."""
    data = text.encode() if isinstance(text, str) else text
    return b"S" + _LENGTH.pack(len(data)) + data


def _check_length(data: bytes) -> None:
    if len(data) < _LENGTH.size or _LENGTH.unpack_from(data)[0] != len(data) - _LENGTH.size:
        raise ValueError("a table's length is not its own")


def _value_size(data: bytes, offset: int) -> int:
    """Of the value that begins at ``offset``, its type octet included."""
    if offset >= len(data):
        raise ValueError("a table ends within a field")
    kind = data[offset]
    if kind in _VARIABLE:
        if offset + 1 + _LENGTH.size > len(data):
            raise ValueError("a table ends within a length")
        size = _LENGTH.size + int(_LENGTH.unpack_from(data, offset + 1)[0])
    elif kind in _FIXED:
        size = _FIXED[kind]
    else:
        raise ValueError(f"unknown field type {kind:#04x}")
    if offset + 1 + size > len(data):
        raise ValueError("a value runs past the end of its table")
    return 1 + size


# -- plain values ----------------------------------------------------------------------------------

_MAX_NESTING = 32  # of tables and arrays in each other
_NUMBERS: Mapping[int, struct.Struct] = {
    ord(kind): struct.Struct(layout)
    for kind, layout in (
        ("t", ">?"), ("b", ">b"), ("B", ">B"), ("s", ">h"), ("u", ">H"), ("I", ">i"), ("i", ">I"),
        ("l", ">q"), ("L", ">q"), ("f", ">f"), ("d", ">d"), ("T", ">Q"),
    )
}  # fmt: skip


def read_table(data: bytes, depth: int = 0) -> dict[str, object]:
    """Raises ValueError if ``data`` is not one table exactly, and AmqpError(502) if it is nested
    absurdly deep.
    """
    return {name.decode(): _read(value, depth + 1) for name, value in split_table(data)}


def _read(value: bytes, depth: int) -> object:
    if depth > _MAX_NESTING:
        raise AmqpError(SYNTAX_ERROR, f"a table is nested over {_MAX_NESTING} levels deep")
    kind, encoded = value[0], value[1:]
    if kind in _NUMBERS:
        return _NUMBERS[kind].unpack(encoded)[0]
    match chr(kind):
        case "F":
            return read_table(encoded, depth)
        case "A":
            return [_read(each, depth + 1) for each in split_array(encoded)]
        case "D":
            scale, digits = struct.unpack(">Bi", encoded)
            return str(decimal.Decimal(digits).scaleb(-scale))
        case "x":
            return encoded[_LENGTH.size :]
        case "S":
            try:
                return encoded[_LENGTH.size :].decode()
            except UnicodeDecodeError:
                return encoded[_LENGTH.size :]
    return None
