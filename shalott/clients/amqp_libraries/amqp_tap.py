"""AmqpTap: stands between an AMQP library that recovers by itself and a node, and reads along.

What a library does when its connection is lost (connect again, open channels, consume, publish what
it had not seen confirmed) it does silently; on the wire it is all there. The library is given the
tap's port in place of the node's. Every byte goes through as it came; each whole method, with its
message if it carries one, is told to the ``Reader`` of its connection before it is passed on. A
connection that can't be made to the node, or ends on one side, ends on the other.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Protocol

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

log = logging.getLogger("shalott.clients")

HOST = "127.0.0.1"
CONNECT_TIMEOUT_S = 5.0
LINGER_S = 1.0
_PROTOCOL_HEADER_BYTES = 8
_FRAME_HEAD = struct.Struct(">BHI")
_CARRIERS = (
    commands.Basic.Publish,
    commands.Basic.Deliver,
    commands.Basic.Return,
    commands.Basic.GetOk,
)


class Message:
    """What a method carries: its properties and its body."""

    __slots__ = ("body", "missing_bytes", "properties")

    def __init__(self, header: ContentHeader) -> None:
        self.properties: commands.Basic.Properties = header.properties
        self.missing_bytes = int(header.body_size)
        self.body = b""


class Reader(Protocol):
    """Is told what passes on one connection. ``message``: what the method carries, if it does."""

    def sent(self, channel: int, method: Frame, message: Message | None) -> None: ...

    def came(self, channel: int, method: Frame, message: Message | None) -> None: ...

    def ended(self, error: str) -> None:
        """The connection is over; ``error`` says on which side it ended."""
        ...


class AmqpTap:
    """``open`` makes it listen; ``make_reader`` is called for each connection that reaches the
    node."""

    def __init__(self, host: str, port: int, make_reader: Callable[[], Reader]) -> None:
        self._host = host
        self._port = port
        self._make_reader = make_reader
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}

    async def open(self) -> tuple[str, int]:
        """Where the library finds the node."""
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        return HOST, self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """End every connection, without a word to either side."""
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await self.cut()
            await server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="amqp tap")
        self._connections[task] = None

        def over(done: asyncio.Task[None]) -> None:
            del self._connections[done]
            if done.cancelled():
                writer.transport.abort()
            else:
                _close(writer)
                if (error := done.exception()) is not None:
                    log.error("a connection was cut", exc_info=error)

        task.add_done_callback(over)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except (OSError, TimeoutError):
            return
        told = self._make_reader()
        ways = (
            asyncio.create_task(_pass_on(reader, far_writer, told.sent, begins=True)),
            asyncio.create_task(_pass_on(far_reader, writer, told.came)),
        )
        error = "the harness ended the connection"
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            side = "server" if ways[1] in done else "client"
            error = f"the {side} ended the connection: {done.pop().result()}"
        except asyncio.CancelledError:
            far_writer.transport.abort()
            raise
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            _close(far_writer)
            told.ended(error)


def _close(writer: asyncio.StreamWriter) -> None:
    """What was written before is still sent, if the other side takes it soon."""
    writer.close()
    asyncio.get_running_loop().call_later(LINGER_S, writer.transport.abort)


async def _pass_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    tell: Callable[[int, Frame, Message | None], None],
    *,
    begins: bool = False,
) -> str:
    """Until either side ends; returns how. ``begins``: a protocol header comes first."""
    carried: dict[int, tuple[Frame, Message | None]] = {}  # by channel: not complete yet
    try:
        if begins:
            writer.write(await reader.readexactly(_PROTOCOL_HEADER_BYTES))
        while True:
            head = await reader.readexactly(_FRAME_HEAD.size)
            raw = head + await reader.readexactly(_FRAME_HEAD.unpack(head)[2] + 1)
            _, channel, value = frame.unmarshal(raw)
            _assemble(carried, channel, value, tell)
            writer.write(raw)
            if not begins:  # what a client sends is read at once, even if the node takes none
                await writer.drain()
    except asyncio.IncompleteReadError:
        return "closed"
    except OSError as error:
        return error.strerror or str(error)


def _assemble(
    carried: dict[int, tuple[Frame, Message | None]],
    channel: int,
    value: object,
    tell: Callable[[int, Frame, Message | None], None],
) -> None:
    """Tell of a method when it is whole. Heartbeats tell nothing."""
    if isinstance(value, _CARRIERS):
        carried[channel] = (value, None)
    elif isinstance(value, Frame):
        tell(channel, value, None)
    elif isinstance(value, ContentHeader | ContentBody) and channel in carried:
        method, message = carried[channel]
        if isinstance(value, ContentHeader):
            message = Message(value)
            carried[channel] = (method, message)
        elif message is not None:
            message.body += value.value
            message.missing_bytes -= len(value.value)
        if message is not None and message.missing_bytes <= 0:
            del carried[channel]
            tell(channel, method, message)
