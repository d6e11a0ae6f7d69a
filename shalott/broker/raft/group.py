"""RaftGroup: this node's member of a Raft group as its users see it, and what they bring.

Implemented by RaftRunner (runner.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shalott.broker.base.errors import BrokerError
from shalott.broker.raft import api
from shalott.broker.raft.api import Entry, Role, Snapshot


class NotLeader(BrokerError):
    """Nothing was appended. ``leader``: the name of the member that may lead, or ""."""

    def __init__(self, leader: str) -> None:
        super().__init__(f"not the leader, which is {leader or 'unknown'}")
        self.leader = leader


class Busy(BrokerError):
    """Nothing was appended: too much is pending (LEADER_PENDING_FULL), or the leadership is being
    handed over."""


class ProposalLost(BrokerError):
    """Another leader's entry was committed in the proposal's place: it will never be applied."""


class ProposalTimeout(BrokerError):
    """Unknown: the entry was appended, and may be committed any time or never."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An entry in the leader's log. ``committed`` gives its index when it is committed and applied
    here, or raises ProposalLost, or stays undecided for as long as that is unknown."""

    index: int
    term: int
    committed: asyncio.Future[int]


class StateMachine(Protocol):
    """What a group replicates. Called in the order of the log, each entry once a life; no-ops of
    leaders (empty data) are not shown."""

    def apply(self, entries: Sequence[Entry]) -> None: ...

    def take_snapshot(self) -> bytes:
        """The whole state after what was applied last."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Forget everything, and take this state."""
        ...


class Watcher(Protocol):
    """Told of what changes, in the event loop, at once; it must not block."""

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        """``leader``: its name; "" while there is none that this member knows of."""
        ...

    def leader_ready(self, term: int) -> None:
        """This member leads, and all that former leaders committed is applied here."""
        ...

    def committed(self, index: int) -> None:
        """All up to this entry is committed, and applied where there is a state machine."""
        ...

    def truncated(self, from_index: int, last_index: int) -> None:
        """These entries, which were never committed, are gone from this member's log."""
        ...

    def failed(self, reason: str) -> None:
        """The disk failed for good: the node must give itself up."""
        ...


class RaftGroup(Protocol):
    """One member. All names are nodes' names."""

    @property
    def role(self) -> Role: ...

    @property
    def term(self) -> int: ...

    @property
    def leader(self) -> str: ...

    @property
    def is_ready(self) -> bool:
        """It leads, and has applied all that former leaders committed."""
        ...

    @property
    def committed_index(self) -> int: ...

    @property
    def applied_index(self) -> int: ...

    @property
    def waiting(self) -> int:
        """Proposals and reads that have no answer yet."""
        ...

    def submit(self, data: bytes) -> Submitted:
        """Append at once, to be replicated. Raises NotLeader or Busy."""
        ...

    async def propose(self, data: bytes, timeout_ms: float) -> int:
        """Append; returns the index when the entry is committed and applied here. Raises NotLeader,
        Busy, ProposalLost (definite) and ProposalTimeout (unknown)."""
        ...

    async def read_index(self, timeout_ms: float) -> int:
        """When it returns, the state machine here shows all that was committed when this was
        called. Raises NotLeader, and ProposalTimeout if no quorum answers."""
        ...

    def transfer(self, to: str) -> None:
        """Begin to hand the leadership over, if this member leads."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


# -- what users of a group bring -------------------------------------------------------------------


class Transport(Protocol):
    """What the runner needs of a network."""

    async def start(self, receive: Callable[[str, api.Message], None]) -> None:
        """``receive(sender, message)`` is called for all that comes."""
        ...

    async def stop(self) -> None: ...

    def send(self, to: str, message: api.Message) -> None:
        """Now or never: whether it arrived is not told."""
        ...
