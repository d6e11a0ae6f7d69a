"""Measuring what a link does to packets: numbered datagrams from one container to another.

As with namespaces.py nothing is needed inside the containers: both sockets are this process's, in
their namespaces.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Sequence
from typing import Protocol

from shalott.cluster.docker.namespaces import socket_in_namespace
from shalott.cluster.nodes import CommandResult, LinkShape, PacketsSeen
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


# -- The one-way probe where the host can't enter the containers' namespaces: through exec, with
# their own Python.
#
# A listener in the destination waits for a token; the source repeats a datagram with it for as
# long. Slower than namespaces.py (two execs), for users who may use Docker but are not root.
EXEC_WITHIN_MS = 5000  # until the listener listens, on a busy machine
PORT_FIRST, PORT_LAST = 61000, 65000  # above what the kernel hands out by itself

LISTEN = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
token, seconds = sys.argv[3].encode(), float(sys.argv[4])
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind((address, port))
receiver.settimeout(seconds)
try:
    while receiver.recv(64) != token:
        pass
except TimeoutError:
    sys.exit(1)
"""

# Comes back as soon as the first datagram is out; a child goes on sending.
SEND = """
import os, socket, sys, time
address, port = sys.argv[1], int(sys.argv[2])
token, seconds = sys.argv[3].encode(), float(sys.argv[4])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + seconds
if os.fork():
    os._exit(0)
for descriptor in (0, 1, 2):
    os.close(descriptor)
while time.monotonic() < end:
    try:
        sender.sendto(token, (address, port))
    except OSError:
        pass
    time.sleep(0.02)
"""


class RunCommand(Protocol):
    async def __call__(
        self, node: str, command: Sequence[str], timeout_ms: int = ...
    ) -> CommandResult: ...


async def datagram_arrives_by_exec(
    run: RunCommand, source: str, destination: str, address: str, timeout_ms: int
) -> bool:
    """Whether a datagram from one node reaches ``address`` in another."""
    port = PORT_FIRST + secrets.randbelow(PORT_LAST - PORT_FIRST)
    token = secrets.token_hex(8)

    def words(milliseconds: int) -> list[str]:
        return [address, str(port), token, str(milliseconds / 1000)]

    sending_ms = timeout_ms + EXEC_WITHIN_MS
    sent = await run(source, ["python3", "-c", SEND, *words(sending_ms)], timeout_ms=sending_ms)
    if sent.exit_code != 0:
        raise HarnessError(f"{source} can't send a probe: {sent.output.strip()}")
    heard = await run(
        destination, ["python3", "-c", LISTEN, *words(timeout_ms)], timeout_ms=sending_ms
    )
    return heard.exit_code == 0
