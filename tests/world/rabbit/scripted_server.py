"""A scripted AMQP server: real sockets and frames, and a script for what to answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat


@dataclass
class Session:
    """One client connection, as a script sees it. ``channel``: of the last frame that came, and
    where what is sent goes unless another is named."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: list[object]
    channel: int = 1

    def send(self, *methods: Frame, channel: int | None = None) -> None:
        number = self.channel if channel is None else channel
        for method in methods:
            self.writer.write(frame.marshal(method, number))

    def send_content(
        self,
        method: Frame,
        body: bytes,
        properties: commands.Basic.Properties | None = None,
        channel: int | None = None,
    ) -> None:
        number = self.channel if channel is None else channel
        header = ContentHeader(0, len(body), properties or commands.Basic.Properties())
        self.send(method, channel=number)
        self.writer.write(frame.marshal(header, number))
        if body:
            self.writer.write(frame.marshal(ContentBody(body), number))

    async def receive(self) -> object:
        """The next frame that is not a heartbeat."""
        while True:
            head = await self.reader.readexactly(7)
            size = int.from_bytes(head[3:7], "big")
            rest = await self.reader.readexactly(size + 1)
            _, channel, value = frame.unmarshal(head + rest)
            if not isinstance(value, Heartbeat):
                self.received.append(value)
                self.channel = channel
                return value


Script = Callable[[Session, object], Awaitable[None]]


@dataclass
class FakeServer:
    """``on_method`` is called for every frame after the handshake; raising ends the connection."""

    on_method: Script
    heartbeat_s: int = 0
    port: int = 0
    received: list[object] = field(default_factory=list)
    connections: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        session = Session(reader, writer, self.received)
        try:
            await self._handshake(session)
            while True:
                value = await session.receive()
                match value:
                    case commands.Channel.Open():
                        session.send(commands.Channel.OpenOk())
                    case commands.Confirm.Select():
                        session.send(commands.Confirm.SelectOk())
                    case commands.Basic.Qos():
                        session.send(commands.Basic.QosOk())
                    case commands.Connection.Close():
                        session.send(commands.Connection.CloseOk(), channel=0)
                    case commands.Channel.CloseOk() | ContentHeader():
                        pass
                    case _:
                        await self.on_method(session, value)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            try:
                await writer.wait_closed()
            except ConnectionError:
                pass
            self.closed.set()

    async def _handshake(self, session: Session) -> None:
        assert await session.reader.readexactly(8) == b"AMQP\x00\x00\x09\x01"
        session.send(commands.Connection.Start(), channel=0)
        assert isinstance(await session.receive(), commands.Connection.StartOk)
        session.send(commands.Connection.Tune(2047, 4096, self.heartbeat_s), channel=0)
        assert isinstance(await session.receive(), commands.Connection.TuneOk)
        assert isinstance(await session.receive(), commands.Connection.Open)
        session.send(commands.Connection.OpenOk(), channel=0)


@asynccontextmanager
async def fake_server(on_method: Script, heartbeat_s: int = 0) -> AsyncIterator[FakeServer]:
    fake = FakeServer(on_method, heartbeat_s)
    sessions: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sessions.append(asyncio.create_task(fake.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        for session in sessions:
            session.cancel()  # wakes its read; it then drops its connection
        await asyncio.gather(*sessions, return_exceptions=True)
        await server.wait_closed()
