"""Fuzzes what a node of ``mirrored`` reads of strangers, with Atheris: ``scripts/fuzz 60 broker``.

The first byte says what the rest is: frames of AMQP, a method, content properties, a table, a
request of the management API, or what nodes send each other. Refusals are exceptions that the node
expects there; any other one is a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from urllib.parse import unquote

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["shalott", "pamqp"]):
    import msgspec

    from shalott.broker.base.errors import BrokerError
    from shalott.broker.base.http_api import Request
    from shalott.broker.rabbit.amqp.properties import read_properties, without_bcc
    from shalott.broker.rabbit.amqp.tables import read_table
    from shalott.broker.rabbit.amqp.wire import Assembler, FrameReader, decode_method
    from shalott.broker.rabbit.management.api import respond
    from shalott.broker.rabbit.management.messages import view_properties
    from shalott.broker.rabbit.node.node import MESSAGES
    from shalott.broker.rabbit.processes.link import decode_frame
    from shalott.broker.rabbit.processes.messages import Codec
    from tests.world.rabbit.asking import GUEST
    from tests.world.rabbit.management_node import FakeNode

CODEC = Codec(MESSAGES)
METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")


async def frames(data: bytes) -> None:
    """As a connection reads them, into content."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    source, assembler = FrameReader(reader, 131072), Assembler()
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            command = assembler.feed(await source.next())
            if command is not None and command.properties:
                read_properties(command.properties)


def properties(data: bytes) -> None:
    if read_properties(data).has_bcc:
        read_properties(without_bcc(data))
    view_properties(data)


async def requests(data: bytes) -> None:
    """A line with method, path and query, and the body; one after the other at one node."""
    node = FakeNode()
    try:
        for part in data.split(b"\0"):
            line, _, body = part.partition(b"\n")
            method, _, target = line.decode("latin-1").partition(" ")
            path, _, query = target.partition("?")
            pairs = (each.partition("=") for each in query.split("&"))
            request = Request(
                method if method in METHODS else "GET",
                tuple(unquote(part) for part in path.strip("/").split("/")),
                {name: value for name, _, value in pairs if name},
                {"authorization": GUEST},
                body,
            )
            answer = await respond(node, request)
            assert answer.status != 500, (request, answer)
    finally:
        await node.stop()


def nodes(data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError):
        decode_frame(data)
    CODEC.decode(data)


def one(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    with contextlib.suppress(BrokerError, msgspec.DecodeError):
        match kind:
            case b"f":
                asyncio.run(frames(rest))
            case b"m":
                decode_method(rest)
            case b"p":
                properties(rest)
            case b"t":
                with contextlib.suppress(ValueError):
                    read_table(rest)
            case b"r":
                asyncio.run(requests(rest))
            case b"n":
                nodes(rest)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
