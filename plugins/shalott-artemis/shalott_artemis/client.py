"""A client of Artemis' queues, by AMQP 1.0 and Apache's own library, qpid-proton.

    send      fail    the broker refused it (rejected, released)
              info    no answer in time, a connection that ended, no link, any other outcome
    settle    info    no answer in time, a connection that ended

AMQP tells how often a delivery failed, which is not whether there was one: nothing is said of it.
The library is spoken to in processes of its own (``speaker``), one a client. A client is of one
node; where that is passive, and refuses connections, it goes to the others of its pair. Where it
can't be had at all it does not.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import shalott.api as api

PEERS: dict[str, tuple[str, ...]] = {}  # of each address, the others of its pair: system.py's
SPEAKER = Path(__file__).with_name("speaker.py")


@cache
def speakers() -> tuple[str, subprocess.Popen[bytes]]:
    """Where they listen, and who begins them: they end with this process, which holds the other
    end of its input."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("")  # a name that the kernel makes up, and no file
        listening.listen(socket.SOMAXCONN)
        made = subprocess.Popen(
            [sys.executable, str(SPEAKER), str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            start_new_session=True,  # an interrupt is for this process, which ends its clients
        )
        atexit.register(made.communicate, timeout=5)  # ends its input, and waits
        return listening.getsockname().decode(), made


class ArtemisClient:
    """See ``Queued``."""

    def __init__(self, host: str, port: int, *, timeout_ms: int, alone: bool = False) -> None:
        self._hosts, self._port = (host, *(() if alone else PEERS.get(host, ()))), port
        self._timeout_s = timeout_ms / 1000
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        said = ""
        for host in self._hosts:
            self._stream = await asyncio.open_unix_connection(speakers()[0])
            try:
                await self._ask(
                    "open", host, self._port, self._timeout_s, otherwise=api.Unreachable
                )
            except api.Unreachable as error:
                said += f"{host}: {error}. "
                self._leave()
                if "refused" not in str(error):
                    break
            else:
                return
        raise api.Unreachable(said)

    async def close(self) -> None:
        """The speaker closes its connection, if it is not busy, and ends."""
        if self._stream is not None:
            self._stream[1].write(b'["close"]\n')
        self._leave()

    def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream[1].close()

    async def send(self, queue: str, body: bytes) -> None:
        await self._ask("send", queue, body.decode("latin-1"))

    async def receive(self, queue: str) -> api.Received | None:
        found = await self._ask("receive", queue)
        if found is None:
            if out := await self.ask(f"queue.{queue}", "deliveringCount"):
                raise api.Definite(f"{out} were delivered and are not settled")
            return None
        assert isinstance(found, list), "a body and its number"
        return api.Received(found[0].encode("latin-1"), token=(queue, found[1]))

    async def settle(self, received: api.Received) -> None:
        assert isinstance(received.token, tuple), "as it was received"
        await self._ask("settle", *received.token)

    async def ask(self, resource: str, attribute: str) -> object:
        """Of the broker's management. Raises ClientError."""
        return await self._ask("ask", resource, attribute)

    async def _ask(
        self, *words: object, otherwise: type[api.ClientError] = api.Indefinite
    ) -> object:
        """``otherwise``: what is raised unless the broker refused it."""
        if self._stream is None:
            raise api.Unreachable("no connection")
        reader, writer = self._stream
        try:
            writer.write(json.dumps(words).encode() + b"\n")
            line = await reader.readline()
        except (OSError, asyncio.CancelledError):
            self._leave()  # an answer that is not awaited must not be taken for the next one's
            raise
        if not line:
            raise otherwise("its speaker has ended")
        done, answer, *refused = json.loads(line)
        if not done:
            raise (api.Definite if refused == [True] else otherwise)(answer)
        return answer
