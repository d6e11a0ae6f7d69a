"""One HTTP/1.1 request over asyncio streams, with h11: what an operator's command asks a node."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass

import h11

from shalott.broker.base.errors import BrokerError

READ_BYTES = 64 << 10
BODY_BYTES_MAX = 64 << 20


class Unreachable(BrokerError):
    """There was no answer: the port is closed, or the time is over."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked, and as whom. ``timeout_s`` is for the whole of one request."""

    host: str
    port: int
    user: str = "guest"
    password: str = "guest"
    cookie: str = ""  # instead of a user and a password
    timeout_s: float = 60.0

    async def request(
        self, method: str, path: str, body: bytes = b"", *, reason: str = ""
    ) -> Answer:
        """``reason``: why a connection is closed. Raises Unreachable."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._request(method, path, body, reason)
        except TimeoutError:
            raise Unreachable(f"{self.host}:{self.port} gave no answer in time") from None
        except (OSError, h11.RemoteProtocolError) as error:
            raise Unreachable(f"{self.host}:{self.port}: {error}") from error

    async def _request(self, method: str, path: str, body: bytes, reason: str) -> Answer:
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        who = f"Cookie {self.cookie}" if self.cookie else f"Basic {token}"
        head = h11.Request(
            method=method,
            target=path,
            headers=[
                ("Host", f"{self.host}:{self.port}"),
                ("Authorization", who),
                ("Connection", "close"),
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                *([("X-Reason", reason)] if reason else []),
            ],
        )
        machine = h11.Connection(h11.CLIENT)
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(machine.send(head) or b"")
            writer.write(machine.send(h11.Data(body)) or b"")
            writer.write(machine.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            return await _answer(machine, reader)
        finally:
            writer.close()


async def _answer(machine: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    status, body = 0, bytearray()
    while True:
        event = machine.next_event()
        match event:
            case h11.NEED_DATA:
                machine.receive_data(await reader.read(READ_BYTES))
            case h11.Response(status_code=status):
                pass
            case h11.Data(data=data):
                body += data
                if len(body) > BODY_BYTES_MAX:
                    raise h11.RemoteProtocolError("the answer is too long")
            case h11.EndOfMessage():
                return Answer(status, bytes(body))
            case _:
                raise h11.RemoteProtocolError("the connection ended before the answer did")
