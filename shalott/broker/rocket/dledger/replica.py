"""DLedgerReplica: a broker whose log is a Raft group's.

Source: store/dledger/DLedgerCommitLog.java; docs/protocols.md 5.6. The leader is the master, once
it is ready (leadership.py).

What SEND_OK promises: a majority has the message, durably as ledger.py says, and no leader will be
without it. A send that got no majority in time is undecided: the entry is in the leader's log, and
may be committed any time or be overwritten.

Reads. Under read_index a broker answers when a majority has confirmed who leads, and when its own
queues have all that was committed by then: the leader asks its group, a follower its leader
(leadership.py). Without (upstream, and KB-DL-22 always) every member answers from what it
has, a deposed leader too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError, DiskFull, MessageIllegal, StorageError
from shalott.broker.raft.api import RaftCode, RaftSettings
from shalott.broker.raft.group import Busy, NotLeader, ProposalLost, ProposalTimeout, Transport
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.rocket.commitlog.api import Message, PartlyAppended, PutStage
from shalott.broker.rocket.commitlog.replica import (
    HaStatus,
    PutResult,
    PutStatus,
    ReplicaClaim,
    ReplicaRole,
)
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.dledger.entry import NO_OP
from shalott.broker.rocket.dledger.leadership import LeaderReads, Leadership
from shalott.broker.rocket.dledger.ledger import Ledger
from shalott.broker.rocket.dledger.ledger_places import LedgerPlaces
from shalott.broker.rocket.dledger.log import DLedgerLog
from shalott.broker.rocket.remoting.command import RequestCode
from shalott.broker.rocket.remoting.raft_frames import RaftFrames
from shalott.broker.rocket.remoting.raft_transport import RaftTransport, settings_of


class DLedgerReplica:
    """Implements broker.rocket.commitlog.replica.Replica. Made by ``open``; ``close`` it after
    ``stop``.
    """

    store: MessageStore

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        ledger: Ledger,
        message_log: DLedgerLog,
        store: MessageStore,
        transport: Transport,
        reads: LeaderReads,
        fail: Callable[[str], None],
    ) -> None:
        """Use ``open``."""
        self.store = store
        self.on_change: Callable[[], None] = lambda: None
        self._env = env
        self._config = config
        self._ledger = ledger
        self._log = message_log
        self._leadership = Leadership(
            env,
            config.broker.broker_name,
            ledger,
            message_log,
            store,
            changed=lambda: self.on_change(),
            fail=fail,
        )
        self._members = config.nodes_with("broker")
        self.group = RaftRunner(
            env,
            self._members,
            settings=_settings(env, config),
            storage=ledger,
            transport=transport,
            watcher=self._leadership,
        )
        self._leadership.attach(self.group)
        self._reads = reads
        reads.serve(self.group)
        message_log.submit = self.group.submit
        ledger.writer.before_cut = self._before_cut
        ledger.cut_listener = self._cut

    @classmethod
    async def open(
        cls, env: Env, config: RocketConfig, book: AddressBook, *, fail: Callable[[str], None]
    ) -> DLedgerReplica:
        """Recover the ledger and the store on it. Raises StorageError."""
        ledger = await Ledger.open(env, config.store.segment_bytes, config.raft.flush_interval_ms)
        message_log = DLedgerLog(ledger)
        store = await MessageStore.open(env, config.store, message_log=message_log)
        store.failure_listener = lambda error: fail(str(error))
        addresses = {
            member: book.advertised(member, "raft") for member in config.nodes_with("broker")
        }
        frames = RaftFrames(config.broker.broker_name, config.name, LedgerPlaces(ledger))
        reads = LeaderReads(book, frames, addresses, config.raft.ack_timeout_ms)
        transport = RaftTransport(
            frames,
            addresses,
            host=config.bind_host,
            port=config.ports["raft"],
            dial=book.dial,
            settings=_settings(env, config),
            handlers={RequestCode.DLEDGER_METADATA: reads.handle},
        )
        return cls(env, config, ledger, message_log, store, transport, reads, fail)

    async def close(self) -> None:
        """After ``stop``: flush and close the files. Raises StorageError."""
        await self.store.close()

    # -- Replica -----------------------------------------------------------------------------------

    @property
    def role(self) -> ReplicaRole:
        return self._leadership.role

    @property
    def broker_id(self) -> int:
        """The leader registers as 0, the others by their place among the members, from 1 on."""
        match self.role:
            case "master":
                return 0
            case "slave":
                return self._members.index(self._config.name) + 1
            case _:
                return -1

    @property
    def epoch(self) -> int:
        return self._leadership.term

    async def start(self) -> None:
        """Raises ConfigError if the port is taken."""
        await self.group.start()

    async def stop(self) -> None:
        await self._leadership.stop()
        await self.group.stop()
        await self._reads.close()
        self._leadership.follow(role="follower", term=self.epoch, leader="")

    async def put(self, messages: list[Message]) -> PutResult:
        if self.role != "master":
            leads = self._leadership.raft_role == "leader"
            return _refused(RaftCode.LEADER_NOT_READY if leads else RaftCode.NOT_LEADER)
        try:
            stage = self.store.append(messages)
        except MessageIllegal as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        except PartlyAppended as error:
            return PutResult(PutStatus.UNKNOWN_ERROR, PutStage(), str(error))
        except (BrokerError, StorageError) as error:
            return _refused(code_of(error))
        return await self._committed(stage)

    async def _committed(self, stage: PutStage) -> PutResult:
        """Wait for the last entry: in one term, those before it are committed with it."""
        submitted = self._log.take_submitted()
        last = submitted[-1].committed
        try:
            async with asyncio.timeout(self._config.raft.ack_timeout_ms / 1000):
                await asyncio.shield(last)
        except (TimeoutError, ProposalTimeout):
            code = RaftCode.WAIT_QUORUM_ACK_TIMEOUT
            return PutResult(status_of(code), stage, code.name)
        except ProposalLost as error:
            if len(submitted) == 1:
                return _refused(code_of(error))
            return PutResult(PutStatus.UNKNOWN_ERROR, stage, str(error))
        return PutResult(PutStatus.PUT_OK, stage)

    async def readable(self) -> bool:
        if not self._config.raft.read_index or self._env.has_bug("KB-DL-22"):
            return self.role != "none"
        try:
            async with asyncio.timeout(self._config.raft.ack_timeout_ms / 1000):
                await self._leadership.in_queues(await self._read_index())
        except (BrokerError, TimeoutError):
            return False
        return True

    async def _read_index(self) -> int:
        """Raises BrokerError if no leader is sure."""
        match self.role:
            case "master":
                return await self.group.read_index(self._config.raft.ack_timeout_ms)
            case "slave":
                return await self._reads.index_of(self._leadership.leader)
            case _:
                raise NotLeader("")

    def claim(self) -> ReplicaClaim:
        return {
            "group": self._config.broker.broker_name,
            "role": self.role,
            "epoch": self._leadership.term,
            "master": self._leadership.leader,
            "mirrors": [name for name in self._members if name != self._leadership.leader],
            "synchronised": self._synchronised(),
            "state": "running" if self.role == "master" else self._leadership.raft_role,
            "committed_index": self.group.committed_index,
            "end_index": self._ledger.last_index,
        }

    def _synchronised(self) -> list[str]:
        """Who has all that is committed, as the leader knows it."""
        if self._leadership.raft_role != "leader":
            return []
        committed = self.group.committed_index
        return sorted(name for name, end in self.group.matches().items() if end >= committed)

    def ha_status(self) -> HaStatus:
        directory, last = self._ledger.directory, self._ledger.last_index
        matches = self.group.matches() if self._leadership.raft_role == "leader" else {}
        synchronised = self._synchronised()
        return {
            "master": self.role == "master",
            "masterCommitLogMaxOffset": self._log.committed_offset,
            "inSyncSlaveNums": len(synchronised),
            "haConnectionInfo": [
                {
                    "addr": name,
                    "slaveAckOffset": directory.end_of(min(end, last)),
                    "diff": self._log.max_offset - directory.end_of(min(end, last)),
                    "inSync": name in synchronised,
                    "transferredByteInSecond": 0,
                    "transferFromWhere": directory.end_of(min(end, last)),
                }
                for name, end in sorted(matches.items())
            ],
        }

    # -- the ledger is cut -------------------------------------------------------------------------

    async def _before_cut(self, position: int) -> None:
        """What is cut was never committed, so no queue knows of it; but see ``truncated``."""
        if position < self.store.dispatched_offset:
            await self.store.cut_queues(position)

    def _cut(self, before: int, after: int) -> None:
        self._leadership.emit("truncated", {"from": before, "to": after})


def _settings(env: Env, config: RocketConfig) -> RaftSettings:
    settings = settings_of(config.raft)
    needed = settings.no_op_on_election or not env.has_bug("KB-DL-01")
    return msgspec.structs.replace(settings, no_op_on_election=needed, no_op=NO_OP)


def _refused(code: RaftCode) -> PutResult:
    """Nothing was appended, or what was is known to be gone."""
    return PutResult(status_of(code), reason=code.name)


# -- outcomes of proposals -------------------------------------------------------------------------
# What becomes of a proposal: DLedger's result codes, and what a broker makes of them.
#
# Sources: dledger/protocol/DLedgerResponseCode.java and the put path of
# store/dledger/DLedgerCommitLog.java; docs/protocols.md 5.2, 5.6.


def status_of(code: RaftCode) -> PutStatus:
    match code:
        case RaftCode.SUCCESS:
            return PutStatus.PUT_OK
        case (
            RaftCode.INCONSISTENT_LEADER
            | RaftCode.NOT_LEADER
            | RaftCode.LEADER_NOT_READY
            | RaftCode.LEADER_TRANSFERRING
            | RaftCode.DISK_FULL
        ):
            return PutStatus.SERVICE_NOT_AVAILABLE
        case RaftCode.WAIT_QUORUM_ACK_TIMEOUT:
            return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        case RaftCode.LEADER_PENDING_FULL:
            return PutStatus.OS_PAGE_CACHE_BUSY
        case _:
            return PutStatus.UNKNOWN_ERROR


def code_of(error: BrokerError) -> RaftCode:
    """Of what a Raft group raised. A proposal that another leader's entry replaced (TERM_CHANGED)
    does not exist, and upstream's client hears of it as of a member that is not the leader.
    """
    match error:
        case NotLeader() | ProposalLost():
            return RaftCode.NOT_LEADER
        case Busy():
            is_full = "LEADER_PENDING_FULL" in str(error)
            return RaftCode.LEADER_PENDING_FULL if is_full else RaftCode.LEADER_TRANSFERRING
        case ProposalTimeout():
            return RaftCode.WAIT_QUORUM_ACK_TIMEOUT
        case DiskFull():
            return RaftCode.DISK_FULL
        case _:
            return RaftCode.DISK_ERROR
