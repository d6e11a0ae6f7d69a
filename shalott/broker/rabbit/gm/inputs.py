"""What goes into a GM member and what comes out of it: the vocabulary of ``Member.step``.

Structs, because several are made for every frame of the ring, and a frozen dataclass takes five
times as long to make.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shalott.broker.rabbit.gm.activity import RingMessage
from shalott.broker.rabbit.gm.group import GroupChange
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId
from shalott.broker.rabbit.processes.messages import Pid

BROADCAST_DELAY_MS = 25
# A partition often cuts one link a little before the other. Waiting keeps members from having each
# other recorded dead.
NEIGHBOUR_DOWN_DELAY_MS = 100

Side = Literal["left", "right"]


# -- inputs ----------------------------------------------------------------------------------------


class Join(msgspec.Struct, frozen=True):
    pass


class JoinAnswered(msgspec.Struct, frozen=True):
    """Answer to AskToJoin. ``row`` is None unless joined."""

    left: MemberId
    outcome: Literal["joined", "not_ready", "dead"]
    row: GroupRow | None = None


class Broadcast(msgspec.Struct, frozen=True):
    payload: bytes


class ConfirmedBroadcast(msgspec.Struct, frozen=True):
    """Answered by Confirmed(token) when the message has been delivered by every member."""

    payload: bytes
    token: int


class Received(msgspec.Struct, frozen=True):
    message: RingMessage


class NeighbourDown(msgspec.Struct, frozen=True):
    side: Side
    member: MemberId
    reason: str


class NeighbourDownDelayPassed(msgspec.Struct, frozen=True):
    side: Side
    member: MemberId


class FlushTimerFired(msgspec.Struct, frozen=True):
    pass


class Idle(msgspec.Struct, frozen=True):
    """Nothing waits to be done: what was broadcast may go."""


class AddOnRight(msgspec.Struct, frozen=True):
    """``newcomer`` asks to become the right neighbour. Answered by AnswerAddOnRight(token)."""

    newcomer: MemberId
    token: int


class CheckMembership(msgspec.Struct, frozen=True):
    """Another process does what no member of its ring does: is this one still in its ring?"""


class ValidateMembers(msgspec.Struct, frozen=True):
    """The owner believes that these are the members: tell it who else was born or died."""

    pids: tuple[Pid, ...]


class Stop(msgspec.Struct, frozen=True):
    """End when all that is in flight has settled."""

    reason: str


class Leave(msgspec.Struct, frozen=True):
    """End now."""


class Transacted(msgspec.Struct, frozen=True):
    row: GroupRow


class MembershipLost(msgspec.Struct, frozen=True):
    """The transaction found that this member was recorded dead."""


Input = (
    Join
    | JoinAnswered
    | Broadcast
    | ConfirmedBroadcast
    | Received
    | NeighbourDown
    | NeighbourDownDelayPassed
    | FlushTimerFired
    | Idle
    | AddOnRight
    | ValidateMembers
    | CheckMembership
    | Stop
    | Leave
    | Transacted
    | MembershipLost
)


# -- outputs ---------------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True):
    to: MemberId
    message: RingMessage


class Monitor(msgspec.Struct, frozen=True):
    side: Side
    member: MemberId


class Demonitor(msgspec.Struct, frozen=True):
    side: Side
    member: MemberId


class Joined(msgspec.Struct, frozen=True):
    known: tuple[Pid, ...]


class Deliver(msgspec.Struct, frozen=True):
    origin: Pid
    payload: bytes


class MembersChanged(msgspec.Struct, frozen=True):
    births: tuple[Pid, ...]
    deaths: tuple[Pid, ...]


class Confirmed(msgspec.Struct, frozen=True):
    token: int
    ok: bool = True


class Transact(msgspec.Struct, frozen=True):
    """Make ``change`` in the group row; feed back Transacted or MembershipLost."""

    change: GroupChange


class AskToJoin(msgspec.Struct, frozen=True):
    """Ask any of ``candidates``, at random, to add us on its right; feed back JoinAnswered."""

    candidates: tuple[MemberId, ...]


class AnswerAddOnRight(msgspec.Struct, frozen=True):
    """``row`` is None if the caller shall try again later."""

    token: int
    row: GroupRow | None


class StartFlushTimer(msgspec.Struct, frozen=True):
    delay_ms: int = BROADCAST_DELAY_MS


class CancelFlushTimer(msgspec.Struct, frozen=True):
    pass


class StartNeighbourDownTimer(msgspec.Struct, frozen=True):
    side: Side
    member: MemberId
    delay_ms: int = NEIGHBOUR_DOWN_DELAY_MS


class Stopped(msgspec.Struct, frozen=True):
    """The last output: this member is no more."""

    reason: str


Output = (
    Send
    | Monitor
    | Demonitor
    | Joined
    | Deliver
    | MembersChanged
    | Confirmed
    | Transact
    | AskToJoin
    | AnswerAddOnRight
    | StartFlushTimer
    | CancelFlushTimer
    | StartNeighbourDownTimer
    | Stopped
)
