"""Fields: the header of a request (its ext fields), read with types.

Everything is text on the wire, but clients differ in it: booleans are "true" and "false" from Java
and "1" and "0" from C++ (docs/protocols.md 6.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.broker.base.errors import BrokerError

_TRUE = ("true", "1")
_FALSE = ("false", "0", "")


class BadRequest(BrokerError):
    """A header or a body that can't be understood. Answered with SYSTEM_ERROR."""


class Fields:
    """A view of one header. A field without a default must be there."""

    def __init__(self, ext: Mapping[str, str]) -> None:
        self._ext = ext

    def text(self, name: str, default: str | None = None) -> str:
        value = self._ext.get(name, default)
        if value is None:
            raise BadRequest(f"the field {name} is missing")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._ext.get(name)
        if value is None or value in ("", "null"):
            if default is None:
                raise BadRequest(f"the field {name} is missing")
            return default
        try:
            return int(value)
        except ValueError:
            raise BadRequest(f"the field {name} should be a number, not {value!r}") from None

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._ext.get(name)
        if value is None:
            return default
        lowered = value.lower()
        if lowered in _TRUE:
            return True
        if lowered in _FALSE:
            return False
        raise BadRequest(f"the field {name} should be true or false, not {value!r}")
