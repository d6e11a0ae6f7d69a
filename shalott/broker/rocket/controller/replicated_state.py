"""The controllers' state as one controller has it: replicated by Raft, decided on by the leader.

The leader computes each decision against what it would be if all that it has proposed were
committed (``_ahead``), proposes the events and answers when they are committed and applied, or when
five seconds are over and the outcome is unknown. A decision without events may rest on proposals
that are still under way, and is answered after these. Only a leader that has applied everything of
its predecessors decides, which its first, empty entry tells it; when it leads no more, what it
looked ahead to is forgotten. After DLedgerController's event scheduler and state machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shalott.broker.raft.api import Entry, Snapshot
from shalott.broker.raft.group import (
    Busy,
    NotLeader,
    ProposalLost,
    ProposalTimeout,
    RaftGroup,
    Submitted,
)
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.decisions import Decision
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response

COMMIT_TIMEOUT_MS = 5000
REQUESTS_MAX = 1024

Applied = Callable[[cs.Event, cs.State, int], None]  # event, the state after it, the entry's term


class ReplicatedState:
    """A raft.group.StateMachine. ``applied`` is what is committed, as far as this node knows;
    ``on_applied`` hears of each event; ``address`` gives that of a node's controller. The group is
    attached after construction: it wants this."""

    def __init__(self, node: str, on_applied: Applied, address: Callable[[str], str]) -> None:
        self.applied = cs.State()
        self._node = node
        self._on_applied = on_applied
        self._address = address
        self._group: RaftGroup | None = None
        self._ahead: cs.State | None = None
        self._last: Submitted | None = None  # the newest proposal of this tenure
        self._waiting = 0

    def attach(self, group: RaftGroup) -> None:
        """Before anything is asked of it."""
        self._group = group

    @property
    def group(self) -> RaftGroup:
        assert self._group is not None, "not attached to a group"
        return self._group

    # -- StateMachine ------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for event in cs.decode_events(entry.data):
                cs.apply(self.applied, event)
                self._on_applied(event, self.applied, entry.term)

    def take_snapshot(self) -> bytes:
        return cs.encode(self.applied)

    def restore(self, snapshot: Snapshot) -> None:
        self.applied = cs.decode(snapshot.data)

    # -- a tenure ----------------------------------------------------------------------------------

    @property
    def ahead(self) -> cs.State | None:
        """What a leader decides on; None if this is none, or is not ready yet."""
        return self._ahead

    def begin(self) -> None:
        """This controller leads, and has applied all that its predecessors committed."""
        self._ahead, self._last = self.applied.copy(), None

    def end(self) -> None:
        """It leads no more. Who waits for a proposal goes on waiting: it may be committed yet."""
        self._ahead, self._last = None, None

    # -- requests ----------------------------------------------------------------------------------

    async def decide(self, compute: Callable[[cs.State], Decision]) -> Command:
        """The answer to a request that may change something, once that is certain."""
        if self._waiting >= REQUESTS_MAX:
            return response(ResponseCode.SYSTEM_BUSY, f"{REQUESTS_MAX} requests are waiting")
        self._waiting += 1
        try:
            return await self._decide(compute)
        finally:
            self._waiting -= 1

    async def _decide(self, compute: Callable[[cs.State], Decision]) -> Command:
        if self._ahead is None:
            return self._not_leader()
        decision = compute(self._ahead)
        if decision.events:
            try:
                self._last = self._propose(decision.events)
            except NotLeader:
                return self._not_leader()
            except Busy as error:
                return response(ResponseCode.SYSTEM_BUSY, str(error))
        return await self._once_certain(decision.answer)

    def _propose(self, events: tuple[cs.Event, ...]) -> Submitted:
        """Raises NotLeader and Busy; then nothing was proposed."""
        assert self._ahead is not None
        # An event that breaks an invariant must fail here, and not on every controller later.
        ahead = self._ahead.copy()
        for event in events:
            cs.apply(ahead, event)
        submitted = self.group.submit(cs.encode_events(events))
        self._ahead = ahead
        return submitted

    async def _once_certain(self, answer: Command) -> Command:
        """``answer``, when the proposals that it rests on are committed."""
        proposal = self._last
        if proposal is None:
            return answer
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_MS / 1000):
                await asyncio.shield(proposal.committed)
        except ProposalLost:
            return self._not_leader()
        except (TimeoutError, ProposalTimeout):
            remark = f"nobody knows whether entry {proposal.index} will be committed"
            return response(ResponseCode.SYSTEM_ERROR, remark)
        return answer

    async def look(self, compute: Callable[[cs.State], Decision], *, linearizable: bool) -> Command:
        """The answer to a request that changes nothing: of what is applied here. Unless it is to be
        ``linearizable``, a leader that was deposed and doesn't know it yet answers stale things
        (docs/evidence/original-sources.md, finding g), as upstream does by default.
        """
        if self._ahead is None:
            return self._not_leader()
        if linearizable:
            try:
                await self.group.read_index(COMMIT_TIMEOUT_MS)
            except NotLeader:
                return self._not_leader()
            except ProposalTimeout:
                remark = f"no quorum confirmed the leader in {COMMIT_TIMEOUT_MS} ms"
                return response(ResponseCode.SYSTEM_BUSY, remark)
        return compute(self.applied).answer

    def _not_leader(self) -> Command:
        leader = self.group.leader
        if leader == self._node:
            leader = ""  # not yet, or not any more
        address = self._address(leader) if leader else ""
        ext = {"controllerLeaderId": leader, "controllerLeaderAddress": address}
        remark = f"the leader of the controllers is {leader or 'not known'}"
        return response(ResponseCode.CONTROLLER_NOT_LEADER, remark, ext)
