"""What goes into a GM member and what comes out of it: the vocabulary of ``Member.step``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker.metadata.records import GroupRow, MemberId
from broker.mirrored.gm_group import GroupChange
from broker.mirrored.gm_members import RingMessage
from broker.processes.messages import Pid

BROADCAST_DELAY_MS = 25
# A partition often cuts one link a little before the other. Waiting keeps members from having each
# other recorded dead.
NEIGHBOUR_DOWN_DELAY_MS = 100

Side = Literal["left", "right"]


# -- inputs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    pass


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    """Answer to AskToJoin. ``row`` is None unless joined."""

    left: MemberId
    outcome: Literal["joined", "not_ready", "dead"]
    row: GroupRow | None = None


@dataclass(frozen=True, slots=True)
class Broadcast:
    payload: bytes


@dataclass(frozen=True, slots=True)
class ConfirmedBroadcast:
    """Answered by Confirmed(token) when the message has been delivered by every member."""

    payload: bytes
    token: int


@dataclass(frozen=True, slots=True)
class Received:
    message: RingMessage


@dataclass(frozen=True, slots=True)
class NeighbourDown:
    side: Side
    member: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class NeighbourDownDelayPassed:
    side: Side
    member: MemberId


@dataclass(frozen=True, slots=True)
class FlushTimerFired:
    pass


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing waits to be done: what was broadcast may go."""


@dataclass(frozen=True, slots=True)
class AddOnRight:
    """``newcomer`` asks to become the right neighbour. Answered by AnswerAddOnRight(token)."""

    newcomer: MemberId
    token: int


@dataclass(frozen=True, slots=True)
class ValidateMembers:
    """The owner believes that these are the members: tell it who else was born or died."""

    pids: tuple[Pid, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End when all that is in flight has settled."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """End now."""


@dataclass(frozen=True, slots=True)
class Transacted:
    row: GroupRow


@dataclass(frozen=True, slots=True)
class MembershipLost:
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
    | Stop
    | Leave
    | Transacted
    | MembershipLost
)


# -- outputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    to: MemberId
    message: RingMessage


@dataclass(frozen=True, slots=True)
class Monitor:
    side: Side
    member: MemberId


@dataclass(frozen=True, slots=True)
class Demonitor:
    side: Side
    member: MemberId


@dataclass(frozen=True, slots=True)
class Joined:
    known: tuple[Pid, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    origin: Pid
    payload: bytes


@dataclass(frozen=True, slots=True)
class MembersChanged:
    births: tuple[Pid, ...]
    deaths: tuple[Pid, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    token: int
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Transact:
    """Make ``change`` in the group row; feed back Transacted or MembershipLost."""

    change: GroupChange


@dataclass(frozen=True, slots=True)
class AskToJoin:
    """Ask any of ``candidates``, at random, to add us on its right; feed back JoinAnswered."""

    candidates: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class AnswerAddOnRight:
    """``row`` is None if the caller shall try again later."""

    token: int
    row: GroupRow | None


@dataclass(frozen=True, slots=True)
class StartFlushTimer:
    delay_ms: int = BROADCAST_DELAY_MS


@dataclass(frozen=True, slots=True)
class CancelFlushTimer:
    pass


@dataclass(frozen=True, slots=True)
class StartNeighbourDownTimer:
    side: Side
    member: MemberId
    delay_ms: int = NEIGHBOUR_DOWN_DELAY_MS


@dataclass(frozen=True, slots=True)
class Stopped:
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
