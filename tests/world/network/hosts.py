"""A small simulated world for tests of the network: hosts, programs on them, and what they saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork
from tests.world.clock.turns import turns

PORT = 5000
HOSTS = ("a", "b", "c")
SEED = 11


class World:
    """Its main program runs on a host that no test breaks."""

    def __init__(self, knobs: NetworkKnobs | None = None, *, seed: int = SEED) -> None:
        self.loop = SimLoop()
        self.network = SimNetwork(self.loop, seed, knobs)
        self.loop.network = self.network
        self._lives = 0
        for host in ("harness", *HOSTS):
            self.network.add_host(host)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(main, SimProcess("harness"))

    @property
    def now_ms(self) -> float:
        """Since the beginning."""
        return (self.loop.now_ns - START_NS) / 1e6

    def spawn(
        self, host: str, main: Coroutine[Any, Any, Any]
    ) -> tuple[SimProcess, asyncio.Task[Any]]:
        """A program of its own on a host."""
        self._lives += 1
        process = SimProcess(host, self._lives)
        self.loop.add_process(process)
        return process, self.loop.create_task(main, name=host, context=process.context)

    def kill(self, process: SimProcess) -> None:
        process.freeze()
        self.network.process_died(process, reset=True)

    def power_off(self, process: SimProcess) -> None:
        process.freeze()
        self.network.host_down(process.name)
        self.network.process_died(process, reset=False)

    async def join(self, host: str = "a", to: str = "b") -> Joined:
        """A connection between programs of their own."""
        joined = Joined(self, host, to)
        await joined.made.wait()
        return joined


class End(asyncio.Protocol):
    """One end of a connection: what it was told, and when."""

    def __init__(self, world: World, made: Callable[[], None]) -> None:
        self._world = world
        self._made = made
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.received = bytearray()
        self.arrivals: list[tuple[float, int]] = []  # (ms, bytes)
        self.paused = False
        self.ended = False
        self.error: Exception | None = None
        self.lost = asyncio.Event()
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._made()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrivals.append((self._world.now_ms, len(data)))
        self.changed.set()

    def eof_received(self) -> bool:
        self.ended = True
        return True

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost.set()
        self.changed.set()

    async def has(self, count: int) -> None:
        """Wait until so many bytes have arrived in all."""
        while len(self.received) < count and not self.lost.is_set():
            self.changed.clear()
            await self.changed.wait()


class Joined:
    """``near`` dialled ``far``."""

    def __init__(self, world: World, host: str, to: str) -> None:
        self.world = world
        self.made = asyncio.Event()
        self._missing = 2
        self.near, self.far = End(world, self._one_made), End(world, self._one_made)
        self.server, _ = world.spawn(to, self._serve())
        self.client, _ = world.spawn(host, self._dial(to))

    async def _serve(self) -> None:
        await asyncio.get_running_loop().create_server(lambda: self.far, None, PORT)

    async def _dial(self, to: str) -> None:
        await turns()
        await asyncio.get_running_loop().create_connection(lambda: self.near, to, PORT)

    def _one_made(self) -> None:
        self._missing -= 1
        if not self._missing:
            self.made.set()

    def write(self, data: bytes) -> None:
        """From near to far."""
        self.near.transport.write(data)

    def answer(self, data: bytes) -> None:
        """From far to near."""
        self.far.transport.write(data)
