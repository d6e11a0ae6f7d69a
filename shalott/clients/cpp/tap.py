"""RemotingTap: stands between a RocketMQ client that hides what it does and the brokers, and sees.

A client is given the tap's address as its name server. Routes that come back name a port of the tap
in place of each broker's address, and so do the store hosts of pulled messages, to which consumers
send messages back. Everything else goes through as it came, byte by byte. A connection that can't
be made, or ends on one side, ends on the other.

A listener (``Listening``) is told of every request a client makes, before it is passed on, of
every answer with the request that it answers, before the client has it, and of the requests whose
connection ended before their answer. It may keep a request from being passed on by raising ``Cut``:
then the connection ends.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from shalott.broker.rocket.remoting.codec import FrameError, FrameReader
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode

log = logging.getLogger("shalott.clients")

HOST = "127.0.0.1"
_LENGTH = struct.Struct(">i")
_WORD = struct.Struct(">I")
_HEADER_BYTES = (1 << 24) - 1
_BARE_KEY = re.compile(rb"([{,]\s*)(-?\d+)\s*:")
# In a stored message (stored_messages.py): where its flags and hosts lie.
_SYS_FLAG_AT, _BORN_HOST_AT = 36, 48
_BORN_HOST_V6, _STORE_HOST_V6 = 0x10, 0x20
_HOST_BYTES, _HOST_V6_BYTES, _STORED_BYTES = 8, 20, 8

Dial = Callable[[str], tuple[str, int]]


class Cut(Exception):
    """This request is to reach no broker."""


class Listening(Protocol):
    """``behind``: the address that is asked."""

    def asked(self, behind: str, request: Command) -> None:
        """May raise Cut."""
        ...

    def answered(self, behind: str, request: Command, answer: Command) -> None: ...

    def unanswered(self, behind: str, request: Command) -> None: ...


class RemotingTap:
    """``dial`` says where an address that a route names is reached."""

    def __init__(self, dial: Dial, listening: Listening) -> None:
        self._dial = dial
        self._listening = listening
        self._ports: dict[str, int] = {}  # of the tap, by the address behind it
        self._servers: list[asyncio.Server] = []
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def address(self, behind: str) -> str:
        """Where the tap listens for who wants ``behind``."""
        if behind not in self._ports:
            self._ports[behind] = 0

            def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(self._serve(behind, reader, writer), name="tap")
                self._tasks[task] = None
                task.add_done_callback(lambda done: self._over(done, writer))

            server = await asyncio.start_server(accepted, HOST, 0)
            self._servers.append(server)
            self._ports[behind] = server.sockets[0].getsockname()[1]
        return f"{HOST}:{self._ports[behind]}"

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    async def _serve(
        self, behind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._dial(behind))
        except OSError:
            return
        asked: dict[int, Command] = {}
        ways = (
            asyncio.create_task(self._ask(behind, reader, far_writer, asked)),
            asyncio.create_task(self._answer(behind, far_reader, writer, asked)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            far_writer.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)
            for request in asked.values():
                self._listening.unanswered(behind, request)

    def _over(self, done: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        del self._tasks[done]
        writer.transport.abort()
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("a connection was cut", exc_info=error)

    async def _ask(
        self,
        behind: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, Command],
    ) -> None:
        while True:
            raw, command = await _read_frame(reader)
            if not command.is_response:
                self._listening.asked(behind, command)
                if not command.is_oneway:
                    asked[command.opaque] = command
            writer.write(raw)
            await writer.drain()

    async def _answer(
        self,
        behind: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, Command],
    ) -> None:
        while True:
            raw, command = await _read_frame(reader)
            request = asked.pop(command.opaque, None) if command.is_response else None
            if request is not None:
                self._listening.answered(behind, request, command)
                raw = await self._rewritten(behind, request, raw, command)
            writer.write(raw)
            await writer.drain()

    async def _rewritten(self, behind: str, request: Command, raw: bytes, answer: Command) -> bytes:
        if answer.code != ResponseCode.SUCCESS:
            return raw
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return _with_body(raw, await self._route(answer.body))
        if request.code == RequestCode.PULL_MESSAGE:
            host, _, port = (await self.address(behind)).rpartition(":")
            return _with_body(raw, with_store_host(answer.body, host, int(port)))
        return raw

    async def _route(self, body: bytes) -> bytes:
        """The route with the tap's ports in place of the brokers'."""
        route = decode_route(body)
        for group in route.get("brokerDatas", ()):
            addresses = group.get("brokerAddrs", {})
            for number, address in addresses.items():
                addresses[number] = await self.address(address)
        return msgspec.json.encode(route)


def decode_route(body: bytes) -> Any:
    """A topic's route. Some of upstream's name servers leave whole numbers that are keys bare."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return msgspec.json.decode(_BARE_KEY.sub(rb'\1"\2":', body))


async def _read_frame(reader: asyncio.StreamReader) -> tuple[bytes, Command]:
    """A whole frame, as it came and as what it says. Raises OSError or EOFError at the end."""
    head = await reader.readexactly(_LENGTH.size)
    raw = head + await reader.readexactly(_LENGTH.unpack(head)[0])
    commands = FrameReader().feed(raw)
    if len(commands) != 1:
        raise FrameError("not one command in a frame")
    return raw, commands[0]


def _with_body(raw: bytes, body: bytes) -> bytes:
    """The frame with another body."""
    (word,) = _WORD.unpack_from(raw, _LENGTH.size)
    head = raw[_LENGTH.size : _LENGTH.size + _WORD.size + (word & _HEADER_BYTES)]
    return _LENGTH.pack(len(head) + len(body)) + head + body


def with_store_host(body: bytes, host: str, port: int) -> bytes:
    """A pull's messages as if this host had stored them, where it was one of IPv4."""
    changed = bytearray(body)
    packed = socket.inet_aton(host) + port.to_bytes(4, "big")
    start = 0
    while start + _BORN_HOST_AT < len(changed):
        (total,) = _LENGTH.unpack_from(changed, start)
        (flags,) = _LENGTH.unpack_from(changed, start + _SYS_FLAG_AT)
        if not flags & _STORE_HOST_V6:
            born_bytes = _HOST_V6_BYTES if flags & _BORN_HOST_V6 else _HOST_BYTES
            at = start + _BORN_HOST_AT + born_bytes + _STORED_BYTES
            changed[at : at + _HOST_BYTES] = packed
        if total <= 0:
            break
        start += total
    return bytes(changed)
