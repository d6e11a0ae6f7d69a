"""A small asyncio HTTP/1.1 client for the nodes' management APIs, with h11.

One connection a request: nodes are killed, paused and cut off all the time, and a fresh
connection has no past. What went wrong is said in the client's terms: ``Definite`` when the
request certainly did nothing (refused, never sent, or answered with 4xx), ``Indefinite`` when
it is unknown.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import h11
import msgspec

from shalott.cluster.nodes import Endpoint
from shalott.core.errors import Definite, Indefinite

BODY_BYTES_MAX = 64 * 1024 * 1024  # a listing of many queues; anything longer is a mistake
READ_BYTES = 65536
HEADS_MAX = 256  # that are kept
_END = h11.EndOfMessage()


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Raises Indefinite if the body is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise Indefinite(f"the answer is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class Management:
    """One node's management API, as one user."""

    endpoint: Endpoint
    user: str = "guest"
    password: str = "guest"
    timeout_ms: int = 3000

    async def get(self, path: str) -> Any:
        """The decoded JSON. Raises ClientError unless the answer is 200."""
        return (await self._checked("GET", path, None)).json()

    async def put(self, path: str, body: object) -> None:
        await self._checked("PUT", path, body)

    async def post(self, path: str, body: object) -> None:
        await self._checked("POST", path, body)

    async def delete(self, path: str) -> None:
        await self._checked("DELETE", path, None)

    async def request(self, method: str, path: str, body: object = None) -> Response:
        """The answer, of any status. Raises ClientError if there is none."""
        content = b"" if body is None else msgspec.json.encode(body)
        head = _head(self, method, path, len(content))
        return await exchange(self.endpoint, head, content, self.timeout_ms)

    async def _checked(self, method: str, path: str, body: object) -> Response:
        response = await self.request(method, path, body)
        if response.status < 300:
            return response
        text = response.body[:200].decode(errors="replace").strip()
        sentence = f"{method} {path} was answered with {response.status}: {text}"
        if 400 <= response.status < 500:
            raise Definite(sentence)
        raise Indefinite(sentence)


@lru_cache(HEADS_MAX)
def _head(to: Management, method: str, path: str, size: int) -> h11.Request:
    """Of a request with ``size`` bytes of JSON. Every node is asked the same again and again."""
    token = base64.b64encode(f"{to.user}:{to.password}".encode()).decode()
    headers = [
        ("Host", f"{to.endpoint.host}:{to.endpoint.port}"),
        ("Authorization", f"Basic {token}"),
        ("Connection", "close"),
        ("Content-Length", str(size)),
    ]
    if size:
        headers.append(("Content-Type", "application/json"))
    return h11.Request(method=method, target=path, headers=headers)


async def exchange(
    endpoint: Endpoint, head: h11.Request, content: bytes, timeout_ms: int
) -> Response:
    """Send one request over a connection of its own and read the whole answer in time."""
    where = f"{endpoint.host}:{endpoint.port}"
    sent = False
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            sent = True
            try:
                return await _converse(reader, writer, head, content)
            finally:
                # Not close(): that would wait for what a paused node never takes.
                writer.transport.abort()
    except TimeoutError as error:
        sentence = f"{where} did not answer within {timeout_ms} ms"
        raise (Indefinite(sentence) if sent else Definite(sentence)) from error
    except OSError as error:
        sentence = f"{where}: {error.strerror or error}"
        raise (Indefinite(sentence) if sent else Definite(sentence)) from error
    except h11.RemoteProtocolError as error:
        raise Indefinite(f"{where} does not speak HTTP: {error}") from error


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: h11.Request, content: bytes
) -> Response:
    connection = h11.Connection(our_role=h11.CLIENT)
    parts = (head, h11.Data(data=content), h11.EndOfMessage()) if content else (head, _END)
    writer.write(b"".join([connection.send(part) or b"" for part in parts]))
    await writer.drain()
    status, body = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_BYTES_MAX:
                raise Indefinite(f"the answer is longer than {BODY_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return Response(status, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise Indefinite("the connection was closed before the answer was complete")
