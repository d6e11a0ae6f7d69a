"""Measuring what a link does to packets: numbered datagrams from one container to another.

As with namespaces.py nothing is needed inside the containers: both sockets are this process's, in
their namespaces.
"""

from __future__ import annotations

import secrets
import socket
import time

from shalott.cluster.docker.namespaces import socket_in_namespace
from shalott.cluster.nodes import LinkShape, PacketsSeen
from shalott.cluster.packets.fates import REORDER_HOLD_MS
from shalott.cluster.packets.numbered import (
    BATCH,
    BUFFER_BYTES,
    QUIET_S,
    SECOND_COPY_S,
    SO_NO_CHECK,
    SO_RCVBUFFORCE,
    Tally,
    numbered,
    pause_s,
)
from shalott.core.errors import HarnessError


def measure(
    source_pid: int, destination_pid: int, address: str, count: int, shape: LinkShape
) -> PacketsSeen:
    """Send ``count`` datagrams and see what becomes of them. Blocks.

    ``shape``: what may be in force, which says how long to wait. Raises HarnessError.
    """
    hold_s = (shape.delay_ms + shape.jitter_ms + REORDER_HOLD_MS) / 1000
    try:
        with (
            socket_in_namespace(destination_pid) as receiver,
            socket_in_namespace(source_pid) as sender,
        ):
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            receiver.bind((address, 0))
            sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
            return _send_and_see(sender, receiver, count, hold_s)
    except OSError as error:
        raise HarnessError(f"packets to {address} can't be measured: {error}") from error


def _send_and_see(
    sender: socket.socket, receiver: socket.socket, count: int, hold_s: float
) -> PacketsSeen:
    token = secrets.token_bytes(8)
    tally = Tally(token, count)
    address = receiver.getsockname()
    for first in range(0, count, BATCH):
        for number in range(first, min(first + BATCH, count)):
            sender.sendto(numbered(token, number, time.monotonic()), address)
        _receive(receiver, tally, pause_s(count))
    if not _receive(receiver, tally, hold_s + QUIET_S, until_all=True):
        return PacketsSeen(**tally.result())
    _receive(receiver, tally, SECOND_COPY_S)
    return PacketsSeen(**tally.result())


def _receive(
    receiver: socket.socket, tally: Tally, quiet_s: float, *, until_all: bool = False
) -> bool:
    """Until nothing came for so long; ``until_all``: or all has. Whether all has."""
    receiver.settimeout(quiet_s)
    while not (until_all and tally.has_all):
        try:
            tally.add(receiver.recv(256), time.monotonic())
        except (TimeoutError, BlockingIOError):
            break
    return tally.has_all
