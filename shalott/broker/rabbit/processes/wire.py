"""What travels between two linked nodes: length-prefixed MessagePack frames."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shalott.broker.rabbit.processes.messages import Address, Name, Pid

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
