"""Frames on the wire: read with every limit checked, written within the client's frame_max.

pamqp knows the methods, their fields and the field encodings; this module adds what a server that
trusts no client needs: sizes are checked before anything is read into memory, a field may not run
past its frame, and names may hold any UTF-8 (pamqp refuses to build methods with names that the
specification frowns upon but that brokers accept).
"""

from __future__ import annotations

import asyncio
import decimal
import struct
from collections.abc import Callable, Iterator, Mapping

import msgspec
from pamqp import base, commands, decode, encode

from shalott.broker.base.listener import Ear
from shalott.broker.rabbit.amqp.errors import (
    COMMAND_INVALID,
    FRAME_ERROR,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
    AmqpError,
)
from shalott.broker.rabbit.amqp.tables import read_table

METHOD = 1
HEADER = 2
BODY = 3
HEARTBEAT = 8
FRAME_END = 0xCE
FRAME_OVERHEAD = 8  # type, channel, size, end
FRAME_MIN_SIZE = 4096  # the smallest frame_max that the specification allows

READ_BYTES = 256 << 10  # at once, at most

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"
BASIC_CLASS = 60

_HEAD = struct.Struct(">BHI")
_HEADER_FIXED = struct.Struct(">HHQ")

Method = base.Frame

# Of each method its fields, in order, and their types. Asked of pamqp once.
_FIELDS: Mapping[type[Method], tuple[tuple[str, str], ...]] = {
    kind: tuple((field, kind.amqp_type(field)) for field in kind.attributes())  # type: ignore[attr-defined]
    for kind in commands.INDEX_MAPPING.values()
}

# What the field decoders raise on bytes that are not what they should be.
_MALFORMED = (
    ValueError,
    struct.error,
    OverflowError,
    OSError,
    RecursionError,
    TypeError,
    decimal.DecimalException,
)


class Frame(msgspec.Struct, frozen=True):
    """One frame, its payload not yet decoded."""

    kind: int
    channel: int
    payload: bytes


class ContentHeader(msgspec.Struct, frozen=True):
    """A content header: how much body follows, and the property list as it came."""

    class_id: int
    body_size: int
    properties: bytes


class FrameReader:
    """The frames of a stream, which is read in pieces as large as there are: most frames are small,
    and each wait costs more than a frame. ``woken``: a task that waited here is about to go on, or
    (-1) has begun to.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        frame_max: int,
        woken: Callable[[int], None] = lambda change: None,
    ) -> None:
        self.frame_max = frame_max
        self._woken = woken
        self._waits = False
        if isinstance(reader, Ear):
            reader.hears = self._hear
        self._reader = reader
        self._data = b""
        self._at = 0  # in the data: where the next frame begins

    async def next(self) -> Frame:
        """Raises AmqpError(501) on what is none, IncompleteReadError at the end."""
        start = self._at + _HEAD.size
        while len(self._data) < start:
            more = await self._read()
            if not more:
                raise asyncio.IncompleteReadError(self._data[self._at :], _HEAD.size)
            self._data = self._data[self._at :] + more
            self._at, start = 0, _HEAD.size
        kind, channel, size = _HEAD.unpack_from(self._data, self._at)
        self._check(kind, channel, size)
        end = start + size
        if end < len(self._data):
            payload, last = self._data[start:end], self._data[end]
            self._at = end + 1
        else:
            payload = self._data[start:]
            rest = await self._reader.readexactly(end + 1 - len(self._data))
            payload, last = payload + rest[:-1], rest[-1]
            self._data, self._at = b"", 0
        if last != FRAME_END:
            raise AmqpError(FRAME_ERROR, f"a frame of type {kind} ends in {last:#04x}, not 0xce")
        return Frame(kind, channel, payload)

    async def _read(self) -> bytes:
        self._waits = True
        try:
            return await self._reader.read(READ_BYTES)
        finally:
            if not self._waits:
                self._woken(-1)
            self._waits = False

    def _hear(self) -> None:
        if self._waits:
            self._waits = False
            self._woken(1)

    def _check(self, kind: int, channel: int, size: int) -> None:
        if kind not in (METHOD, HEADER, BODY, HEARTBEAT):
            raise AmqpError(FRAME_ERROR, f"unknown frame type {kind}")
        if size > self.frame_max:  # some clients don't count the overhead, and RabbitMQ lets them
            text = f"a frame of type {kind} has {size} bytes, more than frame_max {self.frame_max}"
            raise AmqpError(FRAME_ERROR, text)
        if kind == HEARTBEAT and (channel or size):
            raise AmqpError(FRAME_ERROR, "a heartbeat has no channel and no payload")


def decode_method(payload: bytes) -> Method:
    """A method frame's payload. Raises AmqpError: 501 too short, 503 unknown, 502 malformed."""
    if len(payload) < 4:
        raise AmqpError(FRAME_ERROR, "a method frame is too short to name its method")
    index = int.from_bytes(payload[:4], "big")
    kind = commands.INDEX_MAPPING.get(index)
    class_id, method_id = index >> 16, index & 0xFFFF
    if kind is None:
        raise AmqpError(
            COMMAND_INVALID,
            f"there is no method {class_id}.{method_id}",
            class_id=class_id,
            method_id=method_id,
        )
    method: Method = object.__new__(kind)  # without the checks of names; every field is set below
    try:
        _decode_fields(method, payload[4:])
    except _MALFORMED as error:
        raise AmqpError(
            SYNTAX_ERROR,
            f"the fields of {method.name} can't be decoded: {error}",
            class_id=class_id,
            method_id=method_id,
        ) from error
    return method


def _decode_fields(method: Method, data: bytes) -> None:
    bit_offset = -1  # -1: not within a run of bits
    value: object
    for field, kind in _FIELDS[type(method)]:
        if kind == "bit":
            if bit_offset == 8:
                data, bit_offset = data[1:], -1
            bit_offset = max(bit_offset, 0)
            setattr(method, field, decode.bit(data, bit_offset)[1])
            bit_offset += 1
            continue
        if bit_offset >= 0:
            data, bit_offset = data[1:], -1
        if kind == "table":
            used = 4 + int.from_bytes(data[:4], "big")
            value = read_table(data[:used])
        else:
            used, value = decode.by_type(data, kind)
        if used > len(data):
            raise ValueError(f"{field} runs past the end of the frame")
        setattr(method, field, value)
        data = data[used:]


def decode_header(payload: bytes) -> ContentHeader:
    """A content header frame's payload. The property list is checked by
    broker.rabbit.amqp.properties.
    """
    if len(payload) < _HEADER_FIXED.size + 2:
        raise AmqpError(FRAME_ERROR, "a content header is too short")
    class_id, _weight, body_size = _HEADER_FIXED.unpack_from(payload)
    return ContentHeader(class_id, body_size, payload[_HEADER_FIXED.size :])


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _HEAD.pack(kind, channel, len(payload)) + payload + b"\xce"


def encode_method(method: Method) -> bytes:
    """A method frame's payload, for methods without names of queues or exchanges in them."""
    return int(method.index).to_bytes(4, "big") + bytes(method.marshal())


def encode_declare_ok(queue: str, messages: int, consumers: int) -> bytes:
    head = commands.Queue.DeclareOk.index.to_bytes(4, "big")
    return head + encode.short_string(queue) + struct.pack(">II", messages, consumers)


def encode_return(code: int, text: str, exchange: str, routing_key: str) -> bytes:
    head = commands.Basic.Return.index.to_bytes(4, "big") + code.to_bytes(2, "big")
    names = encode.short_string(exchange) + encode.short_string(routing_key)
    return head + bytes(encode.short_string(text)) + names


def encode_deliver(
    consumer_tag: str, delivery_tag: int, redelivered: bool, exchange: str, routing_key: str
) -> bytes:
    head = commands.Basic.Deliver.index.to_bytes(4, "big") + encode.short_string(consumer_tag)
    names = encode.short_string(exchange) + encode.short_string(routing_key)
    return head + struct.pack(">QB", delivery_tag, redelivered) + bytes(names)


def encode_get_ok(
    delivery_tag: int, redelivered: bool, exchange: str, routing_key: str, remaining: int
) -> bytes:
    head = commands.Basic.GetOk.index.to_bytes(4, "big")
    names = encode.short_string(exchange) + encode.short_string(routing_key)
    fixed = struct.pack(">QB", delivery_tag, redelivered)
    return head + fixed + bytes(names) + struct.pack(">I", remaining)


def content_frames(channel: int, properties: bytes, body: bytes, frame_max: int) -> Iterator[bytes]:
    """The header frame and as many body frames as ``frame_max`` asks for."""
    header = _HEADER_FIXED.pack(BASIC_CLASS, 0, len(body)) + properties
    yield encode_frame(HEADER, channel, header)
    step = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), step):
        yield encode_frame(BODY, channel, body[start : start + step])


# -- assembler -------------------------------------------------------------------------------------

# Assembler: puts the frames of one channel back together into commands. Pure.
#
# A command is a method, and for basic.publish a content header and body frames after it. Anything
# out of that order is 505 UNEXPECTED_FRAME, which the specification makes the connection's end.

MAX_MESSAGE_BYTES = 128 * 1024 * 1024


class Command(msgspec.Struct, frozen=True):
    """A method with its content, if any. ``oversized``: the body was read and discarded."""

    method: Method
    properties: bytes = b""
    body: bytes = b""
    oversized: AmqpError | None = None


class Assembler:
    """One channel's side of the conversation, between frames and commands."""

    def __init__(self) -> None:
        self._method: Method | None = None  # waits for its content
        self._properties: bytes | None = None
        self._missing = 0  # body bytes still to come
        self._parts: list[bytes] = []
        self._oversized: AmqpError | None = None

    def feed(self, frame: Frame) -> Command | None:
        """The command that ``frame`` completes, if it does. Raises AmqpError."""
        if frame.kind == METHOD:
            return self._on_method(frame)
        if frame.kind == HEADER:
            return self._on_header(frame)
        assert frame.kind == BODY
        return self._on_body(frame)

    def _on_method(self, frame: Frame) -> Command | None:
        if self._method is not None:
            raise self._unexpected("a content frame", "a method")
        method = decode_method(frame.payload)
        if isinstance(method, commands.Basic.Publish):
            self._method = method
            return None
        return Command(method)

    def _on_header(self, frame: Frame) -> Command | None:
        if self._method is None or self._properties is not None:
            raise self._unexpected("a method or a body", "a content header")
        header = decode_header(frame.payload)
        if header.class_id != BASIC_CLASS:
            raise self._unexpected(f"a header of class {BASIC_CLASS}", f"class {header.class_id}")
        if header.body_size > MAX_MESSAGE_BYTES:
            size = f"{header.body_size} is larger than configured max size {MAX_MESSAGE_BYTES}"
            self._oversized = AmqpError(PRECONDITION_FAILED, f"message size {size}")
        self._properties, self._missing = header.properties, header.body_size
        return self._completed()

    def _on_body(self, frame: Frame) -> Command | None:
        if self._method is None or self._properties is None:
            raise self._unexpected("a method", "a body")
        if len(frame.payload) > self._missing:
            excess = len(frame.payload) - self._missing
            raise AmqpError(FRAME_ERROR, f"a body is {excess} bytes longer than announced")
        self._missing -= len(frame.payload)
        if self._oversized is None:
            self._parts.append(frame.payload)
        return self._completed()

    def _completed(self) -> Command | None:
        if self._missing:
            return None
        assert self._method is not None and self._properties is not None
        body = b"".join(self._parts)
        command = Command(self._method, self._properties, body, self._oversized)
        self._method = self._properties = self._oversized = None
        self._parts = []
        return command

    def _unexpected(self, wanted: str, got: str) -> AmqpError:
        return AmqpError(UNEXPECTED_FRAME, f"expected {wanted}, got {got}")
