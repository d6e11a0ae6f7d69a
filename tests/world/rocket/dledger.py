"""Brokers of one DLedger group in a simulated world: real Raft, wire, stores, network and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shalott.broker.base.env import Env
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.replica import PutResult
from shalott.broker.rocket.config import (
    AddressBook,
    RaftConfig,
    RocketConfig,
    RocketPeer,
    StoreConfig,
)
from shalott.broker.rocket.dledger.replica import DLedgerReplica
from tests.world.clock.turns import until
from tests.world.env import Event
from tests.world.network.hosts import World
from tests.world.rocket.machine import Machine, isolate, whole_queue

PORT = 40911
SEGMENT_BYTES = 8192
NAMES = ("a", "b", "c")
TOPIC, QUEUE = "t", 0
SAFE = RaftConfig(heartbeat_interval_ms=500, flush_interval_ms=0, read_index=True)


class Broker(Machine):
    """A broker of the group."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(
            group.world,
            name,
            seed=group.seed,
            events=group.events,
            rng_seed=group.seed * 100 + NAMES.index(name),
            bugs=group.bugs,
        )
        self.group = group
        self.replica: DLedgerReplica | None = None

    async def run(self, env: Env) -> None:
        config = self.group.config_of(self.name)
        replica = await DLedgerReplica.open(env, config, AddressBook(config), fail=self.failed)
        await replica.start()
        self.replica = replica

    def gone(self) -> None:
        self.replica = None

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    @property
    def role(self) -> str:
        return "down" if self.replica is None else self.replica.role

    async def stop(self) -> None:
        """An orderly end."""
        replica = self.up
        await self.here(replica.stop())
        await self.here(replica.close())
        self.kill()

    @property
    def up(self) -> DLedgerReplica:
        assert self.replica is not None
        return self.replica

    async def put(self, *bodies: bytes) -> PutResult:
        messages = [Message(topic=TOPIC, queue_id=QUEUE, body=body) for body in bodies]
        result: PutResult = await self.here(self.up.put(messages))
        return result

    async def queue(self) -> list[bytes]:
        """All messages of the queue, as they are stored, in its order."""
        return list(await self.here(whole_queue(self.up.store, TOPIC, QUEUE)))


class Group:
    def __init__(
        self, raft: RaftConfig = SAFE, *, bugs: tuple[str, ...] = (), seed: int = 1
    ) -> None:
        self.seed = seed
        self.world = World(seed=seed)
        self.bugs = bugs
        self.events: list[Event] = []
        self._raft = raft
        self.brokers = {name: Broker(self, name) for name in NAMES}

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    def config_of(self, name: str) -> RocketConfig:
        address = {each: {"raft": f"{each}:{PORT}"} for each in NAMES}
        peers = tuple(
            RocketPeer(
                name=peer, services=("broker",), advertised=address[peer], dial=address[peer]
            )
            for peer in NAMES
            if peer != name
        )
        return RocketConfig(
            system="dledger",
            name=name,
            data_dir="",
            services=("broker",),
            ports={"raft": PORT},
            advertised=address[name],
            peers=peers,
            store=StoreConfig(segment_bytes=SEGMENT_BYTES, checkpoint_interval_ms=500),
            raft=self._raft,
        )

    def run(self, scenario: Callable[[Group], Coroutine[Any, Any, None]]) -> None:
        self.world.run(self._scenario(scenario))

    async def _scenario(self, scenario: Callable[[Group], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.timeout(3600):
            await scenario(self)

    async def start(self, *names: str) -> None:
        for name in names or NAMES:
            await self[name].start()

    async def master(self, *among: str) -> Broker:
        """The one of them that is the master, when there is one."""

        def masters() -> list[Broker]:
            return [self[name] for name in among or NAMES if self[name].role == "master"]

        await self.until(lambda: bool(masters()), "a master")
        return max(masters(), key=lambda broker: broker.up.epoch)

    def others(self, broker: Broker) -> list[Broker]:
        return [each for each in self.brokers.values() if each is not broker]

    def isolate(self, broker: Broker) -> list[tuple[str, str]]:
        return isolate(self.world, broker.name, [each.name for each in self.others(broker)])

    async def settled(self) -> None:
        """All are up, agree, and have everything in their queues."""

        def same() -> bool:
            if any(not broker.is_up for broker in self.brokers.values()):
                return False
            claims = [broker.up.claim() for broker in self.brokers.values()]
            ends = dict.fromkeys((each["end_index"], each["committed_index"]) for each in claims)
            stores = [broker.up.store for broker in self.brokers.values()]
            return (
                len(ends) == 1
                and all(index == end for end, index in ends)
                and all(store.dispatched_offset == store.log.max_offset for store in stores)
            )

        await self.until(same, "all are the same")

    until = staticmethod(until)

    def seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]
