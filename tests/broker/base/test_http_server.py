"""The management API over real sockets: an ordinary client, and clients that misbehave."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from shalott.broker.base import http_server as server_module
from shalott.broker.base.errors import ConfigError
from shalott.broker.base.http_api import Request, Response, json_response
from shalott.broker.base.http_server import BODY_BYTES_MAX, ManagementServer, Respond
from shalott.broker.rabbit.management.api import respond
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit

AUTHORIZATION = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


def with_server(respond: Respond, body: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        server = ManagementServer(respond, host="127.0.0.1", port=0)
        await server.start()
        try:
            async with asyncio.timeout(20):
                await body(server.port)
        finally:
            await server.stop()

    asyncio.run(run())


async def echo(request: Request) -> Response:
    return json_response(
        {
            "method": request.method,
            "segments": request.segments,
            "query": request.query,
            "size": len(request.body),
        }
    )


async def talk(port: int, data: bytes) -> bytes:
    """Send raw bytes and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def statuses(data: bytes) -> list[int]:
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]


def test_a_stock_client_uses_one_connection_for_many_requests() -> None:
    def use(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.connect()
            sock = connection.sock
            for method, path, body, expected in (
                ("GET", "/api/overview", None, 200),
                ("PUT", "/api/queues/%2F/a%2Fb", b'{"durable": true}', 201),
                ("GET", "/api/queues/%2F/a%2Fb", None, 200),
                ("HEAD", "/api/queues/%2F/a%2Fb", None, 200),
                ("DELETE", "/api/queues/%2F/a%2Fb", None, 204),
                ("GET", "/api/queues/%2F/a%2Fb", None, 404),
                ("PUT", "/api/queues/%2F/x", b"{", 400),
                ("GET", "/api/whoami", None, 200),
            ):
                connection.request(method, path, body, AUTHORIZATION)
                response = connection.getresponse()
                content = response.read()
                assert response.status == expected, (method, path, content)
                assert (content == b"") == (method == "HEAD" or expected in (201, 204))
                if content:
                    assert response.headers["Content-Type"] == "application/json"
                    json.loads(content)
                assert connection.sock is sock, "the connection was kept"
            connection.request("GET", "/api/overview")
            refused = connection.getresponse()
            assert (refused.status, refused.reason) == (401, "Unauthorized")
        finally:
            connection.close()

    async def body(port: int) -> None:
        await asyncio.to_thread(use, port)

    async def run() -> None:
        node = FakeNode()
        server = ManagementServer(partial(respond, node), host="127.0.0.1", port=0)
        await server.start()
        try:
            await body(server.port)
        finally:
            await server.stop()
            await node.stop()

    asyncio.run(run())


def test_pipelined_requests_are_answered_in_order() -> None:
    async def body(port: int) -> None:
        requests = b"".join(
            b"POST /r/%d?q=%d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" % (n, n)
            for n in range(5)
        )
        last = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await talk(port, requests + last)
        assert statuses(answer) == [200] * 6
        bodies = [
            json.loads(part.partition(b"\r\n\r\n")[2]) for part in answer.split(b"HTTP/1.1")[1:]
        ]
        assert [each["segments"] for each in bodies] == [
            *([["r", str(number)] for number in range(5)]),
            ["last"],
        ]
        assert bodies[3]["query"] == {"q": "3"}
        assert bodies[3]["size"] == 3

    with_server(echo, body)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        b"AMQP\x00\x00\x09\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: minus\r\n\r\n",
        b"GET /%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_400_and_the_end(data: bytes) -> None:
    async def body(port: int) -> None:
        answer = await talk(port, data)
        assert statuses(answer) == [400]
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "bad_request"
        # The server lives on.
        good = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert statuses(await talk(port, good)) == [200]

    with_server(echo, body)


def test_endless_headers_get_431() -> None:
    async def body(port: int) -> None:
        lines = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1000) for number in range(100))
        assert statuses(await talk(port, b"GET / HTTP/1.1\r\nHost: x\r\n" + lines)) == [431]

    with_server(echo, body)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_gets_413(chunked: bool) -> None:
    size = BODY_BYTES_MAX + 1
    head = b"PUT / HTTP/1.1\r\nHost: x\r\n"
    if chunked:
        data = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size + b"x" * size
    else:
        data = head + b"Content-Length: %d\r\n\r\n" % size + b"x" * size

    async def body(port: int) -> None:
        assert statuses(await talk(port, data)) == [413]

    with_server(echo, body)


def test_the_largest_body_passes() -> None:
    head = b"PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"

    async def body(port: int) -> None:
        answer = await talk(port, head % BODY_BYTES_MAX + b"x" * BODY_BYTES_MAX)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["size"] == BODY_BYTES_MAX

    with_server(echo, body)


def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    async def body(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"ok")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()

    with_server(echo, body)


def test_a_fault_of_ours_is_500_and_the_next_request_is_served() -> None:
    async def faulty(request: Request) -> Response:
        if request.segments == ("boom",):
            raise ZeroDivisionError("a fault")
        return json_response({})

    async def body(port: int) -> None:
        data = b"GET /boom HTTP/1.1\r\nHost: x\r\n\r\n"
        data += b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert statuses(await talk(port, data)) == [500, 200]

    with_server(faulty, body)


def test_a_client_that_goes_away_in_the_middle_is_forgotten() -> None:
    async def body(port: int) -> None:
        for data in (
            b"",
            b"GET / HT",
            b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            writer.close()
            await writer.wait_closed()
        good = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert statuses(await talk(port, good)) == [200]

    with_server(echo, body)


def test_a_client_that_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "IDLE_TIMEOUT_S", 0.05)

    async def body(port: int) -> None:
        with_reset = asyncio.gather(talk(port, b"GET / HTTP"), return_exceptions=True)
        (answer,) = await with_reset
        assert answer == b"" or isinstance(answer, ConnectionResetError)

    with_server(echo, body)


def test_stop_cuts_off_a_request_under_way() -> None:
    async def run() -> None:
        started = asyncio.Event()

        async def never(request: Request) -> Response:
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

        server = ManagementServer(never, host="127.0.0.1", port=0)
        await server.start()
        talking = asyncio.create_task(talk(server.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        await started.wait()
        async with asyncio.timeout(5):
            await server.stop()
            (answer,) = await asyncio.gather(talking, return_exceptions=True)
        assert answer == b"" or isinstance(answer, ConnectionResetError)

    asyncio.run(run())


def test_a_port_in_use_is_told() -> None:
    async def body(port: int) -> None:
        with pytest.raises(ConfigError, match=f"cannot listen for HTTP on 127.0.0.1:{port}"):
            await ManagementServer(echo, host="127.0.0.1", port=port).start()

    with_server(echo, body)
