"""Brokers under a real controller in a simulated world: disks, network, HA service, remoting."""

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
    ControllerConfig,
    HaConfig,
    RaftConfig,
    RocketConfig,
    RocketPeer,
    StoreConfig,
)
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.service import Controller
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.broker.rocket.remoting.server import Caller, RemotingServer
from shalott.broker.rocket.replicas.replica import AutoSwitchReplica
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import until
from tests.world.env import Event
from tests.world.network.hosts import World
from tests.world.rocket.machine import Machine, isolate, whole_log

CONTROLLER = "ctl"
PORTS = {"remoting": 10911, "ha": 10912, "raft": 9880, "controller": 9878}
SEGMENT_BYTES = 16384
SAFE = HaConfig(
    transfer_batch_bytes=1000,
    heartbeat_interval_ms=500,
    housekeeping_interval_ms=3000,
    reconnect_interval_ms=500,
    all_ack_in_sync_state_set=True,
    in_sync_replicas=2,
    min_in_sync_replicas=2,
    max_time_slave_not_catchup_ms=3000,
    check_sync_state_set_period_ms=1000,
)
BROKER = BrokerConfig(
    controller_heartbeat_interval_ms=200,
    controller_heartbeat_timeout_ms=2000,
    sync_broker_metadata_period_ms=1000,
    sync_controller_metadata_period_ms=2000,
)
CONTROL = ControllerConfig(
    scan_not_active_broker_interval_ms=500,
    scan_inactive_master_interval_ms=500,
    is_process_read_event=True,
)
RAFT = RaftConfig(heartbeat_interval_ms=100, vote_min_ms=50, vote_max_ms=150, push_timeout_ms=200)


class Node(Machine):
    """A machine of the group."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group.world, name, seed=group.seed, events=group.events, bugs=group.bugs)
        self.group = group
        self._ready = False

    @property
    def is_up(self) -> bool:
        """Whether its program runs, and is more than what the last life left behind."""
        return self.process is not None and self._ready

    async def run(self, env: Env) -> None:
        config = self.group.config_of(self.name)
        await self.open(env, config, AddressBook(config))
        self._ready = True

    async def open(self, env: Env, config: RocketConfig, book: AddressBook) -> None:
        """Start what this kind of node is made of."""
        raise NotImplementedError

    def gone(self) -> None:
        self.process, self._ready = None, False

    async def here(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Do something as a part of this node's program; None if that dies meanwhile."""
        process = self.process
        assert process is not None
        task = asyncio.get_running_loop().create_task(action, context=process.context)
        while not task.done() and process.state != "dead":
            await asyncio.wait([task], timeout=0.1)
        return task.result() if task.done() else None


class ControllerNode(Node):
    controller: Controller

    async def open(self, env: Env, config: RocketConfig, book: AddressBook) -> None:
        self.controller = Controller(env, config, book, fail=self.failed)
        await self.controller.start()


class Broker(Node):
    """Broker ids are given by the controller: they are not the same in every run."""

    store: MessageStore
    replica: AutoSwitchReplica

    async def open(self, env: Env, config: RocketConfig, book: AddressBook) -> None:
        self.store = await MessageStore.open(env, config.store, confirm_from_checkpoint=True)
        self.store.failure_listener = self.failed
        remoting = RemotingClient(book.dial)
        client = ControllerClient(remoting, [book.advertised(CONTROLLER, "controller")])
        self.replica = await AutoSwitchReplica.open(
            env,
            config,
            self.store,
            client,
            book,
            failed=self.failed,
        )

        async def notified(command: Command, caller: Caller) -> None:
            self.replica.role_changed(command)

        handlers = {int(RequestCode.NOTIFY_BROKER_ROLE_CHANGED): notified}
        server = RemotingServer(handlers, host="0.0.0.0", port=PORTS["remoting"])
        await server.start()
        await self.replica.start()

    @property
    def role(self) -> str:
        return self.replica.role if self.is_up else "down"

    @property
    def id(self) -> int:
        return self.replica.service.broker_id

    @property
    def end(self) -> int:
        return self.store.log.max_offset

    async def put(self, body: bytes) -> PutResult | None:
        """None if the broker died meanwhile."""
        message = Message(topic="t", queue_id=0, body=body)
        result: PutResult | None = await self.here(self.replica.put([message]))
        return result

    async def put_ok(self, body: bytes) -> None:
        result = await self.put(body)
        assert result is not None
        assert result.status is PutStatus.PUT_OK, result

    async def log(self) -> bytes:
        return bytes(await self.here(whole_log(self.store)))


class Group:
    """A controller, and brokers a, b and c."""

    def __init__(
        self,
        *names: str,
        bugs: tuple[str, ...] = (),
        ha: HaConfig = SAFE,
        flush: str = "sync",
        control: ControllerConfig = CONTROL,
        knobs: NetworkKnobs | None = None,
        seed: int = 1,
    ) -> None:
        self.seed = seed
        self.world = World(knobs, seed=seed)
        self.world.network.add_host(CONTROLLER)
        self.names = names or ("a", "b", "c")
        self.bugs = bugs
        self.events: list[Event] = []
        self._ha = ha
        self._control = control
        self._store = StoreConfig(
            flush=flush,  # type: ignore[arg-type]
            segment_bytes=SEGMENT_BYTES,
            checkpoint_interval_ms=100,
        )
        self.controller = ControllerNode(self, CONTROLLER)
        self.brokers = {name: Broker(self, name) for name in self.names}

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    @property
    def nodes(self) -> list[str]:
        return [CONTROLLER, *self.names]

    def config_of(self, name: str) -> RocketConfig:
        def advertised(node: str) -> dict[str, str]:
            return {port: f"{node}:{number}" for port, number in PORTS.items()}

        def services(node: str) -> tuple[Any, ...]:
            return ("controller",) if node == CONTROLLER else ("broker",)

        return RocketConfig(
            system="controller",
            name=name,
            data_dir="",
            services=services(name),
            ports=PORTS,
            advertised=advertised(name),
            peers=tuple(
                RocketPeer(
                    name=peer,
                    services=services(peer),
                    advertised=advertised(peer),
                    dial=advertised(peer),
                )
                for peer in self.nodes
                if peer != name
            ),
            broker=BROKER,
            store=self._store,
            ha=self._ha,
            raft=RAFT,
            controller=self._control,
        )

    def run(self, scenario: Callable[[Group], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(3600):
                await scenario(self)
            assert self.controller.failures == []

        self.world.loop.run(whole(), SimProcess("harness", fenced=False))

    async def start(self) -> None:
        await self.controller.start()
        for broker in self.brokers.values():
            await broker.start()

    until = staticmethod(until)

    def master(self) -> Broker | None:
        """The one of the newest epoch among those that say they are."""
        masters = [one for one in self.brokers.values() if one.role == "master"]
        return max(masters, key=lambda one: one.replica.epoch, default=None)

    async def settled(self, *names: str) -> Broker:
        """One is the master and these (all) are in its set, with all that it has."""
        wanted = [self[name] for name in names or self.names]

        def all_in() -> bool:
            master = self.master()
            if master is None or master.replica.service.tenure is None or master not in wanted:
                return False
            tenure = master.replica.service.tenure
            if list(tenure.set.members) != sorted(one.id for one in wanted):
                return False
            acks = [link.ack_offset for link in tenure.connections.values()]
            return len(acks) == len(wanted) - 1 and all(ack == master.end for ack in acks)

        await self.until(all_in, f"{names or self.names} are in the set")
        master = self.master()
        assert master is not None
        return master

    def isolate(self, name: str, *but: str) -> None:
        """From all others, both ways."""
        isolate(self.world, name, [node for node in self.nodes if node not in (name, *but)])

    def heal(self) -> None:
        self.world.network.heal()

    def seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]
