"""Reads a stored message as pulls carry it (reference 3.3.3); the store writes them."""

from __future__ import annotations

import struct

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">H")
MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
BORN_V6 = 0x10  # sysFlag: the born host has 16 bytes
STORE_V6 = 0x20
_AT_MAGIC = 4
_AT_SYS_FLAG = 36
_AT_BORN_MS = 40
_AT_BORN_HOST = 48


def is_message(data: bytes) -> bool:
    """Whether a whole message begins here."""
    if len(data) < _AT_BORN_HOST:
        return False
    total, magic = _int(data, 0), _int(data, _AT_MAGIC)
    return magic in (MAGIC_V1, MAGIC_V2) and total <= len(data)


def store_ms_of(message: bytes) -> int:
    return _long(message, _after_born_host(message))


def body_of(message: bytes) -> bytes:
    start, length = _body(message)
    return message[start : start + length]


def topic_of(message: bytes) -> str:
    start, length = _topic(message)
    return message[start : start + length].decode()


def properties_of(message: bytes) -> str:
    """The text "key 0x01 value 0x02 ..."."""
    start, length = _topic(message)
    at = start + length
    size = _SHORT.unpack_from(message, at)[0]
    return message[at + 2 : at + 2 + size].decode()


def property_of(message: bytes, name: str) -> str:
    """One property; "" if the message does not have it."""
    for pair in properties_of(message).split("\x02"):
        key, separator, value = pair.partition("\x01")
        if separator and key == name:
            return value
    return ""


def flag_of(message: bytes) -> int:
    return _int(message, 16)


def queue_id_of(message: bytes) -> int:
    return _int(message, 12)


def sys_flag_of(message: bytes) -> int:
    return _int(message, _AT_SYS_FLAG)


def born_ms_of(message: bytes) -> int:
    return _long(message, _AT_BORN_MS)


def reconsume_times_of(message: bytes) -> int:
    return _int(message, _after_store_host(message))


def _after_born_host(message: bytes) -> int:
    return _AT_BORN_HOST + (20 if sys_flag_of(message) & BORN_V6 else 8)


def _after_store_host(message: bytes) -> int:
    return _after_born_host(message) + 8 + (20 if sys_flag_of(message) & STORE_V6 else 8)


def _body(message: bytes) -> tuple[int, int]:
    at = _after_store_host(message) + 4 + 8
    return at + 4, _int(message, at)


def _topic(message: bytes) -> tuple[int, int]:
    start, length = _body(message)
    at = start + length
    if _int(message, _AT_MAGIC) == MAGIC_V2:
        return at + 2, _SHORT.unpack_from(message, at)[0]
    return at + 1, message[at]


def _int(data: bytes, at: int) -> int:
    return int(_INT.unpack_from(data, at)[0])


def _long(data: bytes, at: int) -> int:
    return int(_LONG.unpack_from(data, at)[0])
