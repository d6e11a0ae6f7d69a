"""RemotingServer: a port that speaks the remoting protocol; each request code has its handler.

A handler that needs not wait is a plain function and is answered on the spot. The others of one
connection are carried out at the same time and answered as they end; one whose connection is gone
is carried out all the same, as upstream's are: it may be half done. What is not a frame ends its
connection and nothing else. A connection from which nothing came for two minutes is closed
(upstream's serverChannelMaxIdleTimeSeconds): its peer is gone, and nothing would ever say so. So is
one that takes no answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping

from shalott.broker.base.errors import cannot_listen
from shalott.broker.rocket.remoting.codec import FrameError, FrameReader, encode
from shalott.broker.rocket.remoting.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    ResponseCode,
    answering,
    response,
)

log = logging.getLogger("shalott.broker.remoting")

IDLE_TIMEOUT_MS = 120_000
WRITE_TIMEOUT_MS = 30_000
# Requests of one connection that may be under way at a time; more are refused as busy.
REQUESTS_MAX = 4096
UNSENT_BYTES_MAX = 64 << 20


class Caller:
    """One connection of a client."""

    def __init__(self, transport: asyncio.Transport) -> None:
        peer = transport.get_extra_info("peername")  # None if it is gone already
        self.address = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.is_closed = False
        self.closed = asyncio.Event()  # for who waits for it
        self.requests = 0  # under way
        self.full: asyncio.Event | None = None  # set when there is room again, or it is closed
        self._transport = transport
        self._next_opaque = 0

    async def push(self, command: Command) -> None:
        """Send a one-way request to the client. What can't be sent is lost with the connection."""
        self._next_opaque = self._next_opaque + 1 & 0x7FFFFFFF
        command.opaque, command.flag = self._next_opaque, command.flag | ONEWAY_FLAG
        self.send_now(command)
        await self.drained()

    async def answer(self, request: Command, answer: Command) -> None:
        """Answer ``request`` now: for a handler that returned None and said nothing yet."""
        self.answer_now(request, answer)
        await self.drained()

    def answer_now(self, request: Command, answer: Command) -> None:
        """As ``answer``, without waiting for room. Raises FrameError if it fits in no frame."""
        if not request.flag & ONEWAY_FLAG:
            self.send_now(answering(request, answer))

    def send_now(self, command: Command) -> None:
        """Send a frame as it is. A client that takes nothing is cut off."""
        transport = self._transport
        if self.is_closed or transport.is_closing():
            return
        transport.write(encode(command))
        if self.full is not None and transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            log.debug("%s takes no answers", self.address)
            self.abort()

    async def drained(self) -> None:
        """Wait while too much is unsent."""
        if self.full is not None:
            await self.full.wait()

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()


# None: there is no answer, or the handler sees to it with ``Caller.answer``.
Handler = Callable[[Command, Caller], Awaitable[Command | None] | Command | None]


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
        self.idle_timeout_ms = idle_timeout_ms
        self._handlers = dict(handlers)
        self._host = host
        self._port = port
        self._on_close = on_close
        self._setting = setting
        self._server: asyncio.Server | None = None
        self._callers: dict[Caller, None] = {}
        self._requests: dict[int, tuple[asyncio.Task[None], Awaitable[Command | None]]] = {}
        self._next_request = 0

    @property
    def port(self) -> int:
        """The port in use: another than asked for if that was 0."""
        return self._port

    @property
    def callers(self) -> list[Caller]:
        """Those that are connected, in order of arrival."""
        return list(self._callers)

    async def start(self) -> None:
        """Listen. Raises ConfigError if the port can't be had."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Connection(self), self._host, self._port
            )
        except OSError as error:
            raise cannot_listen("remoting", self._host, self._port, self._setting, error) from error
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and cut off those who are being served, their requests with them."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for caller in self.callers:
            caller.abort()
            self.ended(caller)
        requests = list(self._requests.values())
        for task, _ in requests:
            task.cancel()
        await asyncio.gather(*(task for task, _ in requests), return_exceptions=True)
        for _, unbegun in self._requests.values():
            if isinstance(unbegun, Coroutine):
                unbegun.close()
        if server is not None:
            await server.wait_closed()

    # -- what connections say ----------------------------------------------------------------------

    def accepted(self, caller: Caller) -> bool:
        """Whether it is served."""
        if self._server is None:  # it came while we stop
            return False
        self._callers[caller] = None
        return True

    def ended(self, caller: Caller) -> None:
        if caller not in self._callers:
            return
        del self._callers[caller]
        caller.is_closed = True
        caller.closed.set()
        if caller.full is not None:
            caller.full.set()
        if self._on_close is not None:
            self._on_close(caller)

    def begin(self, request: Command, caller: Caller) -> None:
        """Carry it out, or begin to."""
        if request.flag & RESPONSE_FLAG:
            return  # a server asks nothing
        if caller.requests >= REQUESTS_MAX:
            busy = response(ResponseCode.SYSTEM_BUSY, "too many requests are under way")
            caller.answer_now(request, busy)
            return
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported"
            _answer(request, caller, response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            outcome = handler(request, caller)
        except Exception as error:
            outcome = _failed(request, caller, error)
        if outcome is None or isinstance(outcome, Command):
            _answer(request, caller, outcome)
            return
        number = self._next_request = self._next_request + 1
        caller.requests += 1
        task = asyncio.create_task(
            self._finish(number, outcome, request, caller), name="remoting request"
        )
        self._requests[number] = (task, outcome)

    async def _finish(
        self, number: int, outcome: Awaitable[Command | None], request: Command, caller: Caller
    ) -> None:
        try:
            try:
                answer = await outcome
            except Exception as error:
                answer = _failed(request, caller, error)
            _answer(request, caller, answer)
            await caller.drained()
        finally:
            caller.requests -= 1
            del self._requests[number]


def _failed(request: Command, caller: Caller, error: Exception) -> Command:
    """A fault of ours must not take the connection, on which other requests wait."""
    log.error("request %d of %s failed", request.code, caller.address, exc_info=error)
    return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _answer(request: Command, caller: Caller, answer: Command | None) -> None:
    if answer is None:
        return
    try:
        caller.answer_now(request, answer)
    except FrameError as error:  # an answer that fits in no frame
        remark = f"no answer: {error}"
        caller.answer_now(request, response(ResponseCode.SYSTEM_ERROR, remark))


class _Connection(asyncio.Protocol):
    """From its acceptance to its end."""

    def __init__(self, server: RemotingServer) -> None:
        self._server = server
        self._caller: Caller | None = None
        self._frames = FrameReader()
        self._loop = asyncio.get_running_loop()
        self._heard_s = 0.0
        self._idle_s = server.idle_timeout_ms / 1000
        self._idle_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        caller = Caller(transport)
        if not self._server.accepted(caller):
            caller.abort()
            return
        self._caller = caller
        self._heard_s = self._loop.time()
        self._idle_timer = self._loop.call_later(self._idle_s, self._is_idle)

    def data_received(self, data: bytes) -> None:
        caller = self._caller
        if caller is None or caller.is_closed:
            return
        self._heard_s = self._loop.time()
        try:
            commands = self._frames.feed(data)
        except FrameError as error:
            log.warning("%s speaks no remoting: %s", caller.address, error)
            self._end()
            return
        for command in commands:
            self._server.begin(command, caller)

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        if self._caller is not None:
            self._caller.full = asyncio.Event()
            self._write_timer = self._loop.call_later(WRITE_TIMEOUT_MS / 1000, self._end)

    def resume_writing(self) -> None:
        if self._caller is not None and self._caller.full is not None:
            self._caller.full.set()
            self._caller.full = None
        self._stop(self._write_timer)

    def _is_idle(self) -> None:
        left_s = self._heard_s + self._idle_s - self._loop.time()
        if left_s <= 0:
            self._end()
        else:
            self._idle_timer = self._loop.call_later(max(left_s, 0.001), self._is_idle)

    def _end(self) -> None:
        self._stop(self._idle_timer)
        self._stop(self._write_timer)
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.abort()
            self._server.ended(caller)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
