"""RemotingClient: asks and waits, over one connection an address, made when it is needed.

What became of a request is in the type of the error: Unreachable, nothing was sent; Unanswered, it
may have been carried out. A half-open connection says nothing at all, so one that gave not a byte
since an unanswered request was sent is dropped, and the next request dials anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.remoting.codec import FrameError, FrameReader, encode
from shalott.broker.rocket.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command

log = logging.getLogger("shalott.broker.remoting")

CONNECT_TIMEOUT_MS = 3000
ONEWAY_TIMEOUT_MS = 3000
UNSENT_BYTES_MAX = 64 << 20


class Unreachable(BrokerError):
    """Nothing was sent."""


class Unanswered(BrokerError):
    """It was sent, and no answer came: in time, or before the connection was lost."""


class RemotingClient:
    """``on_push`` gets the requests that servers make of this client, with their address."""

    def __init__(
        self,
        dial: Callable[[str], tuple[str, int]],
        *,
        on_push: Callable[[str, Command], None] | None = None,
        connect_timeout_ms: float = CONNECT_TIMEOUT_MS,
    ) -> None:
        self._dial = dial
        self._on_push = on_push
        self._connect_timeout_ms = connect_timeout_ms
        self._connections: dict[str, _Connection] = {}
        self._connecting: dict[str, asyncio.Task[_Connection | str]] = {}
        self._next_opaque = 0
        self._closed = False

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        """Send ``command`` and return the answer. Raises Unreachable, Unanswered and FrameError
        (the command fits in no frame: nothing was sent).
        """
        loop = asyncio.get_running_loop()
        request = self._numbered(command, command.flag)
        connection, left_ms = self._connections.get(address), timeout_ms
        if connection is None:
            begun_s = loop.time()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    connection = await self._connection(address)
            except TimeoutError as error:
                raise Unreachable(f"{address}: no connection in {timeout_ms:g} ms") from error
            left_ms -= (loop.time() - begun_s) * 1000
        answer: asyncio.Future[Command] = loop.create_future()
        connection.ask(request, left_ms, lambda outcome: _settle(answer, outcome))
        try:
            return await answer
        except asyncio.CancelledError:
            connection.give_up(request.opaque)
            raise

    def try_ask(
        self,
        address: str,
        command: Command,
        timeout_ms: float,
        answered: Callable[[Command | Unanswered], None],
    ) -> bool:
        """As ``invoke`` if there is a connection to ``address``, for who need not wait; False if
        there is none. Raises Unreachable and FrameError.
        """
        connection = self._connections.get(address)
        if connection is None:
            return False
        connection.ask(self._numbered(command, command.flag), timeout_ms, answered)
        return True

    async def oneway(self, address: str, command: Command) -> None:
        """Send ``command`` and wait for nothing. Raises Unreachable."""
        request = self._numbered(command, command.flag | ONEWAY_FLAG)
        try:
            async with asyncio.timeout(ONEWAY_TIMEOUT_MS / 1000):
                connection = await self._connection(address)
        except TimeoutError as error:
            raise Unreachable(f"{address}: no connection in {ONEWAY_TIMEOUT_MS} ms") from error
        connection.send(request)

    async def close(self) -> None:
        """Cut all connections; what waits for an answer raises Unanswered."""
        self._closed = True
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.abort("the client was closed")

    def is_connected(self, address: str) -> bool:
        """Whether a request could be sent now, as far as this side knows."""
        return address in self._connections

    def disconnect(self, address: str) -> None:
        """Cut the connection to ``address``, if there is one. The next request dials anew."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.abort("disconnected")

    def _numbered(self, command: Command, flag: int) -> Command:
        self._next_opaque = self._next_opaque + 1 & 0x7FFFFFFF
        return msgspec.structs.replace(command, opaque=self._next_opaque, flag=flag)

    async def _connection(self, address: str) -> _Connection:
        """The one to ``address``. Raises Unreachable."""
        if self._closed:
            raise Unreachable("the client is closed")
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.create_task(self._connect(address), name="remoting connect")
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._forget(address, done))
        try:
            # Others may wait for the same connection, and longer.
            made = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Unreachable("the client was closed") from None
            raise
        if isinstance(made, str):
            raise Unreachable(f"{address}: {made}")
        return made

    def _forget(self, address: str, task: asyncio.Task[_Connection | str]) -> None:
        if self._connecting.get(address) is task:
            del self._connecting[address]

    async def _connect(self, address: str) -> _Connection | str:
        """A connection, or why there is none: the caller may be gone."""
        connection = _Connection(address, self._ended, self._on_push)
        try:
            host, port = self._dial(address)
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
        except TimeoutError:
            connection.abort("no connection in time")
            return f"no connection in {self._connect_timeout_ms:g} ms"
        except (OSError, BrokerError) as error:
            return str(error) or type(error).__name__
        except asyncio.CancelledError:
            connection.abort("the client was closed")
            raise
        if connection.lost is not None:
            return connection.lost
        self._connections[address] = connection
        return connection

    def _ended(self, connection: _Connection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]


def _settle(answer: asyncio.Future[Command], outcome: Command | Unanswered) -> None:
    if answer.done():
        return
    if isinstance(outcome, Unanswered):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


@dataclass(slots=True)
class _Asked:
    """A request without an answer yet; ``received``: the connection's, when it was sent."""

    answered: Callable[[Command | Unanswered], None]
    timer: asyncio.TimerHandle
    received: int


class _Connection(asyncio.Protocol):
    """``lost`` says why it ended, and is None while it lives."""

    def __init__(
        self,
        address: str,
        on_end: Callable[[_Connection], None],
        on_push: Callable[[str, Command], None] | None,
    ) -> None:
        self.address = address
        self.lost: str | None = None
        self._on_end = on_end
        self._on_push = on_push
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._received = 0  # reads, to see whether the peer gives any sign of life
        self._waiting: dict[int, _Asked] = {}

    def ask(
        self, request: Command, timeout_ms: float, answered: Callable[[Command | Unanswered], None]
    ) -> None:
        """Raises Unreachable, FrameError."""
        self.send(request)
        timer = asyncio.get_running_loop().call_later(
            timeout_ms / 1000, self._time_is_up, request.opaque, timeout_ms
        )
        self._waiting[request.opaque] = _Asked(answered, timer, self._received)

    def give_up(self, opaque: int) -> _Asked | None:
        """Wait no more, also for nothing that this connection could say if it says nothing."""
        asked = self._waiting.pop(opaque, None)
        if asked is not None:
            asked.timer.cancel()
            if asked.received == self._received:
                self.abort("the peer gives no sign of life")
        return asked

    def _time_is_up(self, opaque: int, timeout_ms: float) -> None:
        asked = self.give_up(opaque)
        if asked is not None:
            asked.answered(Unanswered(f"{self.address}: no answer in {timeout_ms:g} ms"))

    def send(self, request: Command) -> None:
        """Raises Unreachable if it is not sent at all."""
        data = encode(request)
        transport = self._transport
        if self.lost is not None or transport is None or transport.is_closing():
            raise Unreachable(f"{self.address}: {self.lost or 'the connection is closed'}")
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.abort("the peer takes nothing")
            raise Unreachable(f"{self.address}: the peer takes nothing")
        transport.write(data)

    def abort(self, reason: str) -> None:
        """Cut it."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    # -- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.lost is not None:  # given up while it was being made
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += 1
        if self.lost is not None:
            return
        try:
            commands = self._frames.feed(data)
        except FrameError as error:
            self.abort(f"the peer speaks no remoting: {error}")
            return
        for command in commands:
            if not command.flag & RESPONSE_FLAG:
                if self._on_push is not None:
                    self._on_push(self.address, command)
                continue
            asked = self._waiting.pop(command.opaque, None)
            if asked is not None:
                asked.timer.cancel()
                asked.answered(command)

    def connection_lost(self, error: Exception | None) -> None:
        self._end("the peer closed the connection" if error is None else repr(error))

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        self._on_end(self)
        waiting, self._waiting = self._waiting, {}
        for asked in waiting.values():
            asked.timer.cancel()
            asked.answered(Unanswered(f"{self.address}: {reason}"))
