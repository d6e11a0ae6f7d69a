"""One AMQP 0-9-1 connection, small enough to know what was sent and what came back.

The frames are pamqp's; this file adds the handshake, heartbeats and content assembly. The user of
channel 1 reads its events in order (``next_event``) and finds out here, and only here, that the
connection is gone and why (``lost``). Other channels each have a ``Receiver``, which is called as
their events come (``attach``). It runs on any event loop that has create_connection and call_later.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.common import FieldValue
from pamqp.exceptions import PAMQPException
from pamqp.header import ContentHeader, ProtocolHeader
from pamqp.heartbeat import Heartbeat

from shalott.core.errors import Unreachable

CHANNEL = 1
HEARTBEAT_S = 10  # what we ask for; the server may want less
FRAME_OVERHEAD_BYTES = 8
CLOSE_TIMEOUT_S = 0.5
_FRAME_HEAD = struct.Struct(">BHI")
_FRAME_HEAD_BYTES = 7
_HEARTBEAT_BYTES = frame.marshal(Heartbeat(), 0)
_CLIENT_PROPERTIES: dict[str, FieldValue] = {
    "product": "shalott",
    "capabilities": {
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "authentication_failure_close": True,
    },
}


@dataclass(frozen=True, slots=True)
class Content:
    """A method that carries a message: basic.get-ok, basic.deliver or basic.return."""

    method: Frame
    body: bytes
    properties: commands.Basic.Properties | None = None


Event = Frame | Content


class ConnectionLost(Exception):
    """The connection ended; what was under way may or may not have reached the server."""


class Receiver(Protocol):
    """Who is told what happens on a channel, from inside the event loop's read: it can't wait."""

    def received(self, event: Event) -> None: ...

    def lost(self, reason: str) -> None:
        """The connection ended. Called once, and nothing after it."""
        ...


def ignore_blocking(why: str | None) -> None:
    """In place of who wants to know it."""


class Connection(asyncio.Protocol):
    """An open connection. ``lost`` says why it ended, and is None while it lives."""

    def __init__(self) -> None:
        self.lost: str | None = None
        self.blocked: str | None = None
        self.on_blocked: Callable[[str | None], None] = ignore_blocking  # why; None: no longer
        self.frame_max = 131072
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._contents = _Contents()
        self._receivers: dict[int, Receiver] = {}  # of the channels but 1, by number
        self._heartbeat_s = 0.0
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # What the user of the connection calls.

    def attach(self, receiver: Receiver) -> int:
        """The number of a channel that is free, whose events ``receiver`` is given from now on."""
        number = CHANNEL + 1
        while number in self._receivers:
            number += 1
        self._receivers[number] = receiver
        return number

    def detach(self, channel: int) -> None:
        """The channel is closed, or of no interest any more in a connection that ends."""
        self._receivers.pop(channel, None)
        self._contents.drop(channel)

    def send(self, *methods: Frame, channel: int = CHANNEL) -> None:
        """Send methods on a channel."""
        self._write(b"".join(frame.marshal(method, channel) for method in methods))

    def send_content(
        self, method: Frame, properties: commands.Basic.Properties, body: bytes
    ) -> None:
        """Send a method with its message, in one write."""
        header = ContentHeader(body_size=len(body), properties=properties)
        parts = [frame.marshal(method, CHANNEL), frame.marshal(header, CHANNEL)]
        step = self.frame_max - FRAME_OVERHEAD_BYTES
        for start in range(0, len(body), step):
            parts.append(frame.marshal(ContentBody(body[start : start + step]), CHANNEL))
        self._write(b"".join(parts))

    def poll_event(self) -> Event | None:
        """The next event if it has arrived."""
        return self._events.popleft() if self._events else None

    async def next_event(self) -> Event:
        """The next event of the channel (or of the handshake); raises ConnectionLost."""
        while not self._events:
            if self.lost is not None:
                raise ConnectionLost(self.lost)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    async def close(self) -> None:
        """Say goodbye and wait a little for the answer, so that what was sent before is read."""
        if self.lost is None:
            self._write(frame.marshal(commands.Connection.Close(200, "bye", 0, 0), 0))
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    while not isinstance(await self.next_event(), commands.Connection.CloseOk):
                        pass
            except (TimeoutError, ConnectionLost):
                pass
        self.abort("closed")

    def abort(self, reason: str) -> None:
        """Drop the connection without a word."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    async def handshake(self, user: str, password: str, vhost: str) -> None:
        """From the protocol header to connection.open-ok."""
        self._write(ProtocolHeader(0, 9, 1).marshal())
        await self._expect(commands.Connection.Start)
        response = f"\0{user}\0{password}"
        self._write(
            frame.marshal(commands.Connection.StartOk(_CLIENT_PROPERTIES, "PLAIN", response), 0)
        )
        tune = await self._expect(commands.Connection.Tune)
        assert isinstance(tune, commands.Connection.Tune)
        self.frame_max = tune.frame_max or self.frame_max
        heartbeat_s = min(tune.heartbeat or HEARTBEAT_S, HEARTBEAT_S)
        tune_ok = commands.Connection.TuneOk(tune.channel_max, self.frame_max, heartbeat_s)
        self._write(frame.marshal(tune_ok, 0) + frame.marshal(commands.Connection.Open(vhost), 0))
        self._heartbeat_s = heartbeat_s
        if heartbeat_s > 0:
            self._beat()
        await self._expect(commands.Connection.OpenOk)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._heard_at = asyncio.get_running_loop().time()

    def data_received(self, data: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._buffer += data
        try:
            while (received := _take_frame(self._buffer, self.frame_max)) is not None:
                self._handle(*received)
        except (PAMQPException, ValueError, struct.error, LookupError, TypeError) as error:
            self.abort(f"the server sent what is not AMQP: {error}")

    def eof_received(self) -> None:
        self._end("connection closed by the server")

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"connection lost: {error}" if error else "connection closed by the server")
        if self._timer is not None:
            self._timer.cancel()

    # Inside.

    async def _expect(self, kind: type[Frame]) -> Frame:
        event = await self.next_event()
        if not isinstance(event, kind):
            raise ConnectionLost(f"the server answered {_name(event)} instead of {kind.name}")
        return event

    def _write(self, data: bytes) -> None:
        if self.lost is None and self._transport is not None:
            self._transport.write(data)

    def _end(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            receivers, self._receivers = self._receivers, {}
            for receiver in receivers.values():
                receiver.lost(reason)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _push(self, channel: int, event: Event) -> None:
        receiver = self._receivers.get(channel)
        if receiver is not None:
            receiver.received(event)
        elif channel <= CHANNEL:  # else it was closed
            self._events.append(event)
            self._wake()

    def _handle(self, channel: int, value: object) -> None:
        match value:
            case Heartbeat():
                pass
            case commands.Connection.Close():
                self._write(frame.marshal(commands.Connection.CloseOk(), 0))
                self._end(f"closed by the server: {value.reply_code} {value.reply_text}")
                if self._transport is not None:
                    self._transport.close()
            case commands.Connection.Blocked():
                self.blocked = value.reason or "blocked"
                self.on_blocked(self.blocked)
            case commands.Connection.Unblocked():
                self.blocked = None
                self.on_blocked(None)
            case commands.Basic.GetOk() | commands.Basic.Return() | commands.Basic.Deliver():
                self._contents.begin(channel, value)
            case ContentHeader() | ContentBody():
                content = self._contents.add(channel, value)
                if content is not None:
                    self._push(channel, content)
            case Frame():
                self._push(channel, value)
            case _:
                raise ValueError(f"an unexpected frame {value!r} on channel {channel}")

    def _beat(self) -> None:
        """Twice an interval: send a heartbeat; give up on a server silent for two intervals."""
        if self.lost is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._heard_at > 2 * self._heartbeat_s:
            self.abort(f"no heartbeat for {2 * self._heartbeat_s:g} s")
            return
        self._write(_HEARTBEAT_BYTES)
        self._timer = loop.call_later(self._heartbeat_s / 2, self._beat)


class _Contents:
    """Messages whose frames are still arriving, by channel."""

    def __init__(self) -> None:
        self._partial: dict[int, _PartialContent] = {}

    def begin(self, channel: int, method: Frame) -> None:
        self._partial[channel] = _PartialContent(method)

    def drop(self, channel: int) -> None:
        self._partial.pop(channel, None)

    def add(self, channel: int, value: ContentHeader | ContentBody) -> Content | None:
        """The message, if it is whole now."""
        content = self._partial.get(channel)
        if content is None:
            raise ValueError("content without a method")
        if isinstance(value, ContentHeader):
            content.missing_bytes = value.body_size
            content.properties = value.properties
        else:
            content.body += value.value
            content.missing_bytes -= len(value.value)
        if content.missing_bytes > 0:
            return None
        del self._partial[channel]
        return Content(content.method, bytes(content.body), content.properties)


@dataclass(slots=True)
class _PartialContent:
    method: Frame
    properties: commands.Basic.Properties | None = None
    body: bytearray = field(default_factory=bytearray)
    missing_bytes: int = 0


def _take_frame(buffer: bytearray, frame_max: int) -> tuple[int, object] | None:
    """One whole frame off the buffer."""
    if buffer[:4] == b"AMQP":
        raise ValueError("it speaks another version of the protocol")
    if len(buffer) < _FRAME_HEAD_BYTES:
        return None
    size = _FRAME_HEAD_BYTES + _FRAME_HEAD.unpack_from(buffer)[2] + 1
    if size > frame_max + FRAME_OVERHEAD_BYTES:
        raise ValueError(f"a frame of {size} bytes")
    if len(buffer) < size:
        return None
    _, channel, value = frame.unmarshal(bytes(buffer[:size]))
    del buffer[:size]
    return channel, value


def _name(event: Event) -> str:
    return str((event.method if isinstance(event, Content) else event).name)


async def connect(host: str, port: int, *, user: str, password: str, vhost: str) -> Connection:
    """An open connection, or Unreachable. Being cancelled leaves nothing behind."""
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(Connection, host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Unreachable(f"cannot connect to {host}:{port}: {reason}") from error
    try:
        await connection.handshake(user, password, vhost)
    except ConnectionLost as error:
        connection.abort("handshake failed")
        raise Unreachable(f"{host}:{port} refused the connection: {error}") from error
    except BaseException:
        connection.abort("handshake abandoned")
        raise
    return connection
