"""A reserved port is the node's alone, again and again."""

from __future__ import annotations

import contextlib
import errno
import socket

import pytest

from shalott.cluster.local.backend import HOST, port_of, reserve_port

pytestmark = pytest.mark.unit


def listener(port: int, *, reuse: bool) -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if reuse:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((HOST, port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def test_the_node_listens_beside_the_reservation_also_after_a_restart() -> None:
    with contextlib.closing(reserve_port()) as holder:
        for _ in range(3):
            with (
                contextlib.closing(listener(port_of(holder), reuse=True)),
                contextlib.closing(socket.create_connection((HOST, port_of(holder)))),
            ):
                pass


def test_nobody_else_gets_a_reserved_port() -> None:
    with contextlib.closing(reserve_port()) as holder:
        with pytest.raises(OSError) as refused:
            listener(port_of(holder), reuse=False)
        assert refused.value.errno == errno.EADDRINUSE


def test_reservations_differ() -> None:
    holders = [reserve_port() for _ in range(50)]
    try:
        assert len({port_of(holder) for holder in holders}) == 50
    finally:
        for holder in holders:
            holder.close()
