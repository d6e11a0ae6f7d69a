"""The HTTP client says in the client's terms what went wrong: definite, or nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shalott.cluster.http import Management
from shalott.cluster.nodes import Endpoint
from shalott.core.errors import Definite, Indefinite

pytestmark = pytest.mark.unit

HOST = "127.0.0.1"


def against(answer: bytes | None, scenario: Callable[[Management], Awaitable[Any]]) -> list[bytes]:
    """Run ``scenario`` against a server that reads a request and sends ``answer``; None: says
    nothing."""
    heads: list[bytes] = []
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is not None:
            writer.write(answer)
        else:
            await reader.read()
        writer.close()
        served.set()

    async def main() -> None:
        server = await asyncio.start_server(serve, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            await scenario(Management(Endpoint(HOST, port), timeout_ms=500))
            await asyncio.wait_for(served.wait(), 5)

    asyncio.run(main())
    return heads


def reply(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_good_answer_is_decoded_and_the_user_is_named() -> None:
    async def scenario(management: Management) -> None:
        assert await management.get("/api/x") == {"a": [1]}

    head = against(reply(200, b'{"a": [1]}'), scenario)[0]
    assert head.startswith(b"GET /api/x HTTP/1.1\r\n")
    assert b"Basic Z3Vlc3Q6Z3Vlc3Q=" in head


def test_chunks_are_put_together() -> None:
    async def scenario(management: Management) -> None:
        assert await management.get("/") == [1, 2]

    head = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
    against(head + b"3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n", scenario)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply(404, b"no such queue"), Definite),
        (reply(503, b"later"), Indefinite),
        (reply(200, b"not json"), Indefinite),
        (b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nshort", Indefinite),
        (b"AMQP\x00\x00\x09\x01\r\n\r\n", Indefinite),
        (b"", Indefinite),
        (None, Indefinite),
    ],
)
def test_bad_answers(answer: bytes | None, error: type[Exception]) -> None:
    async def scenario(management: Management) -> None:
        with pytest.raises(error):
            await management.get("/")

    against(answer, scenario)


def test_a_refused_connection_certainly_did_nothing() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda r, w: w.close(), HOST, 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(Definite, match=str(port)):
            await Management(Endpoint(HOST, port)).put("/x", {})

    asyncio.run(main())
