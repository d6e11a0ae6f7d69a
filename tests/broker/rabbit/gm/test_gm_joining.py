"""A member that is taken into the ring by one that dies at once."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.gm.group import EraseMembers, RecordDead, apply_change
from shalott.broker.rabbit.metadata.records import GroupMember, GroupRow, MemberId
from shalott.broker.rabbit.processes.messages import Pid

pytestmark = pytest.mark.unit

LEFT = MemberId(1, Pid("a", 1, 1))


def only(outputs: list[gm.Output]) -> gm.Output:
    assert len(outputs) == 1, outputs
    return outputs[0]


def test_who_was_added_by_the_only_member_just_before_its_death_forgets_it() -> None:
    """Else the dead one stays in the view for ever, its death is never told, and the queue waits
    for a master that is gone.
    """
    row = GroupRow(name="q", version=5, members=(GroupMember(LEFT),))
    member = gm.Member("q", Pid("b", 1, 1), row)
    assert only(member.step(gm.Join(), row)) == gm.AskToJoin((LEFT,))
    # The left one adds the newcomer, and dies before it can say so.
    row = GroupRow(name="q", version=6, members=(GroupMember(LEFT), GroupMember(member.id)))
    asked = only(member.step(gm.JoinAnswered(LEFT, "dead"), row))
    assert asked == gm.Transact(RecordDead(LEFT, by=None))
    row = apply_change(RecordDead(LEFT, by=None), row)
    asked = only(member.step(gm.Transacted(row), row))
    assert asked == gm.Transact(EraseMembers((LEFT,), by=member.id))
    row = apply_change(EraseMembers((LEFT,), by=member.id), row)
    assert only(member.step(gm.Transacted(row), row)) == gm.Joined((member.id.pid,))
    assert member.publishers.states == {}
