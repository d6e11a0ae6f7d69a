"""The one-way probe where the host can't enter the containers' namespaces: through exec, with
their own Python.

A listener in the destination waits for a token; the source repeats a datagram with it for as
long. Slower than namespaces.py (two execs), for users who may use Docker but are not root.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Protocol

from cluster.base import CommandResult

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

SEND = """
import socket, sys, time
address, port = sys.argv[1], int(sys.argv[2])
token, seconds = sys.argv[3].encode(), float(sys.argv[4])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + seconds
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
    words = [address, str(port), secrets.token_hex(8), str(timeout_ms / 1000)]
    # The listener says at once when it has the token; the sender need not be waited for.
    sending = asyncio.create_task(
        run(source, ["python3", "-c", SEND, *words], timeout_ms=timeout_ms + 5000)
    )
    try:
        heard = await run(
            destination, ["python3", "-c", LISTEN, *words], timeout_ms=timeout_ms + 5000
        )
    finally:
        await asyncio.gather(sending, return_exceptions=True)
    return heard.exit_code == 0
