"""What stored messages hold: properties ("key 0x01 value 0x02 ..."), flags and hosts."""

from __future__ import annotations

import zlib

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.commitlog.codec import BORN_HOST_V6, STORE_HOST_V6, Stored, decode
from shalott.broker.rocket.config import parse_address

UNIQ_KEY = "UNIQ_KEY"  # the id that the producer's client gave it
KEYS = "KEYS"
TAGS = "TAGS"
DELAY = "DELAY"
WAIT = "WAIT"
CLUSTER = "CLUSTER"  # of the broker, in a request
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"


def properties_of(text: str) -> dict[str, str]:
    """What is no pair is left out."""
    pairs = (pair.partition("\x01") for pair in text.split("\x02"))
    return {key: value for key, separator, value in pairs if separator}


def properties_text(properties: dict[str, str]) -> str:
    return "".join(f"{key}\x01{value}\x02" for key, value in properties.items())


# -- stored messages -------------------------------------------------------------------------------


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


# -- hosts -----------------------------------------------------------------------------------------
# Stored messages have hosts as an IPv4 address and a port. Our nodes may be known by names (in
# containers, in the simulation). Each name gets an address of its own in 127.0.0.0/8, always the
# same, which keeps message ids of several brokers apart.


def stored_host(address: str) -> tuple[str, int]:
    """(IPv4 address, port) for "host:port"; what is no address at all is 127.0.0.1:0."""
    try:
        host, port = parse_address(address)
    except BrokerError:
        return "127.0.0.1", 0
    return (host if is_ipv4(host) else _substitute(host)), port


def is_ipv4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts)


def _substitute(name: str) -> str:
    number = zlib.crc32(name.encode())
    return f"127.{number >> 16 & 0xFF}.{number >> 8 & 0xFF}.{number & 0xFF}"
