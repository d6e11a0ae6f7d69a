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
- All other statuses mean: ask again. The message is here, and may be lost.

A broker that `follow`s another one by hand finds out where their logs part, and cuts its own there
(agreement.py), before it appends or acknowledges anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError, MessageIllegal, StorageError
from shalott.broker.base.files import read_file, replace_file
from shalott.broker.rocket.commitlog.api import Message, Store
from shalott.broker.rocket.commitlog.replica import (
    HaStatus,
    PutResult,
    PutStatus,
    ReplicaClaim,
    ReplicaRole,
)
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.ha.agreement import last_boundary
from shalott.broker.rocket.ha.master_side import MasterSide
from shalott.broker.rocket.ha.slave_side import SlaveSide

log = logging.getLogger("shalott.broker.ha")

ROLE_FILE = "ha/role.json"


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
        self._record = record
        self._changing = asyncio.Lock()
        self._running = False
        self._role: ReplicaRole = "none"
        self._master = MasterSide(env, config, store, lambda: self._role == "master")
        self._slave = SlaveSide(
            env,
            config,
            store,
            book,
            agreed=self._agreed,
            followed=lambda: self._emit("sync_started", {"master": self._record.master}),
            fail=fail,
        )
        self.server = self._master.server
        self.transfers = self._master.transfers

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
            self._master.restarts()
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
        return PutResult(await self._master.copied(stage), stage)

    async def readable(self) -> bool:
        if self._role == "slave":
            return self._record.agreed  # what is beyond will be cut
        return self._role == "master" and self._master.is_readable

    def claim(self) -> ReplicaClaim:
        master = self._config.name if self._role == "master" else self._record.master
        slaves = [name for name in self._config.nodes_with("broker") if name != master]
        return {
            "group": self._config.broker.broker_name,
            "role": self._role,
            "epoch": self.epoch,
            "master": master,
            "mirrors": slaves,
            "synchronised": self._master.synchronised() if self._role == "master" else [],
            "state": self._state(),
            "agreed": self._record.agreed,
        }

    def ha_status(self) -> HaStatus:
        if self._role == "master":
            return self.server.status(self._config.ha.max_gap_not_in_sync_bytes)
        return {
            "master": False,
            "masterCommitLogMaxOffset": 0,
            "inSyncSlaveNums": 0,
            "haConnectionInfo": [],
            "haClientRuntimeInfo": self._slave.status(),
        }

    # -- failover by hand --------------------------------------------------------------------------

    async def promote(self, epoch: int | None = None) -> None:
        """Become the master. ``epoch``: a number above all that the group has had, from the
        operator who promotes; by default one more than the last that this node has had.
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
            self._env.witness("failed over", self.store.log.directory)
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
        self._master.lay_down()
        await self._slave.stop()

    async def _take_up(self) -> None:
        if not self._running:
            return
        if self._record.is_master:
            # Queue offsets go on where the queues end, so these must be complete (KB-RKT-08).
            self.store.set_confirm_offset(None)
            await self.store.log.flushed(self.store.log.max_offset)
            await self.store.dispatched(self.store.log.max_offset)
            await self.store.recover_queue_offsets()
            self.store.reader.tell_next_offsets()
            self._master.ready()
            self._become("master")
            self._master.serve()
            return
        self.store.set_confirm_offset(None)
        self._become("slave")
        self._slave.start(self._record.master, agreed=self._record.agreed)

    async def _cut_incomplete_message(self) -> None:
        """A slave's last frame may have ended in the middle of a message."""
        end = self.store.log.max_offset
        whole = await last_boundary(self.store.log, self.store.dispatched_offset, end)
        await self._cut(whole)

    async def _agreed(self, offset: int) -> None:
        """This log is the master's up to there; the rest goes. Raises OSError, BrokerError."""
        await self._cut(offset)
        self._record = RoleRecord(
            is_master=False, master=self._record.master, epoch=self._record.epoch
        )
        await write_role(self._env.disk, self._record)

    async def _cut(self, offset: int) -> None:
        end = self.store.log.max_offset
        if offset < end:
            await self.store.truncate(offset)
            log.warning("%d bytes are cut off behind %d", end - offset, offset)
            self._emit("truncated", {"from": end, "to": offset})

    # -- saying what it is -------------------------------------------------------------------------

    def _become(self, role: ReplicaRole) -> None:
        if role != self._role:
            self._role = role
            self._emit("role", {"end": self.store.log.max_offset} if role == "master" else None)
            self.on_change()

    def _emit(self, kind: str, detail: dict[str, object] | None = None) -> None:
        group = self._config.broker.broker_name
        self._env.events.emit(group, kind, role=self._role, epoch=self.epoch, detail=detail)

    def _state(self) -> str:
        if self._role == "master":
            return "running"
        if not self._record.agreed:
            return "agreeing"
        return "following" if self._slave.is_connected else "connecting"


def first_broker(config: RocketConfig) -> str:
    """Whom a slave follows until an operator says otherwise: roles are configured so."""
    return next(name for name in config.nodes_with("broker") if name != config.name)


# -- the role on the disk --------------------------------------------------------------------------
# Failover by hand is `promote` on one node and `follow` on the others; a restart must not undo it.


class RoleRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``master``: the node that is followed, "" for a master. ``agreed``: whether this log is known
    to be a part of that master's. ``epoch``: of failovers by hand, counted by ours alone.
    """

    is_master: bool
    master: str = ""
    epoch: int = 0
    agreed: bool = True


async def read_role(disk: Disk) -> RoleRecord | None:
    """None if there never was a failover. Raises StorageError if the file makes no sense."""
    text = await read_file(disk, ROLE_FILE)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=RoleRecord)
    except msgspec.DecodeError as error:
        raise StorageError(f"{ROLE_FILE} is no role: {error}") from error


async def write_role(disk: Disk, record: RoleRecord) -> None:
    """Durable when it returns; a crash leaves the old one or the new one."""
    await replace_file(disk, ROLE_FILE, msgspec.json.encode(record))
