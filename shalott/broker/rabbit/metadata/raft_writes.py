"""Writes: what the leader of the tables' Raft group owes to who wrote.

A write is put into the log. When it is applied it is known whether its rows were still as the
writer saw them; then it is answered, but not before every member says that it has applied it too.
A leader that leads no more tells those that wait that the outcome is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.rabbit.metadata import raft_log
from shalott.broker.rabbit.metadata.messages import Applied, Commit, Committed, Conflicted, Member
from shalott.broker.rabbit.metadata.raft_group import TableGroup
from shalott.broker.rabbit.metadata.serving import COMMIT_LATE_MS
from shalott.broker.rabbit.processes.messages import Failed, Message
from shalott.broker.rabbit.processes.runtime import Caller
from shalott.broker.raft.api import Entry


@dataclass(slots=True)
class Pending:
    """A write in the leader's log: its entry's term, and who waits for its outcome."""

    term: int
    caller: Caller
    answer: Message | None = None  # once it is applied here


class Writes:
    """A server's, while it leads."""

    def __init__(self, group: TableGroup, env: Env, node: str) -> None:
        self._group = group
        self._env = env
        self._node = node
        self._pending: dict[int, Pending] = {}  # by index
        self._has: dict[str, Applied] = {}  # what members say that they have

    async def commit(self, request: Commit, caller: Caller) -> Message | None:
        """The answer to ``request``; None if ``caller`` is answered later."""
        group = self._group
        if self._env.buggify("metadata.commit_late"):  # the leader may be busy, or fail meanwhile
            await pause_ms(self._env.rng.random() * COMMIT_LATE_MS)
        if not group.raft.is_ready:
            return Failed("not_leader", group.raft.leader)
        if group.state.members.get(request.member.node) != request.member:
            return Failed("not_member", request.member.node)
        if not group.state.has_majority:
            return Failed("no_majority")
        submitted = group.propose(raft_log.WriteRows(request.member, request.changes))
        if isinstance(submitted, Failed):
            return submitted
        self._pending[submitted.index] = Pending(submitted.term, caller)
        return None

    def applied(self, entry: Entry, outcome: raft_log.Outcome) -> None:
        """An entry of the log was applied here."""
        pending = self._pending.get(entry.index)
        if pending is not None:
            pending.answer = _answer_to(entry, pending, outcome)

    def member_has(self, told: Applied) -> None:
        self._has[told.member.node] = told
        self.answer()

    def answer(self) -> None:
        """Those that every member has; who does not come is dropped."""
        for index, pending in list(self._pending.items()):
            if pending.answer is None:
                return  # nor are those after it applied
            if isinstance(pending.answer, Committed) and not self._is_everywhere(index):
                return
            del self._pending[index]
            pending.caller.reply(pending.answer)

    def end(self) -> None:
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.caller.reply(Failed("leader_lost"))
        self._has.clear()

    def _is_everywhere(self, version: int) -> bool:
        return all(
            node == self._node or self._has_applied(member, version)
            for node, member in self._group.state.members.items()
        )

    def _has_applied(self, member: Member, version: int) -> bool:
        told = self._has.get(member.node)
        return told is not None and told.member == member and told.version >= version


def _answer_to(entry: Entry, pending: Pending, outcome: raft_log.Outcome) -> Message:
    if entry.term != pending.term:
        return Failed("leader_changed")  # another leader's entry stands in its place
    match outcome:
        case raft_log.Written():
            return Committed(entry.index)
        case raft_log.Refused():
            return Conflicted(entry.index)
        case raft_log.NoMajority():
            return Failed("no_majority")
    return Failed("not_member")
