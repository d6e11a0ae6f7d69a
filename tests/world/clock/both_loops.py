"""Runs one program on asyncio's own loop, over real loopback TCP, and on the simulation's, and asks
that both let it see the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork

T = TypeVar("T")
HOST = "127.0.0.1"
PATIENCE_S = 120  # of real time, on a busy machine
SETTLE_TURNS = 25
SEED = 7

Program = Callable[[], Coroutine[Any, Any, T]]


def agree(program: Program[T]) -> T:
    """What the program returned, on both loops; on the simulation's also the same digest twice."""
    stock = asyncio.run(_patiently(program))
    simulated, digest = _simulated(program)
    again, second_digest = _simulated(program)
    assert simulated == stock, f"simulated: {simulated!r}, stock: {stock!r}"
    assert (again, second_digest) == (simulated, digest)
    return stock


async def _patiently(program: Program[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await program()


def _simulated(program: Program[T]) -> tuple[T, str]:
    loop = SimLoop()
    loop.network = SimNetwork(loop, SEED, NetworkKnobs(jitter_us=50))
    loop.network.add_host("machine")
    value = loop.run(_patiently(program), SimProcess("machine"))
    return value, loop.trace.digest()


async def serve(
    client_connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    limit: int = 65_536,
) -> tuple[asyncio.Server, int]:
    """A server and its port."""
    server = await asyncio.start_server(client_connected, HOST, 0, limit=limit)
    return server, int(server.sockets[0].getsockname()[1])


async def settle(delay_s: float = 0.05) -> None:
    """Let what was sent arrive: longer than both loops need.

    In many short sleeps, each a turn of the loop: on a busy machine a single one may be over in the
    first turn after the process was held up, when an answer to an answer is still to come.
    """
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(delay_s / SETTLE_TURNS)


async def end(writer: asyncio.StreamWriter) -> None:
    """Close; an error here is no test's."""
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


class Recorder(asyncio.Protocol):
    """A protocol that writes down what it is told."""

    def __init__(self, *, keep_open: bool = False) -> None:
        self.log: list[Any] = []
        self.received = bytearray()
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.keep_open = keep_open
        self.made = asyncio.Event()
        self.eof = asyncio.Event()
        self.lost = asyncio.Event()

    @property
    def told(self) -> list[Any]:
        """So far."""
        return list(self.log)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.log.append("made")
        self.made.set()

    def data_received(self, data: bytes) -> None:
        if self.log[-1] != "data":  # how bytes are cut into pieces is the network's affair
            self.log.append("data")
        self.received += data

    def eof_received(self) -> bool:
        self.log.append("eof")
        self.eof.set()
        return self.keep_open

    def pause_writing(self) -> None:
        self.log.append("pause")

    def resume_writing(self) -> None:
        self.log.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.log.append(("lost", None if exc is None else type(exc).__name__))
        self.lost.set()


class Pair:
    """Two connected recorders. ``server`` made ``far``, the accepted end."""

    def __init__(self, *, keep_open: bool = False) -> None:
        self.near = Recorder(keep_open=keep_open)
        self.far = Recorder(keep_open=keep_open)
        self.server: asyncio.Server = None  # type: ignore[assignment]

    async def __aenter__(self) -> Pair:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: self.far, HOST, 0)
        port = self.server.sockets[0].getsockname()[1]
        await loop.create_connection(lambda: self.near, HOST, port)
        await self.far.made.wait()
        return self

    async def __aexit__(self, *details: object) -> None:
        for one in (self.near, self.far):
            if not one.lost.is_set():
                one.transport.abort()
            await one.lost.wait()
        self.server.close()
        await self.server.wait_closed()
