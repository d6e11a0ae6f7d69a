"""ReplicasManager: what a broker does because of the controllers' word.

After broker/controller/ReplicasManager.java; docs/protocols.md 3.5. It finds the controllers'
leader, gets an identity and registers, sends heartbeats, and from then on follows what it hears of
its group: by notification (1008), by polling, and as the answer to its own requests. One task
carries out the newest news; news of older epochs are ignored. Until the first role the broker is
isolated: it takes no messages and registers at no name server.

A master that hears of a newer epoch stops at once, before its new role begins.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Coroutine

from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError, DiskFull, StorageError
from shalott.broker.rocket.autoswitch.service import AutoSwitchHAService
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller.client import ControllerClient, Master
from shalott.broker.rocket.controller.messages import ElectionFailed, GroupUnknown, Heartbeat
from shalott.broker.rocket.remoting.command import Command
from shalott.broker.rocket.replicas.identity import BrokerIdentity
from shalott.broker.rocket.replicas.set_reports import SetReports

log = logging.getLogger("shalott.broker.replicas")

RETRY_MS = 1000
NO_MASTER = Master(None, "", 0, (), 0)


class State(enum.Enum):
    INITIAL = "initial"
    FIRST_TIME_SYNC_CONTROLLER_METADATA_DONE = "the controllers' leader is known"
    REGISTER_TO_CONTROLLER_DONE = "registered"
    RUNNING = "running"


class ReplicasManager:
    """``failed`` is told when the disk is lost, or when the impossible happens."""

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        service: AutoSwitchHAService,
        identity: BrokerIdentity,
        client: ControllerClient,
        addresses: AddressBook,
        *,
        failed: Callable[[BrokerError], None],
    ) -> None:
        self.state = State.INITIAL
        self.master = NO_MASTER  # by the newest news
        self.addresses_of: dict[int, str] = {}  # of brokers of the group, by id
        self.identity = identity
        self._env = env
        self._config = config
        self._service = service
        self._client = client
        self._addresses = addresses
        self._failed = failed
        self._cluster = config.broker.cluster_name
        self._group = config.broker.broker_name
        self._address = config.advertised["remoting"]
        self._news = asyncio.Event()
        self._ask = asyncio.Event()
        self._busy = asyncio.Lock()  # see Heartbeats
        self._tasks: list[asyncio.Task[None]] = []
        self._heartbeats = Heartbeats(
            env,
            client,
            self._heartbeat,
            interval_ms=config.broker.controller_heartbeat_interval_ms,
            busy=self._busy,
        )
        self.reports = SetReports(env, config, service, client, ask=self._ask.set)
        self._stranger = False  # a slave named itself by an unknown address
        service.broker_id_of = self._broker_id_of

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._spawn(self._run(), "replicas manager")

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s crashed", task.get_name(), exc_info=error)
            self._failed(BrokerError(f"{task.get_name()} crashed: {error!r}"))

    async def _run(self) -> None:
        await self._until_done(self._find_leader)
        self.state = State.FIRST_TIME_SYNC_CONTROLLER_METADATA_DONE
        await self._until_done(self._register)
        self.state = State.REGISTER_TO_CONTROLLER_DONE
        self._spawn(self._heartbeats.run(), "heartbeats")
        self._spawn(self._carry_out(), "roles")
        self._spawn(self._poll(), "replica info")
        self._spawn(self._follow_leader(), "controller metadata")
        self._spawn(self.reports.run(), "sync state set")

    async def _until_done(self, step: Callable[[], Coroutine[object, object, None]]) -> None:
        while True:
            try:
                await step()
            except BrokerError as error:
                if isinstance(error, StorageError) and not isinstance(error, DiskFull):
                    raise
                log.info("not yet: %s", error)
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                return

    async def _find_leader(self) -> None:
        await self._client.find_leader()

    async def _register(self) -> None:
        master = await self.identity.register(self._client)
        assert self.identity.broker_id is not None
        self._service.broker_id = self.identity.broker_id
        self.hear(master)

    # -- what it hears -----------------------------------------------------------------------------

    def hear(self, word: Master) -> None:
        """The controllers' word. Only the newest one counts."""
        newest = self.master
        if (word.epoch, word.sync_state_set_epoch) < (newest.epoch, newest.sync_state_set_epoch):
            return
        if word.epoch == newest.epoch and word.broker_id is None:
            return  # it knows of no living master: nothing new
        self.master = word
        service = self._service
        if word.epoch > service.epoch and word.broker_id != service.broker_id:
            service.step_down()
        if word.broker_id != service.broker_id:
            self._env.witness("heard", self._group, word.epoch, service.role, service.epoch)
        self._news.set()

    def role_changed(self, command: Command) -> None:
        """NOTIFY_BROKER_ROLE_CHANGED (1008). Raises BrokerError for what is none."""
        info = cm.from_ext(command.ext, cm.MasterInfo)
        known = cm.from_body(command.body, cm.SyncStateSet)
        self.hear(
            Master(
                info.master_broker_id,
                info.master_address or "",
                info.master_epoch or 0,
                known.sync_state_set,
                known.sync_state_set_epoch,
            )
        )

    async def _poll(self) -> None:
        """syncBrokerMetadata: soon again while there is no master to follow."""
        period_ms = self._config.broker.sync_broker_metadata_period_ms
        while True:
            try:
                async with self._turn():
                    await self._ask_once()
            except BrokerError as error:
                log.info("no word of the master: %s", error)
            settled = self._service.role != "none" and self.state is State.RUNNING
            wait_ms = period_ms if settled else min(period_ms, RETRY_MS)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._ask.wait()
            except TimeoutError:
                continue
            self._ask.clear()
            await asyncio.sleep(0)

    async def _ask_once(self) -> None:
        try:
            word = await self._client.replica_info(self._group)
        except (GroupUnknown, ElectionFailed):  # there was never an election
            word = NO_MASTER
        self.hear(word)
        if word.broker_id is None and word.epoch >= self.master.epoch:
            me = self._service.broker_id
            election = await self._client.elect_master(self._cluster, self._group, me)
            self.hear(election.master)
        known = self.addresses_of
        if self._stranger or any(one not in known for one in self.master.sync_state_set):
            await self._learn_addresses()

    def _broker_id_of(self, address: str) -> int:
        """Of a slave that names itself as in 5.0.0: -1 until the controllers have told its id; it
        will connect again."""
        for broker_id, known in self.addresses_of.items():
            if known == address:
                return broker_id
        self._stranger = True
        self._ask.set()
        return -1

    async def _learn_addresses(self) -> None:
        """Who the ids are, for people and checkers, and for handshakes of 5.0.0."""
        self._stranger = False
        known = (await self._client.sync_state_data([self._group])).get(self._group)
        if known is not None:
            for one in (*known.in_sync_replicas, *known.not_in_sync_replicas):
                self.addresses_of[one.broker_id] = one.broker_address

    async def _follow_leader(self) -> None:
        """syncControllerMetadata."""
        while True:
            await asyncio.sleep(self._config.broker.sync_controller_metadata_period_ms / 1000)
            try:
                async with self._turn():
                    await self._client.find_leader()
            except BrokerError as error:
                log.info("%s", error)

    def _turn(self) -> asyncio.Lock | _AtOnce:
        """With KB-RKT-31 heartbeats are in the way."""
        return self._busy if self._env.has_bug("KB-RKT-31") else _AtOnce()

    # -- what it does about it ---------------------------------------------------------------------

    async def _carry_out(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                done = await self._apply(self.master)
            except DiskFull as error:
                log.warning("the role can't change: %s", error)
                done = False
            except StorageError as error:
                self._failed(error)
                return
            if done:
                self.state = State.RUNNING
                self._service.role_changed()
            elif self.master.broker_id is not None:
                await asyncio.sleep(RETRY_MS / 1000)
                self._news.set()

    async def _apply(self, word: Master) -> bool:
        """Whether the broker is now what the word says."""
        service = self._service
        if word.broker_id is None or word.epoch < service.epoch:
            return False
        if word.broker_id != service.broker_id:
            address = await self._ha_address_of(word.address)
            if not address or word is not self.master:
                return False
            return await service.change_to_slave(address, word.epoch)
        tenure = service.tenure
        if tenure is not None and word.epoch == service.epoch:
            if tenure.learn(word.sync_state_set, word.sync_state_set_epoch):
                service.tell_set(tenure.set.members, tenure.set.epoch)
            return True
        if word.sync_state_set and service.broker_id not in word.sync_state_set:
            raise BrokerError(f"I2: {service.broker_id} is elected out of {word.sync_state_set}")
        return await service.change_to_master(
            word.epoch, word.sync_state_set, word.sync_state_set_epoch
        )

    async def _ha_address_of(self, master: str) -> str:
        """Where a master's log is to be had: as configured, or as it says itself; "" if it says
        nothing yet."""
        node = self._addresses.node_of(master)
        if node:
            return self._addresses.advertised(node, "ha")
        try:
            return await self._client.ha_address_of(master)
        except BrokerError as error:
            log.info("the master %s does not say where its log is: %s", master, error)
            return ""

    def _heartbeat(self) -> cm.Heartbeat:
        broker, service = self._config.broker, self._service
        return cm.Heartbeat(
            cluster_name=self._cluster,
            broker_addr=self._address,
            broker_name=self._group,
            broker_id=service.broker_id,
            epoch=service.data_epoch,
            max_offset=service.store.log.max_offset,
            confirm_offset=service.store.confirm_offset,
            heartbeat_timeout_mills=broker.controller_heartbeat_timeout_ms,
            election_priority=broker.election_priority,
        )


class _AtOnce:
    """No lock at all."""

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, *error: object) -> None:
        return


# -- heartbeats ------------------------------------------------------------------------------------
# Heartbeats go to all controllers, also those that do not lead, so that a new leader knows which
# brokers are alive.
#
# After broker/controller/ReplicasManager.java (sendHeartbeatToController); docs/protocols.md 3.5.
# Each controller has a loop of its own, so one that does not answer delays no other. Upstream
# once asked one after the other, in the thread that did everything else (KB-RKT-31).


class Heartbeats:
    """``make`` says what this broker is worth now. ``busy`` is held by all else that the broker
    does with controllers, and only matters with KB-RKT-31.
    """

    def __init__(
        self,
        env: Env,
        client: ControllerClient,
        make: Callable[[], Heartbeat],
        *,
        interval_ms: float,
        busy: asyncio.Lock,
    ) -> None:
        self._env = env
        self._client = client
        self._make = make
        self._interval_s = interval_ms / 1000
        self._busy = busy

    async def run(self) -> None:
        """Until cancelled."""
        if self._env.has_bug("KB-RKT-31"):
            await self._one_after_the_other()
            return
        async with asyncio.TaskGroup() as loops:
            for address in self._client.controllers:
                loops.create_task(self._to(address), name=f"heartbeats to {address}")

    async def _to(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            next_at = loop.time() + self._interval_s
            await self._beat(address)
            await asyncio.sleep(max(0.0, next_at - loop.time()))

    async def _one_after_the_other(self) -> None:
        """KB-RKT-31: blocking_heartbeat."""
        while True:
            async with self._busy:
                for address in self._client.controllers:
                    await self._beat(address)
            await asyncio.sleep(self._interval_s)

    async def _beat(self, address: str) -> None:
        try:
            await self._client.heartbeat(address, self._make())
        except BrokerError:
            return  # the next one may arrive
