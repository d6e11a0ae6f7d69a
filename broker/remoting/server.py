"""RemotingServer: a port that speaks the remoting protocol; each request code has its handler.

Requests of one connection are handled at the same time and answered as they end; one whose
connection is gone is carried out all the same, as upstream's are: it may be half done. What is not
a frame ends its connection and nothing else. A connection from which nothing came for two minutes
is closed (upstream's serverChannelMaxIdleTimeSeconds): its peer is gone, and nobody would ever say
so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from broker.errors import cannot_listen
from broker.remoting.codec import FrameError, FrameReader, encode
from broker.remoting.codes import ResponseCode
from broker.remoting.command import ONEWAY_FLAG, Command, answering, response

log = logging.getLogger("broker.remoting")

READ_BYTES = 64 << 10
IDLE_TIMEOUT_MS = 120_000
WRITE_TIMEOUT_MS = 30_000
# Requests of one connection that may be under way at a time; more are refused as busy.
REQUESTS_MAX = 4096


class Caller:
    """One connection of a client. ``attributes`` are the service's: a client id, say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")  # None if it is gone already
        self.address = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.closed = asyncio.Event()
        self.attributes: dict[str, Any] = {}
        self.reader = reader
        self.requests = 0  # under way
        self._writer = writer
        self._next_opaque = 0

    async def push(self, command: Command) -> None:
        """Send a one-way request to the client. What can't be sent is lost with the connection."""
        self._next_opaque = self._next_opaque + 1 & 0x7FFFFFFF
        command.opaque, command.flag = self._next_opaque, command.flag | ONEWAY_FLAG
        await self.send(command)

    async def answer(self, request: Command, answer: Command) -> None:
        """Answer ``request`` now: for a handler that returned None and said nothing yet."""
        if not request.is_oneway:
            await self.send(answering(request, answer))

    async def send(self, command: Command) -> None:
        """Send a frame as it is. A client that takes nothing for too long is cut off."""
        if self.closed.is_set() or self._writer.is_closing():
            return
        try:
            self._writer.write(encode(command))
            async with asyncio.timeout(WRITE_TIMEOUT_MS / 1000):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            log.debug("%s takes no answers: %r", self.address, error)
            self.abort()

    def abort(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()


# None: there is no answer, or the handler sees to it with ``Caller.answer``.
Handler = Callable[[Command, Caller], Awaitable[Command | None]]


class RemotingServer:
    """``on_close`` hears once of each connection that ended."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        host: str,
        port: int,
        on_close: Callable[[Caller], None] | None = None,
        setting: str = "ports",
        idle_timeout_ms: float = IDLE_TIMEOUT_MS,
    ) -> None:
        self._handlers = dict(handlers)
        self._host = host
        self._port = port
        self._on_close = on_close
        self._setting = setting
        self._idle_timeout_ms = idle_timeout_ms
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], Caller] = {}
        self._requests: dict[asyncio.Task[None], Caller] = {}

    @property
    def port(self) -> int:
        """The port in use: another than asked for if that was 0."""
        return self._port

    @property
    def callers(self) -> list[Caller]:
        """Those that are connected, in order of arrival."""
        return list(self._serving.values())

    async def start(self) -> None:
        """Listen. Raises ConfigError if the port can't be had."""
        try:
            self._server = await asyncio.start_server(self._accepted, self._host, self._port)
        except OSError as error:
            raise cannot_listen("remoting", self._host, self._port, self._setting, error) from error
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and cut off those who are being served, their requests with them."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        tasks = [*self._serving, *self._requests]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it came while we stop
            writer.transport.abort()
            return
        caller = Caller(reader, writer)
        task = asyncio.create_task(self._serve(caller), name="remoting connection")
        self._serving[task] = caller
        task.add_done_callback(lambda done: self._serving.pop(done, None))

    async def _serve(self, caller: Caller) -> None:
        try:
            await self._read_requests(caller)
        except FrameError as error:
            log.warning("%s speaks no remoting: %s", caller.address, error)
        except (OSError, TimeoutError) as error:
            log.debug("%s went away: %r", caller.address, error)
        finally:
            caller.closed.set()
            caller.abort()
            if self._on_close is not None:
                self._on_close(caller)

    async def _read_requests(self, caller: Caller) -> None:
        frames = FrameReader()
        while True:
            async with asyncio.timeout(self._idle_timeout_ms / 1000):
                data = await caller.reader.read(READ_BYTES)
            if not data:
                return
            for command in frames.feed(data):
                if command.is_response:
                    continue  # nobody here asks and waits
                if caller.requests >= REQUESTS_MAX:
                    busy = response(ResponseCode.SYSTEM_BUSY, "too many requests are under way")
                    await caller.answer(command, busy)
                else:
                    self._begin(command, caller)

    def _begin(self, request: Command, caller: Caller) -> None:
        task = asyncio.create_task(self._handle(request, caller), name="remoting request")
        self._requests[task] = caller
        caller.requests += 1
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._requests.pop(task).requests -= 1

    async def _handle(self, request: Command, caller: Caller) -> None:
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported"
            answer: Command | None = response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        else:
            answer = await self._answer_of(handler, request, caller)
        if answer is None:
            return
        try:
            await caller.answer(request, answer)
        except FrameError as error:  # an answer that fits in no frame
            remark = f"no answer: {error}"
            await caller.answer(request, response(ResponseCode.SYSTEM_ERROR, remark))

    async def _answer_of(
        self, handler: Handler, request: Command, caller: Caller
    ) -> Command | None:
        try:
            return await handler(request, caller)
        except Exception as error:
            # A fault of ours must not take the connection, on which other requests wait.
            log.exception("request %d of %s failed", request.code, caller.address)
            return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
