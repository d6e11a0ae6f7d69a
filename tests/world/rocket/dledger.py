"""Brokers of one DLedger group in a simulated world: real Raft, wire, stores, network and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.addresses import AddressBook
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.replica import PutResult
from shalott.broker.rocket.config import RaftConfig, RocketConfig, RocketPeer, StoreConfig
from shalott.broker.rocket.dledger.replica import DLedgerReplica
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.env import Event, Events, LoopClock
from tests.world.network.hosts import World

PORT = 40911
SEGMENT_BYTES = 8192
DEADLINE_S = 120.0
NAMES = ("a", "b", "c")
TOPIC, QUEUE = "t", 0
SAFE = RaftConfig(heartbeat_interval_ms=500, flush_interval_ms=0, read_index=True)


class Broker:
    """One node: its machine outlives its lives."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.disk = SimDisk(group.world.loop, group.seed, name)
        self.lives = 0
        self.process: SimProcess | None = None
        self.replica: DLedgerReplica | None = None
        self.failures: list[str] = []

    async def start(self) -> None:
        self.lives += 1
        ready = asyncio.Event()
        self.process, life = self.group.world.spawn(self.name, self._live(ready, self.lives))
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait([life, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if life.done():
            life.result()  # it did not start

    async def _live(self, ready: asyncio.Event, life: int) -> None:
        config = self.group.config_of(self.name)
        events = Events(self.name, self.group.events)
        rng = seeded_rng(self.group.seed * 100 + NAMES.index(self.name), life)
        env = Env(self.name, life, LoopClock(), rng, self.disk, events, bugs=self.group.bugs)
        replica = await DLedgerReplica.open(
            env, config, AddressBook(config), fail=self.failures.append
        )
        await replica.start()
        self.replica = replica
        ready.set()
        await asyncio.Event().wait()

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    @property
    def role(self) -> str:
        return "down" if self.replica is None else self.replica.role

    def kill(self) -> None:
        assert self.process is not None
        self.group.world.kill(self.process)
        self.disk.kill()
        self.replica = None

    def lose_power(self) -> None:
        assert self.process is not None
        self.group.world.power_off(self.process)
        self.disk.power_loss()
        self.replica = None
        self.group.world.network.host_up(self.name)

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

    async def here(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Do something as a part of this node's program."""
        assert self.process is not None
        return await asyncio.get_running_loop().create_task(action, context=self.process.context)

    async def put(self, *bodies: bytes) -> PutResult:
        messages = [Message(topic=TOPIC, queue_id=QUEUE, body=body) for body in bodies]
        result: PutResult = await self.here(self.up.put(messages))
        return result

    async def queue(self) -> list[bytes]:
        """All messages of the queue, as they are stored, in its order."""
        return list(await self.here(self._read_queue()))

    async def _read_queue(self) -> list[bytes]:
        store = self.up.store
        offset, end = store.queue_range(TOPIC, QUEUE)
        found: list[bytes] = []
        while offset < end:
            got = await store.get(TOPIC, QUEUE, offset, max_messages=32, max_bytes=1 << 20)
            assert got.messages, got
            found += got.messages
            offset = got.next_offset
        return found


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
        links = [
            link
            for other in self.others(broker)
            for link in ((broker.name, other.name), (other.name, broker.name))
        ]
        self.world.network.cut(links)
        return links

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

    async def until(
        self, condition: Callable[[], bool], what: str = "", step_s: float = 0.01
    ) -> None:
        deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
        while not condition():
            if asyncio.get_running_loop().time() > deadline_s:
                raise AssertionError(f"never happened: {what or condition}")
            await asyncio.sleep(step_s)

    def seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]
