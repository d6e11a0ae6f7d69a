"""A broker's port over the real store and the real wire, in virtual time.

The replica is one of the tests' own, so that every outcome of a put can be had; by default it
stores and waits for no slave.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Stored, decode
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus, ReplicaRole
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import BrokerConfig, StoreConfig, parse_address
from shalott.broker.rocket.processor.acked import AckedEvents
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.handlers import broker_handlers, closed
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.processor.topics import system_topics
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.broker.rocket.remoting.server import RemotingServer
from tests.world.clock.virtual import HOST, run
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import Event, Events, LoopClock

T = TypeVar("T")
STORE = StoreConfig(segment_bytes=1 << 20, queue_segment_units=1000)
TIMEOUT_MS = 60_000


@dataclass
class TestReplica:
    """Implements Replica. ``outcome``: what a put ends with; ``stores``: whether it appends."""

    __test__ = False

    store: MessageStore
    role: ReplicaRole = "master"
    broker_id: int = 0
    epoch: int = 1
    outcome: PutStatus = PutStatus.PUT_OK
    stores: bool = True
    may_read: bool = True
    master: str = "n1"
    on_change: Callable[[], None] = field(default=lambda: None)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def put(self, messages: list[Message]) -> PutResult:
        if not self.stores:
            return PutResult(self.outcome, None)
        stage = self.store.append(messages)
        await self.store.log.written(stage.end)
        return PutResult(self.outcome, stage)

    async def readable(self) -> bool:
        return self.may_read

    def claim(self) -> dict[str, Any]:
        return {"master": self.master, "role": self.role}

    def ha_status(self) -> dict[str, Any]:
        return {"master": self.role == "master"}


@dataclass
class World:
    """One broker and a client of its."""

    env: Env
    disk: MemoryDisk
    broker: Broker
    replica: TestReplica
    server: RemotingServer
    client: RemotingClient
    events: list[Event]
    pushed: list[Command] = field(default_factory=list)
    topics_told: list[None] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.port}"

    async def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        fields = {key: str(value) for key, value in (ext or {}).items()}
        command = Command(code=code, ext=fields, body=body)
        return await self.client.invoke(self.address, command, TIMEOUT_MS)

    async def send(
        self, body: bytes = b"m", topic: str = "t", queue: int = 0, **more: Any
    ) -> Command:
        ext = {
            "producerGroup": "p",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue,
            "sysFlag": 0,
            "bornTimestamp": 1,
            "flag": 0,
        }
        return await self.ask(RequestCode.SEND_MESSAGE, ext | more, body)

    async def pull(self, offset: int = 0, topic: str = "t", queue: int = 0, **more: Any) -> Command:
        ext = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "subscription": "*",
        }
        return await self.ask(RequestCode.PULL_MESSAGE, ext | more)

    async def settle(self) -> None:
        """Until all that is stored can be read."""
        await self.broker.store.dispatched(self.broker.store.log.written_offset)

    async def bodies(self, topic: str = "t", queue: int = 0) -> list[bytes]:
        await self.settle()
        answer = await self.pull(0, topic, queue)
        return [one.message.body for one in messages_of(answer.body)]

    def new_client(self) -> RemotingClient:
        """Another one; what it is pushed is in ``pushed``."""
        return RemotingClient(parse_address, on_push=lambda _, command: self.pushed.append(command))


def messages_of(body: bytes) -> list[Stored]:
    """The messages of a pull's answer."""
    found = []
    while body:
        size = int.from_bytes(body[:4], "big")
        found.append(decode(body[:size], int.from_bytes(body[28:36], "big")))
        body = body[size:]
    return found


@asynccontextmanager
async def world(
    *bugs: str, config: BrokerConfig | None = None, disk: MemoryDisk | None = None
) -> AsyncIterator[World]:
    disk = disk or MemoryDisk()
    events: list[Event] = []
    env = Env("n1", 1, LoopClock(), seeded_rng(1, 1), disk, Events("n1", events), bugs=bugs)
    store = await MessageStore.open(env, STORE)
    replica = TestReplica(store)
    settings = config or BrokerConfig()
    tables = await Tables.open(env, own=system_topics(settings), epoch=lambda: replica.epoch)
    told: list[None] = []
    broker = Broker(
        env=env,
        config=settings,
        address="10.0.0.1:10911",
        replica=replica,
        tables=tables,
        acked=AckedEvents(env, settings.broker_name),
        topics_changed=lambda: told.append(None),
    )
    server = RemotingServer(
        broker_handlers(broker),
        host=HOST,
        port=0,
        on_close=lambda caller: closed(broker, caller),
    )
    await server.start()
    client = RemotingClient(parse_address)
    made = World(env, disk, broker, replica, server, client, events, topics_told=told)
    try:
        yield made
    finally:
        await client.close()
        await server.stop()
        await broker.pushes.wait()
        broker.acked.stop()
        await store.close()


def in_world(
    test: Callable[[World], Coroutine[Any, Any, T]],
    *bugs: str,
    config: BrokerConfig | None = None,
) -> T:
    """Run a test's body with a world of its own."""

    async def body() -> T:
        async with world(*bugs, config=config) as made:
            return await test(made)

    return run(body())
