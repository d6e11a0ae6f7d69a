"""Brokers of one group in a simulated world: real stores, disks, network and AutoSwitch HA service.
The test is the controllers: it says who the master is, and carries out what masters report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shalott.broker.base.env import Env
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.service import AutoSwitchHAService
from shalott.broker.rocket.autoswitch.tenure import Proposal, Tenure
from shalott.broker.rocket.commitlog.api import Message, PutStage
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import (
    AddressBook,
    HaConfig,
    RocketConfig,
    RocketPeer,
    StoreConfig,
)
from shalott.cluster.sim.disk.disk import DiskKnobs
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import until
from tests.world.env import Event
from tests.world.network.hosts import World
from tests.world.rocket.machine import Machine, isolate, whole_log, whole_queue

PORT = 10912
SEGMENT_BYTES = 4096
SAFE = HaConfig(
    transfer_batch_bytes=1000,
    heartbeat_interval_ms=500,
    housekeeping_interval_ms=3000,
    reconnect_interval_ms=500,
    all_ack_in_sync_state_set=True,
    in_sync_replicas=2,
    min_in_sync_replicas=2,
)


class Broker(Machine):
    """A broker of the group. Broker ids are a 1, b 2, c 3."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(
            group.world,
            name,
            seed=group.seed,
            events=group.events,
            bugs=group.bugs,
            knobs=group.disk,
        )
        self.group = group
        self.id = group.names.index(name) + 1
        self.ha = group.ha
        self.store: MessageStore = None  # type: ignore[assignment]
        self.service: AutoSwitchHAService = None  # type: ignore[assignment]

    async def run(self, env: Env) -> None:
        config = self.group.config_of(self.name)
        self.store = await MessageStore.open(env, config.store, confirm_from_checkpoint=True)
        self.store.failure_listener = self.failed
        self.service = AutoSwitchHAService(
            env,
            config,
            self.store,
            await EpochFileCache.open(env),
            dial=AddressBook(config).dial,
            failed=self.failed,
        )
        names = self.group.names
        self.service.broker_id_of = lambda address: names.index(address.split(":")[0]) + 1
        self.service.broker_id = self.id
        await self.service.start()

    # -- the controllers' word ---------------------------------------------------------------------

    async def lead(self, epoch: int, *members: str, set_epoch: int = 1) -> Tenure:
        """Become the master, with the set ``members`` (itself, if none are named)."""
        ids = [self.group[name].id for name in members] or [self.id]
        assert await self.here(self.service.change_to_master(epoch, ids, set_epoch))
        return self.tenure

    async def follow(self, master: str, epoch: int) -> None:
        assert await self.here(self.service.change_to_slave(f"{master}:{PORT}", epoch))

    async def admit(self, *names: str) -> None:
        """As the master: wait until it wants exactly these in the set, and grant it."""
        wanted = tuple(sorted([self.id, *(self.group[name].id for name in names)]))
        proposals: list[Proposal] = []

        def proposed() -> bool:
            proposal = self.tenure.propose(is_check=False)
            if proposal is None:
                return self.tenure.set.members == wanted
            proposals.append(proposal)
            if proposal.members != wanted:
                self.tenure.refused(proposal.members)
            return proposal.members == wanted

        await self.group.until(proposed, f"{self.name} wants {wanted}: {proposals[-3:]}")
        if self.tenure.set.members != wanted:
            self.tenure.learn(wanted, self.tenure.set.epoch + 1)

    # -- messages ----------------------------------------------------------------------------------

    @property
    def tenure(self) -> Tenure:
        assert self.service.tenure is not None
        return self.service.tenure

    def append(self, body: bytes, queue_id: int = 0) -> PutStage:
        """As the master, without waiting for anything."""
        process, loop = self.process, self.group.world.loop
        assert process is not None
        before, loop.process = loop.process, process  # what it starts is its own
        try:
            stage = process.context.copy().run(
                self.store.append, [Message(topic="t", queue_id=queue_id, body=body)]
            )
            self.tenure.wake()
        finally:
            loop.process = before
        return stage

    async def put(self, body: bytes, *, timeout_ms: float = 3000) -> bool:
        """Whether it counts in time: on this disk, and where the set wants it."""
        stage = self.append(body)
        tenure = self.tenure
        await self.here(self.store.log.flushed(stage.end))
        counted: bool = await self.here(
            tenure.transfer.replicated(
                stage.end, ack_nums=tenure.copies.ack_nums(), timeout_ms=timeout_ms
            )
        )
        return counted

    @property
    def end(self) -> int:
        return self.store.log.max_offset

    @property
    def entries(self) -> list[tuple[int, int]]:
        return [(each.epoch, each.start_offset) for each in self.service.cache.entries]

    async def log(self) -> bytes:
        """The whole log, as a reader finds it."""
        return bytes(await self.here(whole_log(self.store)))

    async def bodies(self, queue_id: int = 0) -> list[bytes]:
        """What a consumer gets of a queue: in order, by queue offset."""
        found: list[bytes] = await self.here(whole_queue(self.store, "t", queue_id))
        return found


class Group:
    """Brokers a, b and c."""

    def __init__(
        self,
        *names: str,
        bugs: tuple[str, ...] = (),
        ha: HaConfig = SAFE,
        flush: str = "sync",
        knobs: NetworkKnobs | None = None,
        disk: DiskKnobs | None = None,
        seed: int = 1,
    ) -> None:
        self.seed = seed
        self.world = World(knobs, seed=seed)
        self.names = names or ("a", "b", "c")
        self.bugs = bugs
        self.ha = ha
        self.disk = disk
        self.events: list[Event] = []
        self._store = StoreConfig(
            flush=flush,  # type: ignore[arg-type]
            segment_bytes=SEGMENT_BYTES,
            checkpoint_interval_ms=100,
        )
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
        return RocketConfig(
            system="controller",
            name=name,
            data_dir="",
            services=("broker",),
            ports={"ha": PORT},
            advertised={"ha": f"{name}:{PORT}", "remoting": f"{name}:10911"},
            peers=peers,
            store=self._store,
            ha=self.brokers[name].ha,
        )

    def run(self, scenario: Callable[[Group], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(3600):
                await scenario(self)
            assert [one.failures for one in self.brokers.values() if one.failures] == []

        self.world.run(whole())

    async def start(self, *names: str) -> None:
        for name in names or self.names:
            await self[name].start()

    until = staticmethod(until)

    async def caught_up(self, master: str, *slaves: str) -> None:
        """These slaves have acknowledged all that the master has."""
        one = self[master]

        def have_all() -> bool:
            links = one.tenure.connections
            return all(
                (link := links.get(self[slave].id)) is not None and link.ack_offset == one.end
                for slave in slaves
            )

        await self.until(have_all, f"{slaves} catch up with {master}")

    def isolate(self, name: str) -> None:
        """From all others, both ways."""
        isolate(self.world, name, [other for other in self.names if other != name])

    def heal(self) -> None:
        self.world.network.heal()

    def seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]
