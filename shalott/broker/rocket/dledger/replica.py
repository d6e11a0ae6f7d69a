"""DLedgerReplica: a broker whose log is a Raft group's.

Sources: store/dledger/DLedgerCommitLog.java, broker/dledger/DLedgerRoleChangeHandler.java;
docs/protocols.md 5.6. The leader is the master. It takes messages when all that former leaders left
is committed and in its consume queues, for the queue offsets of new messages go on from there. With
Raft's commit rule that needs an entry of its own term: upstream's leader, which appends none unless
enableFastAdvanceCommitIndex, may wait for ever. Ours always appends its no-op, except under
KB-DL-01, where entries of older terms are counted.

What SEND_OK promises: a majority has the message, durably as ledger.py says, and no leader will be
without it. A send that got no majority in time is undecided: the entry is in the leader's log, and
may be committed any time or be overwritten.

Reads. Under read_index a broker answers when a majority has confirmed who leads, and when its own
queues have all that was committed by then: the leader asks its group, a follower its leader
(reading.py). Without (upstream, and KB-DL-22 whatever is configured) everybody answers from what it
has, a deposed leader too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError, DiskFull, MessageIllegal, StorageError
from shalott.broker.raft.api import RaftCode, RaftSettings, Role
from shalott.broker.raft.group import Busy, NotLeader, ProposalLost, ProposalTimeout, Transport
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.rocket.commitlog.api import Message, PutStage
from shalott.broker.rocket.commitlog.replica import (
    HaStatus,
    PutResult,
    PutStatus,
    ReplicaClaim,
    ReplicaRole,
)
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.dledger.leader_reads import LeaderReads
from shalott.broker.rocket.dledger.ledger import Ledger
from shalott.broker.rocket.dledger.log import DLedgerLog, PartlyAppended
from shalott.broker.rocket.remoting.command import RequestCode
from shalott.broker.rocket.remoting.raft_transport import RaftTransport, settings_of

log = logging.getLogger("shalott.broker.dledger")

TAKE_OVER_RETRY_MS = 100


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
        self._fail = fail
        self._members = config.nodes_with("broker")
        self.group = RaftRunner(
            env,
            self._members,
            settings=_settings(env, config),
            storage=ledger,
            transport=transport,
            watcher=self,
        )
        self._raft_role: Role = "follower"
        self._term = self.group.term
        self._leader = ""
        self._ready_term = -1  # the term in which this member is the master
        self._taking_over: asyncio.Task[None] | None = None
        self._reads = reads
        self._more_committed = asyncio.Event()  # a new one after each time
        reads.serve(self.group)
        message_log.submit = self.group.submit
        ledger.before_cut = self._before_cut
        ledger.cut_listener = self._cut

    @classmethod
    async def open(
        cls,
        env: Env,
        config: RocketConfig,
        book: AddressBook,
        *,
        fail: Callable[[str], None],
    ) -> DLedgerReplica:
        """Recover the ledger and the store on it. Raises StorageError."""
        ledger = await Ledger.open(env, config.store.segment_bytes, config.raft.flush_interval_ms)
        message_log = DLedgerLog(ledger)
        store = await MessageStore.open(env, config.store, message_log=message_log)
        store.failure_listener = lambda error: fail(str(error))
        addresses = {
            member: book.advertised(member, "raft") for member in config.nodes_with("broker")
        }
        reads = LeaderReads(book, addresses, config.raft.ack_timeout_ms)
        transport = RaftTransport(
            config.broker.broker_name,
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
        if self._raft_role == "leader":
            return "master" if self._ready_term == self._term else "none"
        return "slave" if self._leader else "none"

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
        return self._term

    async def start(self) -> None:
        """Raises ConfigError if the port is taken."""
        await self.group.start()

    async def stop(self) -> None:
        await self._end_taking_over()
        await self.group.stop()
        await self._reads.close()
        self._changed(role="follower", term=self._term, leader="")

    async def put(self, messages: list[Message]) -> PutResult:
        if self.role != "master":
            leads = self._raft_role == "leader"
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
                await self._in_queues(await self._read_index())
        except (BrokerError, TimeoutError):
            return False
        return True

    async def _read_index(self) -> int:
        """Raises BrokerError if nobody is sure."""
        match self.role:
            case "master":
                return await self.group.read_index(self._config.raft.ack_timeout_ms)
            case "slave":
                return await self._reads.index_of(self._leader)
            case _:
                raise NotLeader("")

    async def _in_queues(self, index: int) -> None:
        """Return when all messages up to this entry are in the consume queues."""
        while self.group.committed_index < index:
            await self._more_committed.wait()
        if index > 0:
            await self.store.dispatched(self._ledger.directory.end_of(index))

    def claim(self) -> ReplicaClaim:
        return {
            "group": self._config.broker.broker_name,
            "role": self.role,
            "epoch": self._term,
            "master": self._leader,
            "mirrors": [name for name in self._members if name != self._leader],
            "synchronised": self._synchronised(),
            "state": "running" if self.role == "master" else self._raft_role,
            "committed_index": self.group.committed_index,
            "end_index": self._ledger.last_index,
        }

    def _synchronised(self) -> list[str]:
        """Who has all that is committed, as the leader knows it."""
        if self._raft_role != "leader":
            return []
        committed = self.group.committed_index
        return sorted(name for name, end in self.group.matches().items() if end >= committed)

    def ha_status(self) -> HaStatus:
        directory, last = self._ledger.directory, self._ledger.last_index
        matches = self.group.matches() if self._raft_role == "leader" else {}
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

    # -- broker.raft.group.Watcher -----------------------------------------------------------------

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        self._changed(role=role, term=term, leader=leader)

    def leader_ready(self, term: int) -> None:
        if self._taking_over is not None:
            self._taking_over.cancel()
        self._taking_over = asyncio.create_task(self._take_over(term), name="DLedger take over")

    def committed(self, index: int) -> None:
        self._log.set_committed(index)
        more, self._more_committed = self._more_committed, asyncio.Event()
        more.set()

    def truncated(self, from_index: int, last_index: int) -> None:
        """Of committed entries only where a bug lets the core commit too much."""
        if self.group.committed_index >= from_index:
            self._log.set_committed(from_index - 1)

    def failed(self, reason: str) -> None:
        self._fail(reason)

    def _changed(self, *, role: Role, term: int, leader: str) -> None:
        before = self.role, self._term, self._leader
        if role != "leader" or term != self._term:
            self._ready_term = -1
        self._raft_role, self._term, self._leader = role, term, leader
        self._tell_changes(*before)

    def _tell_changes(self, role: ReplicaRole, term: int, leader: str) -> None:
        if self.role != role or (self._term != term and self.role != "none"):
            self._emit("role", {"end": self._log.max_offset} if self.role == "master" else None)
        if (self.role, self._term, self._leader) != (role, term, leader):
            self.on_change()

    # -- becoming the master -----------------------------------------------------------------------

    async def _take_over(self, term: int) -> None:
        """Upstream polls for ledgerEnd == committed and dispatchBehind == 0."""
        while self._raft_role == "leader" and self._term == term:
            if self._env.has_bug("KB-DL-13") and self._is_committed_beyond_end():
                await pause_ms(TAKE_OVER_RETRY_MS)  # as upstream, which waits for equality
                continue
            try:
                await self._ledger.settle()
                await self.store.dispatched(self._log.committed_offset)
                await self.store.recover_queue_offsets()
            except StorageError as error:
                log.warning("the leader of term %d is not ready: %s", term, error)
                await pause_ms(TAKE_OVER_RETRY_MS)
                continue
            if self._raft_role == "leader" and self._term == term:
                before = self.role, self._term, self._leader
                self._ready_term = term
                self._tell_changes(*before)
            return

    def _is_committed_beyond_end(self) -> bool:
        return self.group.committed_index > self._ledger.last_index

    async def _end_taking_over(self) -> None:
        if self._taking_over is not None:
            self._taking_over.cancel()
            await asyncio.gather(self._taking_over, return_exceptions=True)
            self._taking_over = None

    # -- the ledger is cut -------------------------------------------------------------------------

    async def _before_cut(self, position: int) -> None:
        """What is cut was never committed, so no queue knows of it; but see ``truncated``."""
        if position < self.store.dispatched_offset:
            await self.store.cut_queues(position)

    def _cut(self, before: int, after: int) -> None:
        self._emit("truncated", {"from": before, "to": after})

    def _emit(self, kind: str, detail: dict[str, object] | None = None) -> None:
        group = self._config.broker.broker_name
        self._env.events.emit(group, kind, role=self.role, epoch=self._term, detail=detail)


def _settings(env: Env, config: RocketConfig) -> RaftSettings:
    settings = settings_of(config.raft)
    needed = settings.no_op_on_election or not env.has_bug("KB-DL-01")
    return msgspec.structs.replace(settings, no_op_on_election=needed)


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
