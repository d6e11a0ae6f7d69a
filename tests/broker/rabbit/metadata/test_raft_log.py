"""What the log's commands do to tables and members, in their order."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.metadata import raft_log
from shalott.broker.rabbit.metadata.messages import Member
from shalott.broker.rabbit.metadata.raft_log import (
    AddMember,
    DropMember,
    MembersChanged,
    NoMajority,
    NoMember,
    Refused,
    ReplicatedTables,
    Unchanged,
    WriteRows,
    Written,
)
from shalott.broker.rabbit.metadata.tables import Change
from tests.world.rabbit.quorum_ledger import FLEETING, KEPT, record_of

pytestmark = pytest.mark.unit

ONE, TWO, TWO_AGAIN = Member("n1", 1, 1), Member("n2", 1, 1), Member("n2", 1, 2)


def write(member: Member, name: str, expected: int, number: int, table: str = KEPT) -> WriteRows:
    change = Change(table, name, expected, record_of((table, name), number))
    return WriteRows(member, (change,))


def group(*members: Member, listed: int = 1, is_blind: bool = False) -> ReplicatedTables:
    state = ReplicatedTables(listed, is_blind=is_blind)
    for index, member in enumerate(members, 1):
        assert isinstance(state.apply(index, AddMember(member)), MembersChanged)
    return state


def test_a_row_s_version_is_its_command_s_index() -> None:
    state = group(ONE)
    outcome = state.apply(7, write(ONE, "a", 0, 1))
    assert isinstance(outcome, Written) and [row.version for row in outcome.rows] == [7]
    assert state.tables.row_version(KEPT, "a") == state.tables.version == 7


def test_of_two_writes_over_one_version_the_first_in_the_log_is_done() -> None:
    state = group(ONE, TWO)
    state.apply(3, write(ONE, "a", 0, 1))
    assert state.apply(4, write(TWO, "a", 0, 2)) == Refused()
    assert state.tables.read(KEPT, "a") == record_of((KEPT, "a"), 1)
    assert state.tables.row_version(KEPT, "a") == 3
    assert isinstance(state.apply(5, write(TWO, "a", 3, 2)), Written)


def test_what_is_only_checked_is_compared_and_not_written() -> None:
    state = group(ONE)
    state.apply(2, write(ONE, "a", 0, 1))
    assert state.apply(3, WriteRows(ONE, (Change(KEPT, "a", 2, check_only=True),))) == Written(())
    assert state.apply(4, WriteRows(ONE, (Change(KEPT, "a", 1, check_only=True),))) == Refused()
    assert state.tables.row_version(KEPT, "a") == 2


def test_our_04_writes_whatever_is_there() -> None:
    state = group(ONE, TWO, is_blind=True)
    state.apply(3, write(ONE, "a", 0, 1))
    assert isinstance(state.apply(4, write(TWO, "a", 0, 2)), Written)


def test_members_write_only_while_they_are_a_majority_of_the_listed_nodes() -> None:
    state = group(ONE, listed=3)
    assert state.apply(2, write(ONE, "a", 0, 1)) == NoMajority()
    assert state.apply(3, WriteRows(ONE, (Change(KEPT, "a", 0, check_only=True),))) == NoMajority()
    state.apply(4, AddMember(TWO))
    assert isinstance(state.apply(5, write(ONE, "a", 0, 1)), Written)
    state.apply(6, DropMember(TWO))
    assert state.apply(7, write(ONE, "a", 5, 2)) == NoMajority()
    assert state.tables.read(KEPT, "a") == record_of((KEPT, "a"), 1)


def test_who_is_no_member_writes_nothing() -> None:
    state = group(ONE)
    assert state.apply(2, write(TWO, "a", 0, 1)) == NoMember()
    state.apply(3, AddMember(TWO))
    state.apply(4, DropMember(TWO))
    assert state.apply(5, write(TWO, "a", 0, 1)) == NoMember()
    assert state.tables.read(KEPT, "a") is None


def test_a_later_run_takes_its_node_s_place_and_an_earlier_one_does_not() -> None:
    state = group(ONE, TWO)
    assert state.apply(3, AddMember(TWO_AGAIN)) == MembersChanged()
    assert state.apply(4, AddMember(TWO)) == Unchanged()
    assert state.apply(5, AddMember(TWO_AGAIN)) == Unchanged()
    assert state.apply(6, DropMember(TWO)) == Unchanged()
    assert list(state.members.values()) == [ONE, TWO_AGAIN]


def test_rows_in_memory_are_forgotten_when_the_first_member_comes_after_none_was_left() -> None:
    state = group(ONE, TWO)
    state.apply(3, write(ONE, "a", 0, 1))
    state.apply(4, write(ONE, "c", 0, 1, FLEETING))
    state.apply(5, DropMember(ONE))
    state.apply(6, AddMember(Member("n1", 2, 1)))
    assert state.tables.row_version(FLEETING, "c") == 4  # n2 was there all the time
    state.apply(7, DropMember(Member("n1", 2, 1)))
    state.apply(8, DropMember(TWO))
    outcome = state.apply(9, AddMember(TWO_AGAIN))
    assert isinstance(outcome, MembersChanged) and [row.key for row in outcome.rows] == ["c"]
    assert state.tables.read(FLEETING, "c") is None
    assert state.tables.read(KEPT, "a") == record_of((KEPT, "a"), 1)
    assert state.tables.version == 9
    outcome = state.apply(10, write(TWO_AGAIN, "c", 0, 2, FLEETING))
    assert isinstance(outcome, Written) and outcome.rows[0].version == 10


def test_an_image_is_all_of_it() -> None:
    state = group(ONE, TWO)
    state.apply(3, write(ONE, "a", 0, 1))
    state.apply(4, write(ONE, "c", 0, 1, FLEETING))
    state.apply(9, write(ONE, "a", 0, 5))  # refused: the version is above every row's
    other = group(ONE)
    other.apply(2, write(ONE, "gone", 0, 1))
    differing = other.restore(state.image())
    assert sorted(row.key for row in differing) == ["a", "c", "gone"]
    assert other.tables.snapshot() == state.tables.snapshot()
    assert (other.members, other.tables.version) == (state.members, 9)


@pytest.mark.parametrize("command", [write(ONE, "a", 3, 4), AddMember(ONE), DropMember(TWO)])
def test_a_command_is_what_was_put_into_the_log(command: raft_log.Command) -> None:
    assert raft_log.decode(raft_log.encode(command)) == command
