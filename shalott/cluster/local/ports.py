"""Ports for the nodes, taken without a race and held for the whole run.

A port is taken by binding it exclusively, and the socket stays bound, without listening, until
the run ends. Only then it is marked reusable: a node that binds with SO_REUSEADDR, as asyncio's
servers do, may listen beside it, again after each restart, while no other program's exclusive bind
and no outgoing connection gets the number.
"""

from __future__ import annotations

import socket

from shalott.core.errors import HarnessError

HOST = "127.0.0.1"


def reserve_port() -> socket.socket:
    """A bound socket that holds a free port. Raises HarnessError if there is none."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((HOST, 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        holder.close()
        raise HarnessError(f"no free port on {HOST}: {error.strerror}") from error
    return holder


def port_of(holder: socket.socket) -> int:
    return int(holder.getsockname()[1])
