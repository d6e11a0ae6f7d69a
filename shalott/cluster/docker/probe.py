"""The one-way probe where the host can't enter the containers' namespaces: through exec, with
their own Python.

A listener in the destination waits for a token; the source repeats a datagram with it for as
long. Slower than namespaces.py (two execs), for users who may use Docker but are not root.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol

from shalott.cluster.nodes import CommandResult
from shalott.core.errors import HarnessError

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
