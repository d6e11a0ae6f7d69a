"""Membership: this member's place in the group's row, and the changes that it makes in the row.

Theory: rabbit/gm.erl. A member that was recorded dead has lost its membership: it must stop and
join anew, and every transaction checks that first. A newcomer reads the row, asks a random live
member to be added on its right, and has those recorded dead that do not answer. Changes and the
call are made elsewhere: the generators here yield what they must have done, and are sent the answer
(blocked.py).
"""

from __future__ import annotations

from collections.abc import Generator

from shalott.broker.rabbit.gm.bugs import GmBugs
from shalott.broker.rabbit.gm.group import (
    AddMember,
    CreateGroup,
    EraseMembers,
    GroupChange,
    LostMembership,
    ReadGroup,
    RecordDead,
    View,
    check_membership,
    group_to_view,
)
from shalott.broker.rabbit.gm.inputs import AskToJoin, JoinAnswered, Transact
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId

# A step that needs an answer before it can go on, and what it comes to.
RowWork = Generator[Transact | AskToJoin, GroupRow | JoinAnswered, GroupRow]
ViewWork = Generator[Transact | AskToJoin, GroupRow | JoinAnswered, View]
MaybeRowWork = Generator[Transact | AskToJoin, GroupRow | JoinAnswered, GroupRow | None]


class Membership:
    """Of the member ``id``. ``row``: the group's, as this node has seen it."""

    def __init__(self, id: MemberId, row: GroupRow | None, bugs: GmBugs) -> None:
        self.row = row
        self._id = id
        self._bugs = bugs
        self._is_in: GroupRow | None = None  # the row in which we were found last

    def see(self, row: GroupRow | None) -> None:
        """The row as the node has it now; an older one than was seen before is ignored."""
        if self.row is None or (row is not None and row.version >= self.row.version):
            self.row = row
        elif row is None:
            self.row = None

    def check(self, row: GroupRow | None) -> GroupRow:
        """The row, if this member is alive in it. Raises LostMembership."""
        if row is not None and self._bugs.ignores_lost_membership:
            # KB-RMQ-06: this was not asked. A member that was recorded dead went on beside the
            # ring, until it looked for its own place in it and crashed on not finding it.
            return row
        if row is None or row is not self._is_in:
            self._is_in = check_membership(self._id, row)
        return self._is_in

    @property
    def _by(self) -> MemberId | None:
        """Who makes a change in the group, to be checked within the transaction."""
        return None if self._bugs.ignores_lost_membership else self._id

    # -- changes -----------------------------------------------------------------------------------

    def read(self, version: int) -> ViewWork:
        """The view of the row at ``version`` or later."""
        row = self.row
        if row is None or row.version < version:
            row = yield from self._transact(ReadGroup(self._by))
        return group_to_view(self.check(row))

    def add(self, newcomer: MemberId) -> RowWork:
        """On this member's right."""
        try:
            return (yield from self._transact(AddMember(left=self._id, newcomer=newcomer)))
        except LostMembership:
            # KB-RMQ-06: record_new_member_in_group took it for granted that it is in the group.
            assert not self._bugs.ignores_lost_membership, "badmatch: not in its own group"
            raise

    def record_dead(self, member: MemberId) -> ViewWork:
        return group_to_view((yield from self._transact(RecordDead(member, by=self._by))))

    def erase(self, members: tuple[MemberId, ...]) -> ViewWork:
        """Dead members of whom nothing is in flight."""
        return group_to_view((yield from self._transact(EraseMembers(members, by=self._by))))

    def _transact(self, change: GroupChange) -> RowWork:
        row = yield Transact(change)
        assert isinstance(row, GroupRow)
        return row

    # -- joining -----------------------------------------------------------------------------------

    def be_added(self, group: str) -> RowWork:
        """The row with this member in it."""
        row = self.row
        while True:
            alive = () if row is None else tuple(m.id for m in row.members if m.alive)
            if row is not None and self._id in alive:
                return (yield from self._added_before(row, alone=len(alive) == 1))
            if not alive:
                row = yield from self._transact(CreateGroup(group, self._id))
                continue
            answer = yield AskToJoin(alive)
            assert isinstance(answer, JoinAnswered)
            if answer.outcome == "joined":
                assert answer.row is not None
                self.row = answer.row
                return answer.row
            if answer.outcome == "dead":
                row = yield from self._bury_candidate(answer.left)
            else:
                row = self.row

    def _added_before(self, row: GroupRow, *, alone: bool) -> RowWork:
        if not alone and not self._bugs.blind_newcomers:
            # Who added us died before its answer and its catchup came: see Member._change_view.
            raise LostMembership("added by a neighbour that died")
        dead = tuple(m.id for m in row.members if not m.alive)
        if dead:
            # The same, and no other member is left. Of these nothing will ever come that could
            # settle them, and a member that isn't settled isn't reported dead.
            row = yield from self._transact(EraseMembers(dead, by=self._by))
        return row

    def _bury_candidate(self, left: MemberId) -> MaybeRowWork:
        try:
            return (yield from self._transact(RecordDead(left, by=None)))
        except LostMembership:  # rmq#950: the group went away in the meantime
            return None
