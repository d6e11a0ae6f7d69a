"""What metadata servers say to each other. The server is registered as "metadata" on every node."""

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
    version: int = 0  # of its tables: how much it has heard of its leader
    leading: bool = False  # a leader that has a majority (quorum.py)


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
    """leader -> member: put these rows in force, then say Applied."""

    leader: Member
    version: int
    rows: tuple[StoredRow, ...]


class Applied(Message):
    member: Member
    version: int


class Join(Message):
    """call to the leader -> Joined or Failed. The member's own tables are discarded.

    ``linked``: whom the newcomer can talk to. It must be every member, or its queues would be
    cut off from theirs. ``promised``: it may not follow a leader of a lower ballot (quorum.py).
    """

    member: Member
    linked: tuple[str, ...]
    promised: int = 0


class Joined(Message):
    """Everything that the newcomer needs; later Apply messages follow on the same link."""

    leader: Member
    members: tuple[Member, ...]
    version: int
    rows: tuple[StoredRow, ...]
    ballot: int = 0


class MemberJoined(Message):
    leader: Member
    member: Member


class Dump(Message):
    """call by a new leader -> Dumped, Outbid or Failed("other_leader"): every row you have, and
    the promise not to follow a lower ``ballot`` any more.
    """

    leader: Member
    ballot: int = 0


class Dumped(Message):
    version: int
    rows: tuple[StoredRow, ...]
    ballot: int = 0
    member: Member | None = None


class Outbid(Message):
    """Answer to a Dump: this ballot was promised, or is in force, already."""

    ballot: int


class Install(Message):
    """call by a new leader -> Done or Failed: these are the tables, whatever you have."""

    leader: Member
    to: Member
    ballot: int
    members: tuple[Member, ...]
    version: int
    rows: tuple[StoredRow, ...]


class Verify(Message):
    """call by a leader -> Done or Failed: do you follow me?"""

    leader: Member
    to: Member


class Settled(Message):
    """leader -> member: every row up to ``version`` is on a majority."""

    leader: Member
    version: int


class Watch(Message):
    """To the server itself, again and again: is this node still in the majority?"""

    application: int


class SettleTables(Message):
    """A new leader to itself: go on with reconciling."""


class Reconsider(Message):
    """A booting server to itself: look again at who is there."""


class Membership(Message):
    """To local subscribers: the nodes that share these tables now."""

    nodes: tuple[str, ...]


MESSAGES: tuple[type[Message], ...] = (
    TableChanged, Member, Status, Commit, Committed, Conflicted, Apply, Applied, Join, Joined,
    MemberJoined, Dump, Dumped, Outbid, Install, Verify, Settled, Watch, SettleTables, Reconsider,
    Membership,
)  # fmt: skip
