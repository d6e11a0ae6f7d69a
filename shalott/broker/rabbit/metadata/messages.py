"""What metadata servers say to each other. The server is registered as "metadata" on every node.

Fields called ``reserved`` say nothing: they keep the places of former ones, so that frames, and
with them the digests of simulated runs, are what they were.
"""

from __future__ import annotations

from typing import Literal

from shalott.broker.rabbit.metadata.api import TableChanged
from shalott.broker.rabbit.metadata.tables import Change, StoredRow
from shalott.broker.rabbit.processes.messages import Message

SERVER = "metadata"

Phase = Literal["down", "booting", "running"]


class Member(Message):
    """One run of the broker on a node: a node that restarts, or resumes from a pause, is another
    member.
    """

    node: str
    incarnation: int
    application: int

    def is_newer_than(self, other: Member) -> bool:
        """Whether this is a later run of the same node's broker."""
        return (self.incarnation, self.application) > (other.incarnation, other.application)


class Status(Message):
    """Broadcast at each change and to each new link: who I am and whom I share tables with."""

    member: Member
    phase: Phase
    saw_down: tuple[str, ...]
    members: tuple[Member, ...]
    partitions: tuple[str, ...]
    connections: int  # AMQP clients: autoheal's winner has the most
    version: int = 0  # of its tables
    reserved: bool = False


class GroupStatus(Message):
    """Where tables need a majority, at each change and to each new link: who I am, whom I am linked
    to, and the members after every command of the log up to ``version`` (raft_log.py).
    """

    member: Member
    phase: Phase
    linked: tuple[str, ...]
    members: tuple[Member, ...]
    version: int


class JoinGroup(Message):
    """booting node -> leader, again and again: make ``member`` one. It learns from the log whether
    that was done.
    """

    member: Member
    linked: tuple[str, ...]


class JoinRefused(Message):
    """leader -> booting node: it was forgotten (membership.py), and may not join."""

    member: Member
    reason: str


class Commit(Message):
    """call to the leader -> Committed, Conflicted or Failed("not_leader" | "not_running" |
    "reconciling").
    """

    member: Member
    changes: tuple[Change, ...]


class Committed(Message):
    version: int


class Conflicted(Message):
    """Some row had moved on. ``version`` is the leader's highest; read again once you have it."""

    version: int


class Apply(Message):
    """leader -> member: put these rows in force, then say Applied. (Where tables need a majority
    rows come by the log.)
    """

    leader: Member
    version: int
    rows: tuple[StoredRow, ...]


class Applied(Message):
    member: Member
    version: int


class Join(Message):
    """call to the leader -> Joined or Failed. The member's own tables are discarded.

    ``linked``: whom the newcomer can talk to. It must be every member, or its queues would be
    cut off from theirs.
    """

    member: Member
    linked: tuple[str, ...]
    reserved: int = 0


class Joined(Message):
    """Everything that the newcomer needs; later Apply messages follow on the same link."""

    leader: Member
    members: tuple[Member, ...]
    version: int
    rows: tuple[StoredRow, ...]
    reserved: int = 0


class MemberJoined(Message):
    leader: Member
    member: Member


class Dump(Message):
    """call by a new leader -> Dumped or Failed("other_leader"): every row you have."""

    leader: Member
    reserved: int = 0


class Dumped(Message):
    version: int
    rows: tuple[StoredRow, ...]
    reserved: int = 0
    reserved_too: None = None


class Watch(Message):
    """To the server itself, every half net tick: is this node still in the majority?"""


class SettleTables(Message):
    """A new leader to itself: go on with reconciling."""


class Reconsider(Message):
    """To the server itself: look again at who is there."""


class Membership(Message):
    """To local subscribers: the nodes that share these tables now."""

    nodes: tuple[str, ...]


MESSAGES: tuple[type[Message], ...] = (
    TableChanged, Member, Status, GroupStatus, Commit, Committed, Conflicted, Apply, Applied, Join,
    JoinGroup, Joined, MemberJoined, Dump, Dumped, Watch, SettleTables, Reconsider, Membership,
    JoinRefused,
)  # fmt: skip
