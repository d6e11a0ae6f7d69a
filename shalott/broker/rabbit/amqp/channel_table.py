"""ChannelTable: the channel numbers of one connection, and who is behind each of them.

A number is free, *open* (a Channel process gets its commands), or *closing*: its channel failed,
the client was told with channel.close, and everything that it sends on that number is discarded
until its close-ok. A client may close at the same moment; then both sides owe each other a
close-ok.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pamqp import commands

from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    AmqpError,
)
from shalott.broker.rabbit.amqp.services import ChannelInfo, ConnectionGone, Port
from shalott.broker.rabbit.amqp.wire import (
    METHOD,
    Assembler,
    Frame,
    Method,
    content_frames,
    decode_method,
    encode_frame,
    encode_method,
)
from shalott.broker.rabbit.processes.messages import Down, Pid
from shalott.broker.rabbit.processes.runtime import Runtime


class Link(Protocol):
    """What channels need of their connection."""

    @property
    def frame_max(self) -> int: ...

    @property
    def running(self) -> bool:
        """Whether frames of channels may still be sent."""
        ...

    def write(self, data: bytes) -> None: ...

    async def write_and_drain(self, data: bytes) -> None: ...

    def fail(self, error: AmqpError) -> None: ...


class ChannelPort:
    """One channel's way to the client (broker.rabbit.amqp.services.Port)."""

    def __init__(self, table: ChannelTable, link: Link, number: int) -> None:
        self._table = table
        self._link = link
        self.number = number

    async def send(self, method: Method) -> None:
        await self.send_payload(encode_method(method))

    async def send_payload(self, payload: bytes) -> None:
        await self._link.write_and_drain(encode_frame(METHOD, self.number, payload))

    async def send_content(self, payload: bytes, properties: bytes, body: bytes) -> None:
        content = content_frames(self.number, properties, body, self._link.frame_max)
        frames = (encode_frame(METHOD, self.number, payload), *content)
        await self._link.write_and_drain(b"".join(frames))

    def closed(self) -> None:
        self._table.closed(self.number)

    def failed(self, error: AmqpError) -> None:
        self._table.failed(self.number, error)


class _Open:
    """A number with a living channel."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.assembler = Assembler()


class _Closing:
    """A number whose channel failed."""

    def __init__(self) -> None:
        self.closed_by_client_too = False


class ChannelTable:
    """``create`` makes the Channel for a port; ``owner``, the connection, monitors it."""

    def __init__(
        self, runtime: Runtime, owner: Pid, link: Link, create: Callable[[Port], Channel]
    ) -> None:
        self._runtime = runtime
        self._owner = owner
        self._link = link
        self._create = create
        self.channel_max = 0
        self._numbers: dict[int, _Open | _Closing] = {}
        self._alive: dict[Pid, Channel] = {}
        self._none_alive = asyncio.Event()
        self._none_alive.set()

    def __len__(self) -> int:
        """How many channels live."""
        return len(self._alive)

    def infos(self) -> list[ChannelInfo]:
        """The open ones, by number."""
        return [
            use.channel.info(number)
            for number, use in sorted(self._numbers.items())
            if isinstance(use, _Open) and use.channel.has_started
        ]

    # -- from the client ---------------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> Channel | None:
        """Take a frame on a channel other than 0. The channel that got a command by it, if any.

        Raises AmqpError, of which soft ones don't occur.
        """
        use = self._numbers.get(frame.channel)
        if isinstance(use, _Open):
            return self._feed(frame, use)
        if use is not None and not self._is_settled(frame, use):
            return None
        method = decode_method(frame.payload) if frame.kind == METHOD else None
        if isinstance(method, commands.Channel.Open):
            self._open(frame.channel)
        elif not isinstance(method, commands.Channel.CloseOk):
            error = AmqpError(CHANNEL_ERROR, f"expected channel.open on channel {frame.channel}")
            raise error if method is None else blame(error, method)
        return None

    def _feed(self, frame: Frame, use: _Open) -> Channel | None:
        command = use.assembler.feed(frame)
        if command is None:
            return None
        method = command.method
        if isinstance(method, commands.Channel.Open):
            text = f"second channel.open seen on channel {frame.channel}"
            raise blame(AmqpError(CHANNEL_ERROR, text), method)
        if method.index >> 16 == commands.Connection.frame_id:
            text = f"{method.name} on channel {frame.channel}, not 0"
            raise blame(AmqpError(COMMAND_INVALID, text), method)
        use.channel.accept(command)
        return use.channel

    def _is_settled(self, frame: Frame, use: _Closing) -> bool:
        """Whether the number can be used anew. Answers a close that crossed ours."""
        if frame.kind != METHOD:
            return False
        method = decode_method(frame.payload)
        if isinstance(method, commands.Channel.Close):
            use.closed_by_client_too = True
            self._tell(frame.channel, commands.Channel.CloseOk())
            return False
        reopened = use.closed_by_client_too and isinstance(method, commands.Channel.Open)
        if reopened or isinstance(method, commands.Channel.CloseOk):
            del self._numbers[frame.channel]
            return True
        return False

    def _open(self, number: int) -> None:
        if number > self.channel_max:
            text = f"channel {number} is over channel_max {self.channel_max}"
            raise AmqpError(NOT_ALLOWED, text)
        channel = self._create(ChannelPort(self, self._link, number))
        pid = self._runtime.spawn(channel)
        self._numbers[number] = _Open(channel)
        self._alive[pid] = channel
        self._none_alive.clear()
        self._runtime.monitor(pid, self._owner)
        self._tell(number, commands.Channel.OpenOk())

    # -- from channels -----------------------------------------------------------------------------

    def closed(self, number: int) -> None:
        """The client closed the channel, and the channel is done."""
        del self._numbers[number]
        self._tell(number, commands.Channel.CloseOk())

    def failed(self, number: int, error: AmqpError) -> None:
        if error.hard:
            self._link.fail(error)
            return
        self._numbers[number] = _Closing()
        close = commands.Channel.Close(
            error.code, error.reply_text, error.class_id, error.method_id
        )
        self._tell(number, close)

    def on_down(self, message: Down) -> None:
        """A channel's process has ended. One that crashed takes the connection along."""
        channel = self._alive.pop(message.pid, None)
        if channel is None:
            return
        channel.backlog.end()
        if not self._alive:
            self._none_alive.set()
        if message.reason.startswith("crash"):
            self._link.fail(AmqpError(INTERNAL_ERROR, f"a channel failed: {message.reason}"))

    # -- the end -----------------------------------------------------------------------------------

    def end_all(self) -> None:
        """Tell every channel to end. Returns at once; see ``all_ended``."""
        for pid, channel in self._alive.items():
            channel.backlog.end()
            self._runtime.send(pid, ConnectionGone())

    async def all_ended(self, *, grace_ms: float) -> None:
        """Wait for the channels, and kill those that are stuck in a call without an answer."""
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._none_alive.wait()
        except TimeoutError:
            for pid in list(self._alive):
                await self._runtime.kill(pid)

    def _tell(self, number: int, method: Method) -> None:
        if self._link.running:
            self._link.write(encode_frame(METHOD, number, encode_method(method)))


def blame(error: AmqpError, method: Method) -> AmqpError:
    """``error`` with the method that it is about."""
    error.class_id, error.method_id = method.index >> 16, method.index & 0xFFFF
    return error
