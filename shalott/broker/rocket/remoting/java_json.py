"""JSON as Java's brokers, name servers and controllers write it: keys that are integers are bare.

Their library writes a map with integer keys as ``{0:"…"}``, on the wire and in files, and reads
quoted ones as well. So what we write is standard, and what we read may be either. Nothing else is
let through that JSON does not have.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

# A string as a whole, ended or not, so that nothing in it is taken for a key; or a bare key, which
# stands between "{" or "," and ":".
_STRING_OR_KEY = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    rb"|(?P<before>[{,][ \t\r\n]*)(?P<key>-?(?:0|[1-9][0-9]*))(?=[ \t\r\n]*:)",
    re.DOTALL,
)


def decode_java_json(data: bytes, shape: type[T]) -> T:
    """Raises msgspec.DecodeError for what is no such JSON, or none of that shape."""
    try:
        return _decode(data, shape)
    except msgspec.ValidationError:
        raise  # it is JSON, with the wrong content
    except msgspec.DecodeError:
        quoted = with_quoted_keys(data)
        if quoted == data:
            raise
    return _decode(quoted, shape)


def with_quoted_keys(data: bytes) -> bytes:
    """The same with bare integer keys in quotation marks."""
    return _STRING_OR_KEY.sub(_quoted, data)


def _quoted(found: re.Match[bytes]) -> bytes:
    key = found["key"]
    return found[0] if key is None else found["before"] + b'"' + key + b'"'


def _decode(data: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=shape)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
