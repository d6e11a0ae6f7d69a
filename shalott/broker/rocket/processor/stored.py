"""A stored message as a pull carries it, for who wants to look into it."""

from __future__ import annotations

from shalott.broker.rocket.commitlog.codec import BORN_HOST_V6, STORE_HOST_V6, Stored, decode
from shalott.broker.rocket.processor.properties import properties_of

_OFFSET = slice(28, 36)


def read_stored(data: bytes) -> Stored:
    """One whole message, wherever it lies. Raises MessageIllegal if it is damaged."""
    return decode(data, int.from_bytes(data[_OFFSET], "big"))


def property_of(stored: Stored, name: str) -> str:
    """One property; "" if the message does not have it."""
    return properties_of(stored.message.properties).get(name, "")


def flags_to_store_again(stored: Stored) -> int:
    """Its sysFlag without what says how its hosts lie."""
    return stored.message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
