"""ClientSocket: the frames that one client sends and is sent, and when the last ones were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pamqp import commands

from shalott.broker.base.env import Clock
from shalott.broker.base.tls import Certificate, session_of
from shalott.broker.rabbit.amqp.errors import COMMAND_INVALID, AmqpError
from shalott.broker.rabbit.amqp.wire import (
    FRAME_OVERHEAD,
    HEARTBEAT,
    METHOD,
    Frame,
    FrameReader,
    Method,
    decode_method,
    encode_frame,
    encode_method,
)

CLOSE_TIMEOUT_MS = 2_000  # for the client's close-ok, and for the last bytes to leave


class ClientSocket:
    """Of one connection. ``frame_max`` is what the handshake agreed on, once it did.
    ``woken``: see FrameReader.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        clock: Clock,
        frame_max: int,
        woken: Callable[[int], None],
    ) -> None:
        self._frames = FrameReader(reader, frame_max, woken)
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self.last_read_ns = self.last_write_ns = clock.monotonic_ns()
        self.peer = writer.get_extra_info("peername") or ("unknown", 0)
        self.certificate: Certificate | None = writer.get_extra_info("peercert") or None
        self.tls = session_of(writer.get_extra_info("cipher"), self.certificate)
        local = writer.get_extra_info("sockname") or ("unknown", 0)
        self.local_host, self.local_port = local[0], local[1]
        self.received = self.sent = 0  # frames read, and writes
        self.received_bytes = self.sent_bytes = 0
        self.name = f"{_shown(self.peer)} -> {_shown(local)}"

    @property
    def frame_max(self) -> int:
        return self._frames.frame_max

    @frame_max.setter
    def frame_max(self, value: int) -> None:
        self._frames.frame_max = value

    # -- out ---------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self.is_closing:
            self._writer.write(data)
            self.sent += 1
            self.sent_bytes += len(data)
            self.last_write_ns = self._clock.monotonic_ns()

    def write_method(self, method: Method) -> None:
        """On channel 0."""
        self.write(encode_frame(METHOD, 0, encode_method(method)))

    async def drain(self) -> None:
        await self._writer.drain()

    @property
    def unsent(self) -> int:
        """Bytes that wait for the client to read."""
        return self._writer.transport.get_write_buffer_size()

    @property
    def is_closing(self) -> bool:
        return self._writer.transport.is_closing()

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def hang_up(self) -> None:
        """Send what is still unsent, and close."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            self.abort()

    # -- in ----------------------------------------------------------------------------------------

    async def read_exactly(self, count: int) -> bytes:
        return await self._reader.readexactly(count)

    async def receive_method(self) -> Method:
        while True:
            frame = await self.next_frame()
            if frame.kind == HEARTBEAT:
                continue
            if frame.kind != METHOD or frame.channel != 0:
                text = f"a frame of type {frame.kind} on channel {frame.channel} while opening"
                raise AmqpError(COMMAND_INVALID, text)
            return decode_method(frame.payload)

    async def next_frame(self) -> Frame:
        frame = await self._frames.next()
        self.received += 1
        self.received_bytes += len(frame.payload) + FRAME_OVERHEAD
        self.last_read_ns = self._clock.monotonic_ns()
        return frame

    async def await_close_ok(self) -> None:
        """The connection's CloseTimeout ends this, if the client doesn't."""
        try:
            while not is_end(await self._frames.next()):
                pass
        except AmqpError:
            await self.discard()

    async def await_end(self, timeout_s: float) -> None:
        """The client may have much to read before close-ok, and closes when it has it. A socket
        that is closed earlier, or while the client still writes, is reset and takes it along.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.discard()
        except (TimeoutError, ConnectionError):
            pass

    async def discard(self) -> None:
        """Frames can't be told apart any more: wait for the end."""
        while await self._reader.read(65536):
            pass


def _shown(address: tuple[str, int]) -> str:
    """As RabbitMQ shows it: IPv6 in brackets."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_end(frame: Frame) -> bool:
    """Whether this settles a connection that the node is closing; all else is of no interest."""
    if frame.kind != METHOD or frame.channel != 0:
        return False
    index = int.from_bytes(frame.payload[:4], "big")
    return index in (commands.Connection.CloseOk.index, commands.Connection.Close.index)
