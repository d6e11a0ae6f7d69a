"""The tap lets everything through as it came, tells whole methods, and ends both sides together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pamqp import commands
from pamqp.base import Frame

from shalott.clients.amqp.connection import (
    Connection,
    ConnectionLost,
    Content,
    connect,
)
from shalott.clients.amqp_libraries.amqp_tap import AmqpTap, Message
from tests.world.rabbit.scripted_server import FakeServer, Session, fake_server

pytestmark = pytest.mark.unit

LONG = bytes(range(256)) * 40  # several frames
SHORT = b"one"


class Told:
    """A Reader that keeps what it is told."""

    def __init__(self) -> None:
        self.methods: list[tuple[str, int, str, bytes]] = []
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def sent(self, channel: int, method: Frame, message: Message | None) -> None:
        self._note("sent", channel, method, message)

    def came(self, channel: int, method: Frame, message: Message | None) -> None:
        self._note("came", channel, method, message)

    def ended(self, error: str) -> None:
        self.end.set_result(error)

    def _note(self, way: str, channel: int, method: Frame, message: Message | None) -> None:
        body = b"" if message is None else message.body
        self.methods.append((way, channel, method.name, body))


class Tapped:
    def __init__(self, server: FakeServer, tap: AmqpTap, told: list[Told]) -> None:
        self.server = server
        self.tap = tap
        self.told = told
        self.address = ("", 0)

    async def connect(self) -> Connection:
        host, port = self.address
        return await connect(host, port, user="guest", password="guest", vhost="/")

    async def end(self) -> str:
        async with asyncio.timeout(5):
            return await self.told[0].end


def played(act: Callable[[Tapped], Awaitable[None]]) -> None:
    """Against a server that answers each message with one that has no route."""

    async def script(session: Session, value: object) -> None:
        if isinstance(value, commands.Basic.Publish):
            method = commands.Basic.Return(312, "NO_ROUTE", "", "q")
            session.send_content(method, SHORT)

    async def main() -> None:
        told: list[Told] = []

        def make_reader() -> Told:
            told.append(Told())
            return told[-1]

        async with fake_server(script) as server:
            tap = AmqpTap("127.0.0.1", server.port, make_reader)
            on = Tapped(server, tap, told)
            on.address = await tap.open()
            try:
                await act(on)
            finally:
                await tap.close()

    asyncio.run(main())


def test_messages_of_several_frames_pass_both_ways_and_are_told_whole() -> None:
    async def act(on: Tapped) -> None:
        connection = await on.connect()
        connection.send(commands.Channel.Open())
        assert isinstance(await connection.next_event(), commands.Channel.OpenOk)
        publish = commands.Basic.Publish(routing_key="q", mandatory=True)
        connection.send_content(publish, commands.Basic.Properties(), LONG)
        back = await connection.next_event()
        assert isinstance(back, Content) and back.body == SHORT
        told = [each for each in on.told[0].methods if each[2].startswith("Basic.")]
        assert told == [
            ("sent", 1, "Basic.Publish", LONG),
            ("came", 1, "Basic.Return", SHORT),
        ]
        await connection.close()
        assert (await on.end()).startswith("the ")

    played(act)


def test_both_sides_of_a_connection_that_is_cut_end() -> None:
    async def act(on: Tapped) -> None:
        connection = await on.connect()
        await on.tap.cut()
        with pytest.raises(ConnectionLost):
            await connection.next_event()
        assert await on.end() == "the harness ended the connection"
        async with asyncio.timeout(5):
            await on.server.closed.wait()
        connection.abort("over")

    played(act)


def test_node_that_is_not_there_ends_the_connection_and_is_told_to_nobody() -> None:
    async def main() -> None:
        told: list[Told] = []

        def make_reader() -> Told:
            told.append(Told())
            return told[-1]

        tap = AmqpTap("127.0.0.1", 1, make_reader)
        host, port = await tap.open()
        reader, writer = await asyncio.open_connection(host, port)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        await tap.close()
        assert told == []

    asyncio.run(main())
