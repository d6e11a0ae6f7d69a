"""Link: one connection to a peer node, frames in and frames out.

A protocol of the event loop rather than a stream with a task that reads it: nodes exchange many
small frames, and each would wake the task twice. What a frame means is the mesh's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from shalott.broker.rabbit.processes.messages import Address, Name, Pid

HEADER_BYTES = 4


class LinkError(Exception):
    """The peer said something it should not, or is not who it should be."""


class Link(asyncio.Protocol):
    """``on_hello`` gets the first frame and may raise LinkError; ``on_frame`` the peer's name and
    all others while the link is ``up``; ``on_end`` the reason, once, when the connection is gone.

    ``greeted`` is done when the first frame was taken or the connection ended before.
    """

    def __init__(
        self,
        on_hello: Callable[[Link, Frame], None],
        on_frame: Callable[[str, Frame], None],
        on_end: Callable[[Link, str], None],
    ) -> None:
        self.peer = ""
        self.up = False
        self.received_at = 0.0
        self.is_quiet = True  # nothing was sent since the last net tick
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_hello = on_hello
        self._on_frame = on_frame
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._ended = False

    def send(self, frame: Frame) -> None:
        """Never blocks, and never fails: what can't be sent is lost with the link."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self.is_quiet = False
            transport.write(encode_frame(frame))

    def abort(self) -> None:
        """End the connection without a word."""
        if self._transport is not None:
            self._transport.abort()
        self._settle()

    # -- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.received_at = self._loop.time()

    def data_received(self, data: bytes) -> None:
        self.received_at = self._loop.time()
        if self._ended:
            return
        try:
            self._take(self._buffer + data if self._buffer else data)
        except (LinkError, msgspec.DecodeError) as error:
            self._end(str(error) if isinstance(error, LinkError) else f"nonsense: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._end("connection closed" if error is None else repr(error))

    # -- inside ------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        """Whole frames out of ``data``; the rest waits for more."""
        at, size = 0, len(data)
        while size - at >= HEADER_BYTES:
            start = at + HEADER_BYTES
            end = start + int.from_bytes(data[at:start], "big")
            if end - start > MAX_FRAME_BYTES:
                raise LinkError(f"a frame of {end - start} bytes")
            if end > size:
                break
            frame = decode_frame(data[start:end])
            at = end
            if self.up:
                self._on_frame(self.peer, frame)
            elif not self.greeted.done():
                self._on_hello(self, frame)
                self._settle()
        self._buffer = data[at:]

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        self.abort()
        self._on_end(self, reason)

    def _settle(self) -> None:
        if not self.greeted.done():
            self.greeted.set_result(None)


# -- frames ----------------------------------------------------------------------------------------

# What travels between two linked nodes: length-prefixed MessagePack frames.

MAX_FRAME_BYTES = 1 << 30


class Hello(msgspec.Struct, frozen=True, tag="hello", array_like=True):
    """First frame in each direction. A wrong cookie or name closes the connection."""

    node: str
    to: str
    incarnation: int
    cookie: str


class Tick(msgspec.Struct, frozen=True, tag="tick", array_like=True):
    """Sent when nothing else was: proof of life."""


class SendFrame(msgspec.Struct, frozen=True, tag="send", array_like=True):
    pid: Pid | None
    name: str
    payload: bytes


class CallFrame(msgspec.Struct, frozen=True, tag="call", array_like=True):
    pid: Pid | None
    name: str
    ref: int
    caller: Pid | None
    payload: bytes


class ReplyFrame(msgspec.Struct, frozen=True, tag="reply", array_like=True):
    ref: int
    payload: bytes


class MonitorFrame(msgspec.Struct, frozen=True, tag="monitor", array_like=True):
    target: Pid
    ref: int


class DemonitorFrame(msgspec.Struct, frozen=True, tag="demonitor", array_like=True):
    target: Pid
    ref: int


class DownFrame(msgspec.Struct, frozen=True, tag="down", array_like=True):
    ref: int
    reason: str


Frame = (
    Hello | Tick | SendFrame | CallFrame | ReplyFrame | MonitorFrame | DemonitorFrame | DownFrame
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def address_of(to: Address) -> tuple[Pid | None, str]:
    return (None, to.name) if isinstance(to, Name) else (to, "")


def encode_frame(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    return len(body).to_bytes(4, "big") + body


# Raises msgspec.DecodeError. The method itself: a function around it would cost as much.
decode_frame: Callable[[bytes], Frame] = _decoder.decode
