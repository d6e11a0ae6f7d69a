"""AutoSwitchReplica: a broker under controllers, as request processing sees it; implements Replica.

After store/CommitLog.java (handleDiskFlushAndHA); docs/protocols.md 1.6, 2.8. What a put waits for,
besides its own disk: the copies that the settings ask for, counted while the master is the one that
appended it. Findings that decide whether an acknowledged message survives
(docs/evidence/original-sources.md) are dealt with where they arise: a in epochs.py and client.py, c
in service.py, d in connection.py. h, a new master's set has no other member: it takes no messages
until minInSyncReplicas of them have joined, and who joins has all that ever counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError, MessageIllegal, StorageError
from shalott.broker.rocket.autoswitch import epochs
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.service import AutoSwitchHAService
from shalott.broker.rocket.autoswitch.tenure import Tenure
from shalott.broker.rocket.commitlog.api import Message, PutStage
from shalott.broker.rocket.commitlog.replica import (
    HaClientInfo,
    HaStatus,
    PutResult,
    PutStatus,
    ReplicaClaim,
    ReplicaRole,
)
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.remoting.command import Command
from shalott.broker.rocket.replicas.identity import BrokerIdentity
from shalott.broker.rocket.replicas.manager import ReplicasManager, State


class AutoSwitchReplica:
    """Made by ``open``."""

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        store: MessageStore,
        service: AutoSwitchHAService,
        manager: ReplicasManager,
        addresses: AddressBook,
    ) -> None:
        """Use ``open``."""
        self.store = store
        self.service = service
        self.manager = manager
        self.on_change: Callable[[], None] = lambda: None
        self._env = env
        self._config = config
        self._addresses = addresses
        self._group = config.broker.broker_name
        service.role_changed = self._role_changed

    @classmethod
    async def open(
        cls,
        env: Env,
        config: RocketConfig,
        store: MessageStore,
        client: ControllerClient,
        addresses: AddressBook,
        *,
        failed: Callable[[BrokerError], None],
    ) -> AutoSwitchReplica:
        """``store`` should be opened with ``confirm_from_checkpoint``. ``failed``: the node can't
        go on. Raises StorageError.
        """
        service = AutoSwitchHAService(
            env, config, store, await EpochFileCache.open(env), dial=addresses.dial, failed=failed
        )
        identity = await BrokerIdentity.open(
            env,
            cluster=config.broker.cluster_name,
            group=config.broker.broker_name,
            address=config.advertised["remoting"],
        )
        manager = ReplicasManager(env, config, service, identity, client, addresses, failed=failed)
        return cls(env, config, store, service, manager, addresses)

    # -- Replica -----------------------------------------------------------------------------------

    @property
    def role(self) -> ReplicaRole:
        return self.service.role if self.manager.state is State.RUNNING else "none"

    @property
    def broker_id(self) -> int:
        """The master is 0 to name servers, not its id at the controllers."""
        role = self.role
        if role == "none":
            return -1
        return 0 if role == "master" else self.service.broker_id

    @property
    def epoch(self) -> int:
        return self.service.epoch

    async def start(self) -> None:
        """Raises ConfigError if the HA port is taken."""
        await self.service.start()
        self.manager.start()

    async def stop(self) -> None:
        await self.manager.stop()
        await self.service.stop()

    async def put(self, messages: list[Message]) -> PutResult:
        tenure = self.service.tenure
        if self.role != "master" or tenure is None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="this broker is no master")
        if len(tenure.set.local) < self._config.ha.min_in_sync_replicas:
            return PutResult(
                PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, reason="in-sync replicas not enough"
            )
        try:
            stage = self.store.append(messages)
        except MessageIllegal as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        except StorageError as error:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        tenure.wake()
        return await self._count(tenure, stage)

    async def _count(self, tenure: Tenure, stage: PutStage) -> PutResult:
        """The disk and the copies, side by side as upstream has it."""
        replicated = asyncio.create_task(self._replicated(tenure, stage.end), name="copies")
        try:
            if not await self._on_disk(stage.end):
                return PutResult(PutStatus.FLUSH_DISK_TIMEOUT, stage)
            # Copies that were judged before the master's own was safe are judged for good: no slave
            # joins the set without what they have (Copies.ackable).
            if not await replicated or self.service.tenure is not tenure:
                return PutResult(PutStatus.FLUSH_SLAVE_TIMEOUT, stage)
            return PutResult(PutStatus.PUT_OK, stage, holders=tenure.copies.holders(stage.end))
        finally:
            replicated.cancel()

    async def _on_disk(self, end: int) -> bool:
        replicated, settings = self.store.log, self._config.store
        try:
            async with asyncio.timeout(settings.flush_timeout_ms / 1000):
                if settings.flush == "sync":
                    await replicated.flushed(end)
                else:
                    await replicated.written(end)
        except (TimeoutError, StorageError):
            return False
        return True

    async def _replicated(self, tenure: Tenure, end: int) -> bool:
        timeout_ms = self._config.ha.slave_timeout_ms
        return await tenure.transfer.replicated(
            end, ack_nums=tenure.copies.ack_nums(), timeout_ms=timeout_ms
        )

    async def readable(self) -> bool:
        return self.role != "none"

    def claim(self) -> ReplicaClaim:
        tenure = self.service.tenure
        members = () if tenure is None else tenure.set.members
        names = [self._name(one) for one in members if one != self.service.broker_id]
        slaves = [] if tenure is None else [self._name(one) for one in sorted(tenure.connections)]
        master = self._addresses.name_of(self.manager.master.address)
        return {
            "group": self._group,
            "role": self.role,
            "epoch": self.epoch,
            "master": self._config.name if self.role == "master" else master,
            "mirrors": slaves,
            "synchronised": names,
            "state": self.manager.state.name,
            "sync_state_set": list(members),
            "sync_state_set_epoch": 0 if tenure is None else tenure.set.epoch,
            "broker_id": self.service.broker_id,
            "max_offset": self.store.log.max_offset,
            "confirm_offset": self.store.confirm_offset,
        }

    def ha_status(self) -> HaStatus:
        return ha_status(self._env, self.service, self._name)

    # -- requests of controllers and operators -----------------------------------------------------

    def role_changed(self, command: Command) -> None:
        """NOTIFY_BROKER_ROLE_CHANGED (1008). Raises BrokerError for what is none."""
        self.manager.role_changed(command)

    def epoch_cache(self) -> bytes:
        """The body of GET_BROKER_EPOCH_CACHE (1007)."""
        broker, end = self._config.broker, self.store.log.max_offset
        entries = epochs.ranges(self.service.cache.entries, end)
        return msgspec.json.encode(
            {
                "clusterName": broker.cluster_name,
                "brokerName": broker.broker_name,
                "brokerId": self.service.broker_id,
                "epochList": [
                    {
                        "epoch": each.epoch,
                        "startOffset": each.start_offset,
                        "endOffset": each.end_offset,
                    }
                    for each in entries
                ],
                "maxOffset": end,
            }
        )

    def _role_changed(self) -> None:
        self.on_change()

    def _name(self, broker_id: int) -> str:
        """Of a node, for people and checkers; the id as text while its address is not known."""
        address = self.manager.addresses_of.get(broker_id, "")
        return self._addresses.name_of(address) or str(broker_id)


# -- the body of GET_BROKER_HA_STATUS --------------------------------------------------------------
# How far slaves are, or how far this slave is (907).
#
# Source: remoting/protocol/body/HARuntimeInfo.java. Rates are averages
# over the life of a connection; upstream's are of the last second.


NS_PER_MS = 1_000_000


def ha_status(env: Env, service: AutoSwitchHAService, name: Callable[[int], str]) -> HaStatus:
    """``name`` makes a node's name of a broker id."""
    tenure, log = service.tenure, service.store.log
    end = log.max_offset
    connections = [] if tenure is None else sorted(tenure.connections.items())
    return {
        "master": tenure is not None,
        "masterCommitLogMaxOffset": end if tenure is not None else 0,
        "inSyncSlaveNums": 0 if tenure is None else len(tenure.set.members) - 1,
        "haConnectionInfo": [
            {
                "addr": name(slave),
                "slaveAckOffset": one.ack_offset,
                "diff": end - one.ack_offset,
                "inSync": tenure is not None and slave in tenure.set.members,
                "transferredByteInSecond": one.rate_bytes_s(),
                "transferFromWhere": one.transfer_from,
            }
            for slave, one in connections
        ],
        "haClientRuntimeInfo": _client_info(env, service),
    }


def _client_info(env: Env, service: AutoSwitchHAService) -> HaClientInfo:
    client, log = service.client, service.store.log
    if client is None:
        return {}
    return {
        "masterAddr": client.following.address,
        "maxOffset": log.max_offset,
        "lastReadTimestamp": _wall_ms(env, client.last_read_ns),
        "lastWriteTimestamp": _wall_ms(env, client.last_write_ns),
        "transferredByteInSecond": client.rate_bytes_s(),
        "masterFlushOffset": 0,
        "isActivated": client.is_connected,
    }


def _wall_ms(env: Env, at_ns: int) -> int:
    """A time of the monotonic clock as people read it; 0 for never."""
    if not at_ns:
        return 0
    ago_ns = env.clock.monotonic_ns() - at_ns
    return (env.clock.wall_ns() - ago_ns) // NS_PER_MS
