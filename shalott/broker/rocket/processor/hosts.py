"""Hosts as stored messages have them: an IPv4 address and a port.

Ours may be known by names (in containers, in the simulation). A name gets an address of its own
in 127.0.0.0/8, always the same: it keeps message ids of several brokers apart, and leads nobody
astray.
"""

from __future__ import annotations

import zlib

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.addresses import parse_address


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
