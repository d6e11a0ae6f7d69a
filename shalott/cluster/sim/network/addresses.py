"""Names of simulated hosts and sockets, and the errors that a kernel answers with.

The only module of the simulation that needs ``socket``: for its constants and its error of unknown
names. It opens none.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from shalott.cluster.sim.network.links import Host

Address = tuple[str, int]

ANY = "0.0.0.0"
LOOPBACK = "127.0.0.1"

# Linux's words; os.strerror depends on the C library and the locale.
MESSAGES: Mapping[int, str] = {
    errno.EPIPE: "Broken pipe",
    errno.EADDRINUSE: "address already in use",  # asyncio writes these two in lower case
    errno.EADDRNOTAVAIL: "cannot assign requested address",
    errno.ECONNRESET: "Connection reset by peer",
    errno.ENOTCONN: "Transport endpoint is not connected",
    errno.ETIMEDOUT: "Connection timed out",
}


class SocketName:
    """Stands in for a socket object: its names, and options that do nothing."""

    __slots__ = ("_local", "_remote")

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, local: Address, remote: Address | None = None) -> None:
        self._local = local
        self._remote = remote

    def __repr__(self) -> str:
        return f"<SocketName {self._local} -> {self._remote}>"

    def getsockname(self) -> Address:
        return self._local

    def getpeername(self) -> Address:
        if self._remote is None:
            raise os_error(errno.ENOTCONN)
        return self._remote

    def fileno(self) -> int:
        return -1

    def setsockopt(self, *option: object) -> None:
        pass

    def getsockopt(self, *option: object) -> int:
        return 0


class Hosts:
    """The simulated hosts by name, and by address, which they get in the order of their names'
    first mention."""

    def __init__(self) -> None:
        self._by_name: dict[str, Host] = {}
        self._by_address: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self._by_name[name]

    def add(self, name: str) -> Host:
        """The host of that name, which is made if there is none."""
        host = self._by_name.get(name)
        if host is None:
            number = len(self._by_name) + 1
            host = Host(name, f"10.0.{number >> 8}.{number & 255}")
            self._by_name[name] = self._by_address[host.address] = host
        return host

    def at(self, address: str) -> Host:
        return self._by_address[address]

    def resolve(self, name: str) -> str:
        if name in (LOOPBACK, "localhost"):
            return LOOPBACK
        if name == ANY or name in self._by_address:
            return name
        if name in self._by_name:
            return self._by_name[name].address
        raise unknown_name()

    def bind_address(self, here: Host, name: str | None) -> str:
        """Where a program on ``here`` listens that asks for ``name``."""
        address = self.resolve(name) if name else ANY
        if address not in (ANY, LOOPBACK, here.address):
            raise cannot_bind(errno.EADDRNOTAVAIL, (address, 0))
        return address


def os_error(code: int) -> OSError:
    """ConnectionResetError and its like."""
    return OSError(code, MESSAGES[code])


def cannot_bind(code: int, address: Address) -> OSError:
    text = f"error while attempting to bind on address {address!r}: {MESSAGES[code]}"
    return OSError(code, text)


def unknown_name() -> OSError:
    return socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def stream_info(address: Address) -> tuple[object, ...]:
    """One row of what ``getaddrinfo`` returns."""
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
