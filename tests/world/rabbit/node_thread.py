"""NodeThread: a real Listener over the doubles, on loopback, in a thread with an event loop of its
own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.rabbit.amqp import queue_protocol as protocol
from shalott.broker.rabbit.amqp.exchanges import predeclared_exchanges
from shalott.broker.rabbit.amqp.listener import Listener
from shalott.broker.rabbit.amqp.services import Services
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.records import exchange_key
from shalott.broker.rabbit.processes import messages as process_messages
from shalott.broker.rabbit.processes.messages import Codec
from shalott.broker.rabbit.processes.runtime import Runtime
from tests.world.clock.turns import until
from tests.world.env import NoEvents, UnwantedDisk
from tests.world.rabbit.doubles import MemoryMetadata, MemoryQueue, MemoryQueues, MirrorDouble

T = TypeVar("T")


@dataclass
class World:
    """The inside of a test node; touch it only from the node's own loop (``TestNode.run``)."""

    runtime: Runtime
    metadata: MemoryMetadata
    queues: MemoryQueues
    services: Services
    listener: Listener
    guard: list[bool] = field(default_factory=lambda: [True])

    def queue(self, name: str) -> MemoryQueue:
        row = self.queues.lookup("/", name)
        assert row is not None and row.pid is not None
        process = self.runtime.process(row.pid)
        assert isinstance(process, MemoryQueue)
        return process

    def mirrors(self, name: str) -> list[MirrorDouble]:
        row = self.queues.lookup("/", name)
        assert row is not None
        processes = [self.runtime.process(pid) for pid in row.slave_pids]
        return [process for process in processes if isinstance(process, MirrorDouble)]

    async def fail_over(self, name: str) -> None:
        """Kill the master; a new process takes its messages over, as a promoted mirror would."""
        row = self.queues.lookup("/", name)
        assert row is not None and row.pid is not None
        old = self.queue(name)
        await self.runtime.kill(row.pid)
        self.promote(name, old)

    def promote(self, name: str, old: MemoryQueue) -> None:
        row = self.queues.lookup("/", name)
        assert row is not None
        successor = MemoryQueue(row, self.queues.remove)
        unsettled = [given.stored for given in old.given.values()]
        for stored in unsettled:
            stored.redelivered = True
        messages = sorted((*old.ready, *unsettled), key=lambda stored: stored.position)
        successor.ready.extend(messages)
        successor._position = max((stored.position for stored in messages), default=0)
        pid = self.runtime.spawn(successor)
        self.queues.store(msgspec.structs.replace(row, pid=pid, slave_pids=row.slave_pids[1:]))


def build_world(*, host: str = "127.0.0.1", port: int = 0, **config: Any) -> World:
    """Must be called with a running loop."""
    codec = Codec((*process_messages.MESSAGES, *protocol.MESSAGES))
    runtime = Runtime("n1", 1, codec)
    metadata = MemoryMetadata()
    for row in predeclared_exchanges("/"):
        metadata.put("exchange", exchange_key("/", row.name), row)
    queues = MemoryQueues(runtime, metadata)
    guard = [True]
    services = Services(
        env=Env("n1", 1, SystemClock(), seeded_rng(1, 1), UnwantedDisk(), NoEvents()),
        runtime=runtime,
        config=NodeConfig(name="n1", data_dir="unused", **config),
        metadata=metadata,
        queues=queues,
        may_confirm=lambda: guard[0],
    )
    listener = Listener(services, host=host, port=port)
    return World(runtime, metadata, queues, services, listener, guard)


class NodeThread:
    """A node on 127.0.0.1 in its own thread and event loop, for clients that block."""

    def __init__(self, *, host: str = "127.0.0.1", **config: Any) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.world: World
        self.host = host

    @property
    def port(self) -> int:
        return self.world.listener.port

    def __enter__(self) -> NodeThread:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *exc: object) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine inside the node and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine inside the node; ``result`` waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, action: Callable[[World], T]) -> T:
        """Run a plain function inside the node."""

        async def work() -> T:
            return action(self.world)

        return self.run(work())

    def until(self, condition: Callable[[World], bool], *, timeout_s: float = 10) -> None:
        """Wait until ``condition`` holds inside the node."""
        self.run(until(lambda: condition(self.world), step_s=0.005, within_s=timeout_s))

    async def _start(self) -> None:
        self.world = build_world(host=self.host, **self._config)
        await self.world.listener.start()

    async def _stop(self) -> None:
        await self.world.listener.stop()
        runtime = self.world.runtime
        for pid in list(runtime.processes):
            await runtime.kill(pid)
