"""A Raft group of which the test is all the other members: nothing is committed but by its hand."""

from __future__ import annotations

import asyncio

from shalott.broker.raft.api import Entry, Role
from shalott.broker.raft.group import (
    Busy,
    NotLeader,
    ProposalLost,
    ProposalTimeout,
    StateMachine,
    Submitted,
)


class HandGroup:
    """Implements broker.raft.group.RaftGroup."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self.role: Role = "leader"
        self.term = 1
        self.leader = "n1"
        self.is_full = False
        self.has_quorum = True
        self.reads = 0
        self.committed_index = 0
        self.pending: list[tuple[Submitted, bytes]] = []

    @property
    def is_ready(self) -> bool:
        return self.role == "leader"

    @property
    def waiting(self) -> int:
        return 0

    @property
    def applied_index(self) -> int:
        return self.committed_index

    def submit(self, data: bytes) -> Submitted:
        if self.role != "leader":
            raise NotLeader(self.leader)
        if self.is_full:
            raise Busy("LEADER_PENDING_FULL")
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        index = self.committed_index + len(self.pending) + 1
        self.pending.append((Submitted(index, self.term, committed), data))
        return self.pending[-1][0]

    def commit(self, count: int = 1) -> None:
        """The oldest that are pending."""
        for _ in range(count):
            submitted, data = self.pending.pop(0)
            self.committed_index = submitted.index
            self.machine.apply([Entry(submitted.index, submitted.term, data)])
            submitted.committed.set_result(submitted.index)

    def lose(self) -> None:
        """All that is pending: another leader has written over it."""
        self.role, self.leader = "follower", "n2"
        self.term += 1
        pending, self.pending = self.pending, []
        for submitted, _ in pending:
            submitted.committed.set_exception(ProposalLost())

    async def propose(self, data: bytes, timeout_ms: float) -> int:
        raise NotImplementedError

    async def read_index(self, timeout_ms: float) -> int:
        self.reads += 1
        if self.role != "leader":
            raise NotLeader(self.leader)
        if not self.has_quorum:
            raise ProposalTimeout
        return self.committed_index

    def transfer(self, to: str) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """It runs."""

    async def stop(self) -> None:
        """Nothing to stop."""
