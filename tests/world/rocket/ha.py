"""Brokers of one master-slave group in a simulated world: real HAService, network and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shalott.broker.base.env import Env
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import (
    AddressBook,
    BrokerConfig,
    HaConfig,
    RocketConfig,
    RocketPeer,
    StoreConfig,
)
from shalott.broker.rocket.ha.replica import MasterSlaveReplica
from tests.world.clock.turns import until
from tests.world.env import Event
from tests.world.network.hosts import World
from tests.world.rocket.machine import Machine, whole_log

PORT = 10912
SEGMENT_BYTES = 4096
HA = HaConfig(transfer_batch_bytes=1000)


class Broker(Machine):
    """A broker of the group."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group.world, name, seed=group.seed, events=group.events, bugs=group.bugs)
        self.group = group
        self.store: MessageStore = None  # type: ignore[assignment]
        self.replica: MasterSlaveReplica = None  # type: ignore[assignment]

    async def run(self, env: Env) -> None:
        config = self.group.config_of(self.name)
        self.store = await MessageStore.open(env, config.store)
        self.store.failure_listener = self.failed
        self.replica = await MasterSlaveReplica.open(
            env, config, self.store, AddressBook(config), fail=self.failed
        )
        await self.replica.start()

    def gone(self) -> None:
        self.replica = None  # type: ignore[assignment]  # a dead one is not asked

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
        return bytes(await self.here(whole_log(self.store)))


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

    until = staticmethod(until)

    def seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]
