"""Server and client over real sockets, and clients that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shalott.broker.base.errors import ConfigError
from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.remoting import server as server_module
from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.codec import FrameReader, encode
from shalott.broker.rocket.remoting.command import BINARY, Command, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller, RemotingServer

pytestmark = pytest.mark.unit

ECHO, HANG, BREAK, PUSH, HUGE = 1, 2, 3, 4, 5

LONG_MS = 60_000  # longer than any test: a busy machine stands still for a second


class Service:
    """A server with a handler of each kind, and what it saw."""

    def __init__(self, idle_timeout_ms: float) -> None:
        self.hanging = asyncio.Event()
        self.go = asyncio.Event()
        self.done = asyncio.Event()
        self.closed = asyncio.Event()
        self.seen: list[Command] = []
        self.gone: list[Caller] = []
        self.server = RemotingServer(
            {
                ECHO: self.echo,
                HANG: self.hang,
                BREAK: self.fail,
                PUSH: self.push,
                HUGE: self.huge,
            },
            host="127.0.0.1",
            port=0,
            on_close=self.on_close,
            idle_timeout_ms=idle_timeout_ms,
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def on_close(self, caller: Caller) -> None:
        self.gone.append(caller)
        self.closed.set()

    async def echo(self, request: Command, caller: Caller) -> Command:
        self.seen.append(request)
        return response(0, ext=request.ext, body=request.body)

    async def hang(self, request: Command, caller: Caller) -> Command:
        self.hanging.set()
        try:
            await self.go.wait()
        finally:
            self.done.set()
        return response(0)

    async def fail(self, request: Command, caller: Caller) -> Command:
        raise KeyError("a planted fault")

    async def push(self, request: Command, caller: Caller) -> None:
        await caller.push(Command(code=40))
        await caller.answer(request, response(0, "by hand"))

    async def huge(self, request: Command, caller: Caller) -> Command:
        return response(0, body=bytes(17 << 20))


def serving(
    body: Callable[[Service, RemotingClient], Awaitable[None]], *, idle_timeout_ms: float = LONG_MS
) -> None:
    async def run() -> None:
        service = Service(idle_timeout_ms)
        await service.server.start()
        client = RemotingClient(parse_address)
        try:
            async with asyncio.timeout(20):
                await body(service, client)
        finally:
            await client.close()
            await service.server.stop()

    asyncio.run(run())


def test_answers_find_their_requests_in_whatever_order_they_come() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        slow = asyncio.create_task(client.invoke(service.address, Command(code=HANG), 5000))
        await service.hanging.wait()
        numbers = [
            client.invoke(service.address, Command(code=ECHO, ext={"n": str(n)}), 5000)
            for n in range(20)
        ]
        answers = await asyncio.gather(*numbers)
        assert [answer.ext["n"] for answer in answers] == [str(n) for n in range(20)]
        assert not slow.done()
        service.go.set()
        assert (await slow).code == ResponseCode.SUCCESS
        assert len(service.server.callers) == 1  # all went over one connection

    serving(body)


def test_the_answer_is_in_the_encoding_of_the_request() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        request = Command(code=ECHO, ext={"k": "v"}, body=b"b", serialize=BINARY)
        answer = await client.invoke(service.address, request, 5000)
        assert (answer.serialize, answer.ext, answer.body) == (BINARY, {"k": "v"}, b"b")
        assert request.opaque == 0  # the caller's command is left as it was

    serving(body)


def test_an_unknown_code_and_a_broken_handler_are_answered() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        unknown = await client.invoke(service.address, Command(code=999), 5000)
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        broken = await client.invoke(service.address, Command(code=BREAK), 5000)
        assert (broken.code, broken.remark) == (1, "KeyError: 'a planted fault'")
        huge = await client.invoke(service.address, Command(code=HUGE), 5000)
        assert huge.code == ResponseCode.SYSTEM_ERROR and "16777216" in huge.remark

    serving(body)


def test_a_oneway_request_is_handled_and_not_answered() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        await client.oneway(service.address, Command(code=ECHO, ext={"n": "1"}))
        await client.invoke(service.address, Command(code=ECHO, ext={"n": "2"}), 5000)
        assert [(seen.ext["n"], seen.is_oneway) for seen in service.seen] == [
            ("1", True),
            ("2", False),
        ]

    serving(body)


def test_a_server_can_push_and_answer_by_hand() -> None:
    async def body(service: Service, _: RemotingClient) -> None:
        pushed: list[tuple[str, int, bool]] = []
        client = RemotingClient(
            parse_address,
            on_push=lambda address, it: pushed.append((address, it.code, it.is_oneway)),
        )
        answer = await client.invoke(service.address, Command(code=PUSH), 5000)
        assert answer.remark == "by hand"
        assert pushed == [(service.address, 40, True)]
        await client.close()

    serving(body)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00\x00\x00\x08\x00\x00\x00\x04abcd", b"\xff" * 100],
)
def test_garbage_ends_its_connection_and_no_other(garbage: bytes) -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        await client.invoke(service.address, Command(code=ECHO), 5000)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
        writer.write(garbage)
        with pytest.raises(OSError):
            if not await reader.read():
                raise OSError("closed in order")
        writer.close()
        assert (await client.invoke(service.address, Command(code=ECHO), 5000)).code == 0
        assert len(service.gone) == 1

    serving(body)


def test_a_request_is_carried_out_though_its_connection_is_gone() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
        writer.write(encode(Command(code=HANG, opaque=1)))
        await service.hanging.wait()
        writer.write(b"\xff" * 8)
        await service.closed.wait()
        assert not service.done.is_set()
        service.go.set()
        await service.done.wait()
        writer.close()

    serving(body)


def test_a_silent_connection_is_closed() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
        with pytest.raises(OSError):
            if not await reader.read():  # it would wait for ever
                raise OSError("closed in order")
        writer.close()

    serving(body, idle_timeout_ms=500)


def test_nothing_listens_is_unreachable_and_sends_nothing() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        await service.server.stop()
        with pytest.raises(Unreachable):
            await client.invoke(service.address, Command(code=ECHO), 5000)
        with pytest.raises(Unreachable):
            await client.oneway(service.address, Command(code=ECHO))
        with pytest.raises(Unreachable):
            await client.invoke("no address", Command(code=ECHO), 5000)

    serving(body)


def test_a_request_whose_connection_ends_is_unanswered_and_the_next_dials_anew() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        waiting = asyncio.create_task(client.invoke(service.address, Command(code=HANG), 5000))
        await service.hanging.wait()
        service.server.callers[0].abort()
        with pytest.raises(Unanswered):
            await waiting
        assert (await client.invoke(service.address, Command(code=ECHO), 5000)).code == 0

    serving(body)


def test_no_answer_in_time_is_unanswered() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        with pytest.raises(Unanswered):
            await client.invoke(service.address, Command(code=HANG), 50)
        # The connection gave no sign of life since: it may be half-open, and is not used again.
        await client.invoke(service.address, Command(code=ECHO), 5000)
        await service.closed.wait()
        assert len(service.gone) == 1 and not service.done.is_set()

    serving(body)


def test_a_closed_client_asks_nobody_and_leaves_nobody_waiting() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        waiting = asyncio.create_task(client.invoke(service.address, Command(code=HANG), 5000))
        await service.hanging.wait()
        await client.close()
        with pytest.raises(Unanswered):
            await waiting
        with pytest.raises(Unreachable):
            await client.invoke(service.address, Command(code=ECHO), 5000)

    serving(body)


def test_stop_tells_of_every_connection_once() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        await client.invoke(service.address, Command(code=ECHO), 5000)
        [caller] = service.server.callers
        await service.server.stop()
        assert service.gone == [caller]
        assert caller.closed.is_set()
        await caller.push(Command(code=40))  # to a closed connection: no error

    serving(body)


def test_stop_ends_what_is_under_way() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        waiting = asyncio.create_task(client.invoke(service.address, Command(code=HANG), 5000))
        await service.hanging.wait()
        await service.server.stop()
        assert service.done.is_set()
        with pytest.raises(Unanswered):
            await waiting

    serving(body)


def test_too_many_requests_of_one_connection_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "REQUESTS_MAX", 2)

    async def body(service: Service, client: RemotingClient) -> None:
        hanging = [
            asyncio.create_task(client.invoke(service.address, Command(code=HANG), 5000))
            for _ in range(2)
        ]
        await service.hanging.wait()
        busy = await client.invoke(service.address, Command(code=ECHO), 5000)
        assert busy.code == ResponseCode.SYSTEM_BUSY
        service.go.set()
        await asyncio.gather(*hanging)
        assert (await client.invoke(service.address, Command(code=ECHO), 5000)).code == 0

    serving(body)


def test_a_taken_port_is_a_fault_of_the_configuration() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        second = RemotingServer({}, host="127.0.0.1", port=service.server.port)
        with pytest.raises(ConfigError, match="cannot listen for remoting"):
            await second.start()

    serving(body)


def test_an_answer_nobody_waits_for_is_passed_over() -> None:
    async def body(service: Service, client: RemotingClient) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
        writer.write(encode(Command(code=ECHO, flag=1, opaque=9)))
        writer.write(encode(Command(code=ECHO, opaque=10)))
        frames = FrameReader()
        answers: list[Command] = []
        while not answers:
            answers = frames.feed(await reader.read(1000))
        assert [answer.opaque for answer in answers] == [10]
        writer.close()

    serving(body)
