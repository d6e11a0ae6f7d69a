"""A node's management port that answers every request alike, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import msgspec

Asked = list[tuple[str, str, bytes]]


class FakeNode:
    """Answers every request alike, and remembers what it was asked."""

    def __init__(self, status: int, body: object) -> None:
        self.asked: Asked = []
        self.port = 0
        self._status, self._body = status, msgspec.json.encode(body)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        method, path, _ = head.split(" ", 2)
        self.asked.append((method, path, await reader.readexactly(length)))
        writer.write(
            f"HTTP/1.1 {self._status} x\r\nContent-Length: {len(self._body)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + self._body
        )
        await writer.drain()
        writer.close()


@contextmanager
def listening(*nodes: FakeNode) -> Iterator[None]:
    """The nodes answer in a thread of their own, as the command has an event loop of its own."""
    ready, over = Event(), Event()

    async def run() -> None:
        servers = [await asyncio.start_server(node.serve, "127.0.0.1", 0) for node in nodes]
        for node, server in zip(nodes, servers, strict=True):
            node.port = server.sockets[0].getsockname()[1]
        ready.set()
        await asyncio.to_thread(over.wait)
        for server in servers:
            server.close()
            await server.wait_closed()

    thread = Thread(target=lambda: asyncio.run(run()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()
