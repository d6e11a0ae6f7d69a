"""Brokers of one master-slave group in a simulated world: real HAService, network and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.rocket.addresses import AddressBook
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import (
    BrokerConfig,
    HaConfig,
    RocketConfig,
    RocketPeer,
    StoreConfig,
)
from shalott.broker.rocket.ha.replica import MasterSlaveReplica
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.env import Event, Events, LoopClock
from tests.world.network.hosts import World

PORT = 10912
SEGMENT_BYTES = 4096
HA = HaConfig(transfer_batch_bytes=1000)
DEADLINE_S = 120.0


class Broker:
    """One node: its machine outlives its lives."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.disk = SimDisk(group.world.loop, group.seed, name)
        self.lives = 0
        self.bugs: tuple[str, ...] = group.bugs
        self.process: SimProcess | None = None
        self.store: MessageStore = None  # type: ignore[assignment]
        self.replica: MasterSlaveReplica = None  # type: ignore[assignment]
        self.failures: list[str] = []

    async def start(self) -> None:
        self.lives += 1
        ready = asyncio.Event()
        self.process, _ = self.group.world.spawn(self.name, self._live(ready, self.lives))
        await ready.wait()

    async def _live(self, ready: asyncio.Event, life: int) -> None:
        config = self.group.config_of(self.name)
        events = Events(self.name, self.group.events)
        rng = seeded_rng(self.group.seed, life)
        env = Env(self.name, life, LoopClock(), rng, self.disk, events, bugs=self.bugs)
        self.store = await MessageStore.open(env, config.store)
        self.store.failure_listener = lambda error: self.failures.append(str(error))
        self.replica = await MasterSlaveReplica.open(
            env, config, self.store, AddressBook(config), fail=self.failures.append
        )
        await self.replica.start()
        ready.set()
        await asyncio.Event().wait()

    def kill(self) -> None:
        assert self.process is not None
        self.group.world.kill(self.process)
        self.disk.kill()
        self.replica = None  # type: ignore[assignment]  # nobody asks a dead one

    def lose_power(self) -> None:
        assert self.process is not None
        self.group.world.power_off(self.process)
        self.disk.power_loss()
        self.replica = None  # type: ignore[assignment]
        self.group.world.network.host_up(self.name)

    async def here(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Do something as a part of this node's program."""
        assert self.process is not None
        return await asyncio.get_running_loop().create_task(action, context=self.process.context)

    async def put(self, body: bytes) -> PutResult:
        message = Message(topic="t", queue_id=0, body=body)
        result: PutResult = await self.here(self.replica.put([message]))
        return result

    async def put_ok(self, body: bytes) -> int:
        """Returns the message's end."""
        result = await self.put(body)
        assert result.status is PutStatus.PUT_OK, result
        assert result.stage is not None
        return result.stage.end

    @property
    def end(self) -> int:
        return self.store.log.max_offset

    async def log(self) -> bytes:
        """The whole log, as it lies in its files."""
        return bytes(await self.here(self._read_log()))

    async def _read_log(self) -> bytes:
        parts, position = [], self.store.log.min_offset
        while part := await self.store.log.read(position, 1 << 20):
            parts.append(part)
            position += len(part)
        return b"".join(parts)


class Group:
    """Brokers a, b and c; a is the master by configuration."""

    def __init__(
        self,
        *names: str,
        role: str = "SYNC_MASTER",
        flush: str = "sync",
        bugs: tuple[str, ...] = (),
        ha: HaConfig = HA,
        read_flushed_only: bool = False,
        seed: int = 1,
    ) -> None:
        self.seed = seed
        self.world = World(seed=seed)
        self.names = names or ("a", "b")
        self.bugs = bugs
        self.events: list[Event] = []
        self._role = role
        self._store = StoreConfig(
            flush=flush,  # type: ignore[arg-type]
            segment_bytes=SEGMENT_BYTES,
            read_flushed_only=read_flushed_only,
        )
        self._ha = ha
        self.brokers = {name: Broker(self, name) for name in self.names}

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    def config_of(self, name: str) -> RocketConfig:
        peers = tuple(
            RocketPeer(
                name=peer,
                services=("broker",),
                advertised={"ha": f"{peer}:{PORT}"},
                dial={"ha": f"{peer}:{PORT}"},
            )
            for peer in self.names
            if peer != name
        )
        number = self.names.index(name)
        role: Any = self._role if number == 0 else "SLAVE"
        return RocketConfig(
            system="master-slave",
            name=name,
            data_dir="",
            services=("broker",),
            ports={"ha": PORT},
            advertised={"ha": f"{name}:{PORT}"},
            peers=peers,
            broker=BrokerConfig(broker_id=number, role=role),
            store=self._store,
            ha=self._ha,
        )

    def run(self, scenario: Callable[[Group], Coroutine[Any, Any, None]]) -> None:
        self.world.run(self._scenario(scenario))

    async def _scenario(self, scenario: Callable[[Group], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.timeout(3600):
            await scenario(self)

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    async def connected(self, slave: str, master: str) -> None:
        def follows() -> bool:
            is_following = self[slave].replica.claim()["state"] == "following"
            return is_following and self.slave_at(master, slave) >= 0

        await self.until(follows, f"{slave} follows {master}")

    def slave_at(self, master: str, slave: str) -> int:
        """What a slave has acknowledged to a master; -1 if it has not."""
        acks = self[master].replica.server.acks()
        return max((ack.offset for ack in acks if ack.slave == slave), default=-1)

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


def changed(ha: HaConfig, **changes: Any) -> HaConfig:
    return msgspec.structs.replace(ha, **changes)
