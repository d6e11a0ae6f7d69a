"""Assembler: puts the frames of one channel back together into commands. Pure.

A command is a method, and for basic.publish a content header and body frames after it. Anything out
of that order is 505 UNEXPECTED_FRAME, which the specification makes the connection's end.
"""

from __future__ import annotations

import msgspec
from pamqp import commands

from shalott.broker.rabbit.amqp.errors import (
    CONTENT_TOO_LARGE,
    FRAME_ERROR,
    UNEXPECTED_FRAME,
    AmqpError,
)
from shalott.broker.rabbit.amqp.wire import (
    BASIC_CLASS,
    BODY,
    HEADER,
    METHOD,
    Frame,
    Method,
    decode_header,
    decode_method,
)

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
            text = f"a message of {header.body_size} bytes is larger than {MAX_MESSAGE_BYTES}"
            self._oversized = AmqpError(CONTENT_TOO_LARGE, text)
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
