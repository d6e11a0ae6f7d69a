"""Names of simulated sockets, and the errors that a kernel answers with.

The only module of the simulation that needs ``socket``: for its constants and its error of unknown
names. It opens none.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

Address = tuple[str, int]

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
