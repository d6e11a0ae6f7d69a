"""Three controllers and some brokers in one simulated loop: real controllers with their Raft group,
simulated disks and network; brokers that heartbeat, and note whom they are told to follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.config import (
    AddressBook,
    ControllerConfig,
    RaftConfig,
    RocketConfig,
    RocketPeer,
    parse_address,
)
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller.client import ControllerClient, Master
from shalott.broker.rocket.controller.messages import NoController, NotLeader, OutcomeUnknown
from shalott.broker.rocket.controller.service import Controller
from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.broker.rocket.remoting.server import Caller, RemotingServer
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import SimNetwork
from tests.world.clock.turns import passes, until
from tests.world.env import Event, Events, LoopClock

T = TypeVar("T")

CONTROLLERS = ("n1", "n2", "n3")
BROKERS = ("b1", "b2", "b3", "b4")
CLUSTER, GROUP = "c", "g"
PORTS = {"controller": 9877, "raft": 9880}
BROKER_PORT = 10911
RAFT = RaftConfig(heartbeat_interval_ms=200, vote_min_ms=100, vote_max_ms=300, push_timeout_ms=300)
HEARTBEAT_MS = 250
HEARTBEAT_TIMEOUT_MS = 1000
PATIENCE_S = 30.0


def config_of(name: str, settings: ControllerConfig, raft: RaftConfig) -> RocketConfig:
    advertised = {
        node: {port: f"{node}:{number}" for port, number in PORTS.items()} for node in CONTROLLERS
    } | {node: {"remoting": f"{node}:{BROKER_PORT}"} for node in BROKERS}
    return RocketConfig(
        system="controller",
        name=name,
        data_dir="",
        services=("controller",),
        ports=PORTS,
        advertised=advertised[name],
        peers=tuple(
            RocketPeer(
                name=node,
                services=("controller",) if node in CONTROLLERS else ("broker",),
                advertised=addresses,
                dial=addresses,
            )
            for node, addresses in advertised.items()
            if node != name
        ),
        raft=raft,
        controller=settings,
    )


class World:
    """``settings`` and ``bugs`` are every controller's."""

    def __init__(self, *bugs: str, seed: int = 1, raft: RaftConfig = RAFT, **settings: Any) -> None:
        self.loop = SimLoop()
        self.raft = raft
        self.network = SimNetwork(self.loop, seed)
        self.loop.network = self.network
        self.seed = seed
        self.bugs = bugs
        self.settings = ControllerConfig(**settings)
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.controllers: dict[str, Controller] = {}  # those that run
        self.lives: dict[str, SimProcess] = {}
        self.brokers: dict[str, Broker] = {}
        self._incarnations: dict[str, int] = {}
        self._disks: dict[str, SimDisk] = {}
        for host in ("harness", *CONTROLLERS, *BROKERS):
            self.network.add_host(host)

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            self.remoting = RemotingClient(parse_address)
            self.client = self.client_of(self.remoting)
            for name in CONTROLLERS:
                await self.boot(name)
            await main()
            await self.remoting.close()
            for broker in self.brokers.values():
                await broker.stop()
            for name in list(self.controllers):
                await self.stop(name)
            assert self.failures == []

        self.loop.run(whole(), SimProcess("harness", fenced=False))

    # -- programs ----------------------------------------------------------------------------------

    def spawn(self, host: str) -> SimProcess:
        self._incarnations[host] = self._incarnations.get(host, 0) + 1
        process = SimProcess(host, self._incarnations[host])
        self.loop.add_process(process)
        self.lives[host] = process
        return process

    def inside(self, host: str, job: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(job, context=self.lives[host].context)

    def _die(self, host: str) -> None:
        self.lives[host].freeze()
        self.network.process_died(self.lives[host], reset=True)

    async def boot(self, name: str) -> Controller:
        self.spawn(name)
        disk = self._disks.get(name)
        if disk is None:
            disk = self._disks[name] = SimDisk(self.loop, self.seed, name)
        env = Env(
            node_id=name,
            incarnation=self._incarnations[name],
            clock=LoopClock(self.loop),
            rng=seeded_rng(self.seed, self._incarnations[name] * 10 + int(name[1:])),
            disk=disk,
            events=Events(name, self.events),
            bugs=self.bugs,
        )
        config = config_of(name, self.settings, self.raft)

        async def start() -> Controller:
            made = Controller(env, config, AddressBook(config), fail=self.failures.append)
            await made.start()
            return made

        self.controllers[name] = await self.inside(name, start())
        return self.controllers[name]

    def kill(self, name: str, *, power: bool = False) -> None:
        """kill -9; or a power loss, which takes what was not synced."""
        self._die(name)
        self.controllers.pop(name, None)
        disk = self._disks[name]
        if power:
            disk.power_loss()
        else:
            disk.kill()

    async def stop(self, name: str) -> None:
        await self.inside(name, self.controllers.pop(name).stop())

    async def broker(self, name: str, *, offset: int = 0, epoch: int = 0) -> Broker:
        """A broker that applied for an id, registered, and heartbeats."""
        broker = Broker(self, name, offset, epoch)
        self.brokers[name] = broker
        await broker.start()
        return broker

    def client_of(self, remoting: RemotingClient) -> ControllerClient:
        return ControllerClient(remoting, [f"{name}:9877" for name in CONTROLLERS])

    # -- links -------------------------------------------------------------------------------------

    def isolate(self, *side: str) -> None:
        """From all others, but not from each other."""
        self.network.cut(self._links(side))

    def mend(self, *side: str) -> None:
        self.network.mend(self._links(side))

    def _links(self, side: tuple[str, ...]) -> list[tuple[str, str]]:
        others = [host for host in (*CONTROLLERS, *BROKERS) if host not in side]
        return [link for a in side for b in others for link in ((a, b), (b, a))]

    # -- looks -------------------------------------------------------------------------------------

    @property
    def leader(self) -> str:
        """Of the controllers, the one that serves in the newest term; "" if none does."""
        serving = [
            (controller.group.term, name)
            for name, controller in self.controllers.items()
            if controller.is_serving
        ]
        return max(serving, default=(0, ""))[1]

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        await until(condition, what, within_s=PATIENCE_S)

    async def served(self) -> str:
        await self.until(lambda: self.leader, "a leader serves")
        return self.leader

    async def again(self, ask: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Until a controller answers as the leader."""
        deadline = self.loop.time() + PATIENCE_S
        while True:
            try:
                return await ask(*arguments)
            except (NotLeader, NoController, OutcomeUnknown, Unreachable, Unanswered):
                assert self.loop.time() < deadline, "nobody answers"
                await passes(0.05)

    async def master(self) -> Master:
        """As the present leader tells it."""
        return await self.again(self.client.replica_info, GROUP)

    def states_of(self, name: str) -> Any:
        return self.controllers[name].replicated.applied

    async def agreed(self) -> None:
        """All controllers that run have applied the same."""
        await self.until(
            lambda: (
                self.leader
                and all(self.states_of(n) == self.states_of(self.leader) for n in self.controllers)
            ),
            "all controllers agree",
        )

    def events_of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@dataclass
class Broker:
    """What the controllers see of a broker. ``told``: what 1008 said, in order."""

    world: World
    name: str
    offset: int
    epoch: int
    broker_id: int = 0
    told: list[tuple[cm.MasterInfo, cm.SyncStateSet]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.name}:{BROKER_PORT}"

    async def start(self) -> None:
        self.world.spawn(self.name)
        await self.world.inside(self.name, self._start())

    async def _start(self) -> None:
        self._remoting = RemotingClient(parse_address)
        self.client = self.world.client_of(self._remoting)
        self._server = RemotingServer(
            {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notified},
            host="0.0.0.0",
            port=BROKER_PORT,
        )
        await self._server.start()
        if not self.broker_id:
            await self.world.served()
            self.broker_id = await self.client.next_broker_id(CLUSTER, GROUP)
            code = f"{self.address};17"
            await self.client.apply_broker_id(CLUSTER, GROUP, self.broker_id, code)
            await self.client.register_broker(CLUSTER, GROUP, self.broker_id, self.address)
        self._beating = [
            asyncio.create_task(self._beat(controller)) for controller in self.client.controllers
        ]
        await passes(2 * HEARTBEAT_MS / 1000)

    async def _notified(self, command: Command, caller: Caller) -> None:
        info = cm.from_ext(command.ext, cm.MasterInfo)
        self.told.append((info, cm.from_body(command.body, cm.SyncStateSet)))

    async def _beat(self, controller: str) -> None:
        while True:
            heartbeat = cm.Heartbeat(
                cluster_name=CLUSTER,
                broker_addr=self.address,
                broker_name=GROUP,
                broker_id=self.broker_id,
                epoch=self.epoch,
                max_offset=self.offset,
                heartbeat_timeout_mills=HEARTBEAT_TIMEOUT_MS,
            )
            try:
                await self.client.heartbeat(controller, heartbeat)
            except BrokerError:
                pass
            await passes(HEARTBEAT_MS / 1000)

    async def elect(self, **more: Any) -> Any:
        return await self.client.elect_master(CLUSTER, GROUP, self.broker_id, **more)

    def kill(self) -> None:
        self.world._die(self.name)  # noqa: SLF001 (one fixture)
        self.world.brokers.pop(self.name)

    def pause(self) -> None:
        """It says nothing, and its connections stay."""
        self.world.lives[self.name].state = "paused"

    def resume(self) -> None:
        self.world.loop.resume(self.world.lives[self.name])

    async def stop(self) -> None:
        async def end() -> None:
            for task in self._beating:
                task.cancel()
            await asyncio.gather(*self._beating, return_exceptions=True)
            await self._remoting.close()
            await self._server.stop()

        await self.world.inside(self.name, end())


async def three_brokers(world: World, *, in_sync: bool = True) -> tuple[Broker, Broker, Broker]:
    """Brokers 1 to 3; 1 is the master, and all are in its set if that is wanted."""
    await world.served()
    one = await world.broker("b1", offset=100, epoch=1)
    two = await world.broker("b2", offset=100, epoch=1)
    three = await world.broker("b3", offset=90, epoch=1)
    assert (await one.elect()).elected
    if in_sync:
        changed = await one.client.alter_sync_state_set(GROUP, 1, 1, (1, 2, 3), 1)
        assert changed == cm.SyncStateSet(sync_state_set=(1, 2, 3), sync_state_set_epoch=2)
    return one, two, three
