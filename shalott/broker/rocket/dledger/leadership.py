"""Leadership: what a member knows of its Raft group's leader, and how it becomes the master.

A leader takes messages when all that former leaders left is committed and in its consume queues,
for the queue offsets of new messages go on from there. With Raft's commit rule that needs an entry
of its own term: upstream's leader, which appends none unless enableFastAdvanceCommitIndex, may wait
for ever. Ours always appends its no-op, except under KB-DL-01, where entries of older terms are
counted. After broker/dledger/DLedgerRoleChangeHandler.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError, StorageError
from shalott.broker.raft.api import RaftCode, Role
from shalott.broker.raft.group import NotLeader, ProposalTimeout, RaftGroup
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.rocket.commitlog.replica import ReplicaRole
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import AddressBook
from shalott.broker.rocket.dledger.ledger import Ledger
from shalott.broker.rocket.dledger.log import DLedgerLog
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command
from shalott.broker.rocket.remoting.raft_frames import RaftFrames, WireError, decoded_answer
from shalott.broker.rocket.remoting.server import Caller

log = logging.getLogger("shalott.broker.dledger")

TAKE_OVER_RETRY_MS = 100


class Leadership:
    """Implements broker.raft.group.Watcher. ``changed`` is called when role, term or leader have
    changed; ``fail`` ends the node. The group is attached after construction: it wants this.
    """

    def __init__(
        self,
        env: Env,
        broker_name: str,
        ledger: Ledger,
        message_log: DLedgerLog,
        store: MessageStore,
        *,
        changed: Callable[[], None],
        fail: Callable[[str], None],
    ) -> None:
        self.raft_role: Role = "follower"
        self.term = 0
        self.leader = ""
        self._env = env
        self._broker_name = broker_name
        self._ledger = ledger
        self._log = message_log
        self._store = store
        self._changed = changed
        self._fail = fail
        self._group: RaftRunner
        self._ready_term = -1  # the term in which this member is the master
        self._taking_over: asyncio.Task[None] | None = None
        self._more_committed = asyncio.Event()  # a new one after each time

    def attach(self, group: RaftRunner) -> None:
        self._group = group
        self.term = group.term

    async def stop(self) -> None:
        """Nothing is taken over any more."""
        if self._taking_over is not None:
            self._taking_over.cancel()
            await asyncio.gather(self._taking_over, return_exceptions=True)
            self._taking_over = None

    @property
    def role(self) -> ReplicaRole:
        if self.raft_role == "leader":
            return "master" if self._ready_term == self.term else "none"
        return "slave" if self.leader else "none"

    async def in_queues(self, index: int) -> None:
        """Return when all messages up to this entry are in the consume queues."""
        while self._group.committed_index < index:
            await self._more_committed.wait()
        if index > 0:
            await self._store.dispatched(self._ledger.directory.end_of(index))

    def emit(self, kind: str, detail: dict[str, object] | None = None) -> None:
        self._env.events.emit(
            self._broker_name, kind, role=self.role, epoch=self.term, detail=detail
        )

    # -- broker.raft.group.Watcher -----------------------------------------------------------------

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        self.follow(role=role, term=term, leader=leader)

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
        if self._group.committed_index >= from_index:
            self._log.set_committed(from_index - 1)

    def failed(self, reason: str) -> None:
        self._fail(reason)

    def follow(self, *, role: Role, term: int, leader: str) -> None:
        before = self.role, self.term, self.leader
        if role != "leader" or term != self.term:
            self._ready_term = -1
        self.raft_role, self.term, self.leader = role, term, leader
        self._tell_changes(*before)

    def _tell_changes(self, role: ReplicaRole, term: int, leader: str) -> None:
        if self.role != role or (self.term != term and self.role != "none"):
            self.emit("role", {"end": self._log.max_offset} if self.role == "master" else None)
        if (self.role, self.term, self.leader) != (role, term, leader):
            self._changed()

    # -- becoming the master -----------------------------------------------------------------------

    async def _take_over(self, term: int) -> None:
        """Upstream polls for ledgerEnd == committed and dispatchBehind == 0."""
        while self.raft_role == "leader" and self.term == term:
            if self._env.has_bug("KB-DL-13") and self._is_committed_beyond_end():
                await pause_ms(TAKE_OVER_RETRY_MS)  # as upstream, which waits for equality
                continue
            try:
                await self._ledger.settle()
                await self._store.dispatched(self._log.committed_offset)
                await self._store.recover_queue_offsets()
            except StorageError as error:
                log.warning("the leader of term %d is not ready: %s", term, error)
                await pause_ms(TAKE_OVER_RETRY_MS)
                continue
            if self.raft_role == "leader" and self.term == term:
                before = self.role, self.term, self.leader
                self._store.reader.tell_next_offsets()
                self._ready_term = term
                self._tell_changes(*before)
            return

    def _is_committed_beyond_end(self) -> bool:
        return self._group.committed_index > self._ledger.last_index


# -- reads at a member that does not lead ----------------------------------------------------------
# ReadIndex for followers: the leader confirms with a majority that it still leads, and says how
# much is committed; a follower whose queues have that much shows nothing older than was
# acknowledged when it was asked. Asked with METADATA (50000), which every member serves on its Raft
# port. An original's answer has no such index: behind one, a follower shows what it has, as
# upstream's do.


class LeaderReads:
    """``addresses``: of the members' Raft ports, by name."""

    def __init__(
        self, book: AddressBook, frames: RaftFrames, addresses: Mapping[str, str], timeout_ms: int
    ) -> None:
        self._client = RemotingClient(book.dial)
        self._frames = frames
        self._addresses = dict(addresses)
        self._timeout_ms = timeout_ms
        self._group: RaftGroup | None = None

    def serve(self, group: RaftGroup) -> None:
        """Answer for this member from now on."""
        self._group = group

    async def close(self) -> None:
        await self._client.close()

    async def index_of(self, leader: str) -> int:
        """Up to where the leader's group is committed; 0 if an original leads, which can't say.
        Raises BrokerError if it does not say."""
        request = self._frames.metadata(leader, read_index=True)
        answer = decoded_answer(
            await self._client.invoke(self._addresses[leader], request, self._timeout_ms)
        )
        if answer.code != RaftCode.SUCCESS:
            raise BrokerError(f"{leader} does not lead, or not for sure: {answer.code}")
        return answer.read_index or 0

    async def handle(self, command: Command, caller: Caller) -> Command:
        """METADATA: who leads, as far as this member knows, and for ours how much is committed."""
        try:
            request = self._frames.checked_request(command)
        except WireError as error:
            return self._frames.refusal(command, error)
        if self._group is None:
            return self._frames.metadata_answer(RaftCode.ILLEGAL_MEMBER_STATE)
        leader, peers = self._group.leader or None, self._addresses
        if not request.read_index:
            return self._frames.metadata_answer(RaftCode.SUCCESS, leader, peers)
        try:
            index = await self._group.read_index(self._timeout_ms)
        except (NotLeader, ProposalTimeout):
            return self._frames.metadata_answer(RaftCode.NOT_LEADER, leader, peers)
        return self._frames.metadata_answer(RaftCode.SUCCESS, leader, peers, index)
