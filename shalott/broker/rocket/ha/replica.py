"""MasterSlaveReplica: one master and its slaves, by configuration and by hand.

After store/ha/DefaultHAService.java and the put path of store/CommitLog.java; docs/protocols.md
1.5, 1.6, 1.7.

What SEND_OK promises:
- ASYNC_MASTER: the master has the message, written, or flushed under sync flush. The loss of the
  master's node loses what its slaves had not got: upstream's design.
- SYNC_MASTER: the master has it as above, and a slave that is not this node has it written. With
  sync flush no single fault loses it: a kill takes nothing written; a power loss of the master
  leaves it flushed there and written at the slave; a power loss of the slave, or its disk, leaves
  it flushed at the master. Both nodes' power at once leaves the master's copy. No slave is ever
  ahead of its master (server.py), so a master that comes back continues a log that all share.
- All other statuses are for who asks again: the message is here, nobody knows whether it lasts.

A broker that `follow`s another one by hand finds out where their logs part, and cuts its own there
(agreement.py), before it appends or acknowledges anything.

With read_flushed_only a SYNC_MASTER lets nobody read what only it has: dispatch ends where a slave
has acknowledged, so that a failover to that slave takes nothing back that a reader has seen. What
it had when it became the master is readable at once; a master that restarts, which does not know
what of that a slave had, lets nobody read before a slave has it all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError, MessageIllegal, StorageError
from shalott.broker.rocket.commitlog.api import Message, PutStage, Store
from shalott.broker.rocket.commitlog.replica import (
    HaStatus,
    PutResult,
    PutStatus,
    ReplicaClaim,
    ReplicaRole,
)
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.ha.agreement import AgreementRules, find_agreement, last_boundary
from shalott.broker.rocket.ha.client import ClientRules, HaClient
from shalott.broker.rocket.ha.group_transfer import Ack, GroupTransferService
from shalott.broker.rocket.ha.role_file import RoleRecord, read_role, write_role
from shalott.broker.rocket.ha.server import HaServer, PeerNames
from shalott.broker.rocket.ha.session import SessionRules

log = logging.getLogger("shalott.broker.ha")

STRAY = "anybody"  # who KB-RKT-01 believes


class MasterSlaveReplica:
    """Implements broker.rocket.commitlog.replica.Replica. Made by ``open``; ``fail`` ends the
    node.
    """

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        store: Store,
        book: AddressBook,
        fail: Callable[[str], None],
        record: RoleRecord,
    ) -> None:
        """Use ``open``."""
        self.store = store
        self.on_change: Callable[[], None] = lambda: None
        self._env = env
        self._config = config
        self._book = book
        self._fail = fail
        self._record = record
        # A slave's configuration does not say which kind of master it would be: one of a group
        # that waits for disks waits for slaves too.
        role = config.broker.role
        self._is_sync = role == "SYNC_MASTER" or (role == "SLAVE" and config.store.flush == "sync")
        self._client: HaClient | None = None
        self._agreeing: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._running = False
        self._role: ReplicaRole = "none"
        self._readable_from_start = 0
        self._unconfirmed_end = 0  # where the log ended when this master started again
        self._believed = -1  # KB-RKT-01: the furthest report ever, whoever made it
        self.server = HaServer(
            env,
            lambda: self.store.log,
            session_rules(env, config),
            flushed_only=config.store.flush == "sync" and not env.has_bug("KB-RKT-06"),
            identify=PeerNames(config).name_of,
            on_ack=self._acknowledged,
        )
        self.transfers = GroupTransferService(self._acks)

    @classmethod
    async def open(
        cls,
        env: Env,
        config: RocketConfig,
        store: Store,
        book: AddressBook,
        *,
        fail: Callable[[str], None],
    ) -> MasterSlaveReplica:
        """In the role that it had, or that it is configured for. Raises StorageError."""
        record = await read_role(env.disk)
        if record is None:
            is_master = config.broker.role != "SLAVE"
            master = "" if is_master else first_broker(config)
            record = RoleRecord(is_master=is_master, master=master)
        return cls(env, config, store, book, fail, record)

    # -- Replica -----------------------------------------------------------------------------------

    @property
    def role(self) -> ReplicaRole:
        return self._role

    @property
    def broker_id(self) -> int:
        """A former master that follows has the id after all configured ones: its own is 0."""
        if self._role == "none":
            return -1
        if self._role == "master":
            return 0
        return self._config.broker.broker_id or len(self._config.nodes_with("broker"))

    @property
    def epoch(self) -> int:
        return self._record.epoch

    async def start(self) -> None:
        """Listen, and take the role up. Raises ConfigError if the port is taken."""
        await self.server.start(self._config.bind_host, self._config.ports["ha"])
        self._running = True
        async with self._changing:
            if self._guards_reads():
                self._unconfirmed_end = self.store.log.max_offset
            await self._take_up()

    async def stop(self) -> None:
        async with self._changing:
            self._running = False
            await self._lay_down()
            await self.server.stop()
            self._become("none")

    async def put(self, messages: list[Message]) -> PutResult:
        if self._role != "master":
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="not the master")
        try:
            stage = self.store.append(messages)
        except MessageIllegal as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        except StorageError as error:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        self.server.wake()
        flush, replication = await asyncio.gather(self._flush(stage), self._replicate(stage))
        # As upstream: what replication ended with covers what the flush ended with.
        status = replication if replication is not PutStatus.PUT_OK else flush
        return PutResult(status, stage)

    async def readable(self) -> bool:
        if self._role == "slave":
            return self._record.agreed  # what is beyond will be cut
        return self._role == "master" and not self._unconfirmed_end

    def claim(self) -> ReplicaClaim:
        master = self._config.name if self._role == "master" else self._record.master
        slaves = [name for name in self._config.nodes_with("broker") if name != master]
        return {
            "group": self._config.broker.broker_name,
            "role": self._role,
            "epoch": self.epoch,
            "master": master,
            "mirrors": slaves,
            "synchronised": self._synchronised(),
            "state": self._state(),
            "agreed": self._record.agreed,
        }

    def ha_status(self) -> HaStatus:
        if self._role == "master":
            return self.server.status(self._config.ha.max_gap_not_in_sync_bytes)
        client = None if self._client is None else self._client.status(self._master_address())
        return {
            "master": False,
            "masterCommitLogMaxOffset": 0,
            "inSyncSlaveNums": 0,
            "haConnectionInfo": [],
            "haClientRuntimeInfo": client,
        }

    # -- failover by hand --------------------------------------------------------------------------

    async def promote(self, epoch: int | None = None) -> None:
        """Become the master. ``epoch``: a number above all that the group has had, from whoever
        promotes; by default one more than the last that this node has had.
        """
        async with self._changing:
            if not self._record.agreed:
                raise BrokerError(
                    "this broker does not know yet where its log agrees with its master's"
                )
            await self._lay_down()
            await self._cut_incomplete_message()
            number = self.epoch + 1 if epoch is None else epoch
            self._record = RoleRecord(is_master=True, epoch=number)
            await write_role(self._env.disk, self._record)
            await self._take_up()

    async def follow(self, master: str, epoch: int | None = None) -> None:
        """Become a slave of this node, or follow it instead of another one."""
        if master not in self._config.nodes_with("broker") or master == self._config.name:
            raise BrokerError(f"{master} is no other broker of this group")
        async with self._changing:
            await self._lay_down()
            number = self.epoch if epoch is None else epoch
            self._record = RoleRecord(
                is_master=False, master=master, epoch=number, agreed=self.store.log.max_offset == 0
            )
            await write_role(self._env.disk, self._record)
            await self._take_up()

    async def _lay_down(self) -> None:
        """Neither take messages nor bytes any more."""
        self._become("none")
        self._unconfirmed_end = 0
        self.server.serve(False)
        self.transfers.give_up()
        if self._agreeing is not None:
            self._agreeing.cancel()
            await asyncio.gather(self._agreeing, return_exceptions=True)
            self._agreeing = None
        if self._client is not None:
            await self._client.stop()
            self._client = None

    async def _take_up(self) -> None:
        if not self._running:
            return
        if self._record.is_master:
            # Queue offsets go on where the queues end, so these must be complete (KB-RKT-08).
            self.store.set_confirm_offset(None)
            await self.store.log.flushed(self.store.log.max_offset)
            await self.store.dispatched(self.store.log.max_offset)
            await self.store.recover_queue_offsets()
            self._readable_from_start = self.store.log.max_offset
            self._become("master")
            self.server.serve(True)
            self._confirm()
            return
        self.store.set_confirm_offset(None)
        self._become("slave")
        if self._record.agreed:
            self._start_client()
        else:
            self._agreeing = asyncio.create_task(self._agree(), name="HA agreement")

    async def _cut_incomplete_message(self) -> None:
        """A slave's last frame may have ended in the middle of a message."""
        end = self.store.log.max_offset
        whole = await last_boundary(self.store.log, self.store.dispatched_offset, end)
        await self._cut(whole)

    async def _agree(self) -> None:
        """Follow a master that is another one than before."""
        rules = agreement_rules(self._config)
        while True:
            try:
                agreed = await find_agreement(self.store.log, self._dial_master, rules)
                await self._cut(agreed)
                self._record = RoleRecord(
                    is_master=False, master=self._record.master, epoch=self._record.epoch
                )
                await write_role(self._env.disk, self._record)
                break
            except StorageError as error:
                self._fail(f"the log can't be made to agree with the master's: {error}")
                return
            except (OSError, BrokerError, TimeoutError) as error:
                log.info("no agreement with %s yet: %s", self._record.master, error)
            await pause_ms(self._config.ha.reconnect_interval_ms)
        self._start_client()

    async def _cut(self, offset: int) -> None:
        end = self.store.log.max_offset
        if offset < end:
            await self.store.truncate(offset)
            self._emit("truncated", {"from": end, "to": offset})

    def _start_client(self) -> None:
        rules = client_rules(self._env, self._config)
        self._client = HaClient(self._env, self.store, rules, self._dial_master, self._fail)
        self._client.start()
        self._emit("sync_started", {"master": self._record.master})

    # -- waiting -----------------------------------------------------------------------------------

    async def _flush(self, stage: PutStage) -> PutStatus:
        try:
            async with asyncio.timeout(self._config.store.flush_timeout_ms / 1000):
                if self._config.store.flush == "async":
                    await self.store.log.written(stage.end)
                else:
                    await self.store.log.flushed(stage.end)
        except TimeoutError:
            return PutStatus.FLUSH_DISK_TIMEOUT
        except StorageError:
            return PutStatus.UNKNOWN_ERROR
        return PutStatus.PUT_OK

    async def _replicate(self, stage: PutStage) -> PutStatus:
        if not self._is_sync:
            return PutStatus.PUT_OK
        if not self._is_slave_ok(stage.end):
            return PutStatus.SLAVE_NOT_AVAILABLE
        replicated = await self.transfers.replicated(
            stage.end,
            ack_nums=max(2, self._config.ha.in_sync_replicas),
            timeout_ms=self._config.ha.slave_timeout_ms,
        )
        return PutStatus.PUT_OK if replicated else PutStatus.FLUSH_SLAVE_TIMEOUT

    def _is_slave_ok(self, end: int) -> bool:
        """Upstream asks before it waits: some slave is connected, and the best is not too far."""
        if not self.server.connections:
            return False
        gap = end - self.server.push_to_slave_max_offset()
        return gap < self._config.ha.max_gap_not_in_sync_bytes

    def _acks(self) -> list[Ack]:
        acks = list(self.server.acks())
        if self._env.has_bug("KB-RKT-01"):  # upstream 4.3: one number, raised by any report
            self._believed = max([self._believed, *(ack.offset for ack in acks)])
            acks.append(Ack(STRAY, self._believed))
        return acks

    def _acknowledged(self) -> None:
        self.transfers.notify()
        self._confirm()

    def _confirm(self) -> None:
        """Where readers may go (see above)."""
        if self._role != "master" or not self._guards_reads():
            return
        if self.server.push_to_slave_max_offset() >= self._unconfirmed_end:
            self._unconfirmed_end = 0
        acknowledged = min(self.server.push_to_slave_max_offset(), self.store.log.max_offset)
        self._readable_from_start = max(self._readable_from_start, acknowledged)
        self.store.set_confirm_offset(self._readable_from_start)

    def _guards_reads(self) -> bool:
        return self._is_sync and self._config.store.read_flushed_only

    # -- saying what it is -------------------------------------------------------------------------

    def _become(self, role: ReplicaRole) -> None:
        if role != self._role:
            self._role = role
            self._emit("role", {"end": self.store.log.max_offset} if role == "master" else None)
            self.on_change()

    def _emit(self, kind: str, detail: dict[str, object] | None = None) -> None:
        group = self._config.broker.broker_name
        self._env.events.emit(group, kind, role=self._role, epoch=self.epoch, detail=detail)

    def _synchronised(self) -> list[str]:
        if self._role != "master":
            return []
        gap = self._config.ha.max_gap_not_in_sync_bytes
        infos = self.server.status(gap)["haConnectionInfo"]
        return sorted(dict.fromkeys(info["slave"] for info in infos if info["inSync"]))

    def _state(self) -> str:
        if self._role == "master":
            return "running"
        if not self._record.agreed:
            return "agreeing"
        connected = self._client is not None and self._client.connected
        return "following" if connected else "connecting"

    def _master_address(self) -> str:
        return self._book.advertised(self._record.master, "ha")

    def _dial_master(self) -> tuple[str, int]:
        return self._book.dial(self._master_address())


def first_broker(config: RocketConfig) -> str:
    """Whom a slave follows until somebody says otherwise: roles are configured so."""
    return next(name for name in config.nodes_with("broker") if name != config.name)


# -- rules -----------------------------------------------------------------------------------------
# What the configuration and the bugs that are switched on mean for the parts of HAService.


def session_rules(env: Env, config: RocketConfig) -> SessionRules:
    """A master's."""
    return SessionRules(
        batch_bytes=config.ha.transfer_batch_bytes,
        heartbeat_interval_ms=config.ha.heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha.housekeeping_interval_ms,
        segment_bytes=config.store.segment_bytes,
        last_file_only=config.ha.sync_from_last_file or env.has_bug("KB-RKT-04"),
        trusts_reports=env.has_bug("KB-RKT-01"),
        acks_beyond_end=env.has_bug("KB-RKT-06"),
        stalls_on_missing=env.has_bug("KB-RKT-03"),
    )


def client_rules(env: Env, config: RocketConfig) -> ClientRules:
    """A slave's."""
    return ClientRules(
        heartbeat_interval_ms=config.ha.heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha.housekeeping_interval_ms,
        reconnect_interval_ms=config.ha.reconnect_interval_ms,
        ignores_heartbeats=env.has_bug("KB-RKT-02"),
    )


def agreement_rules(config: RocketConfig) -> AgreementRules:
    """Of a slave that looks for where its log and its master's part."""
    return AgreementRules(
        segment_bytes=config.store.segment_bytes,
        connect_ms=config.ha.reconnect_interval_ms,
        silence_ms=config.ha.housekeeping_interval_ms,
    )
