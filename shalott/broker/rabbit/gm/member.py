"""Guaranteed multicast: one member of the ring, as a pure state machine.

Theory: rabbit/gm.erl. The members of a group form a ring, each knowing its left and right
neighbour. A message goes round the ring once and is delivered and *kept* by every member that it
passes; when it is home, its publisher sends an acknowledgement round, and all forget it. When a
neighbour dies, the members on both sides of the gap meet, and the left one sends what it holds
(catchup), so what any member delivered reaches all that survive. No member is told that another
died before all that it published has settled.

``Member.step(input, row)`` returns outputs; it does no I/O and reads no clock. ``row`` is the group
row as this node sees it now. Its parts: its place in the row (membership.py), its view and
neighbours (ring.py), what it remembers of publishers (activity.py), its own messages
(broadcasts.py), and the step that waits for a transaction or a call (blocked.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from shalott.broker.rabbit.gm.activity import (
    Activity,
    ActivityItem,
    Catchup,
    CheckNeighbours,
    MembersState,
    RingMessage,
)
from shalott.broker.rabbit.gm.blocked import Blocked, Work
from shalott.broker.rabbit.gm.broadcasts import BUFFER_BYTES_MAX, Broadcasts
from shalott.broker.rabbit.gm.bugs import NO_BUGS, GmBugs
from shalott.broker.rabbit.gm.group import LostMembership, View, group_to_view
from shalott.broker.rabbit.gm.inputs import (
    BROADCAST_DELAY_MS,
    NEIGHBOUR_DOWN_DELAY_MS,
    AddOnRight,
    AnswerAddOnRight,
    AskToJoin,
    Broadcast,
    CancelFlushTimer,
    CheckMembership,
    Confirmed,
    ConfirmedBroadcast,
    Deliver,
    Demonitor,
    FlushTimerFired,
    Idle,
    Input,
    Join,
    JoinAnswered,
    Joined,
    Leave,
    MembersChanged,
    MembershipLost,
    Monitor,
    NeighbourDown,
    NeighbourDownDelayPassed,
    Output,
    Received,
    Send,
    Side,
    StartFlushTimer,
    StartNeighbourDownTimer,
    Stop,
    Stopped,
    Transact,
    Transacted,
    ValidateMembers,
)
from shalott.broker.rabbit.gm.membership import Membership, ViewWork
from shalott.broker.rabbit.gm.ring import Ring
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId
from shalott.broker.rabbit.processes.messages import Pid

# The member, and the vocabulary that goes with it (steps.py).
__all__ = (
    "Member", "RingMessage", "RING_SHUTDOWN", "BUFFER_BYTES_MAX", "BROADCAST_DELAY_MS",
    "NEIGHBOUR_DOWN_DELAY_MS", "AddOnRight", "AnswerAddOnRight", "AskToJoin", "Broadcast",
    "CancelFlushTimer", "CheckMembership", "Confirmed", "ConfirmedBroadcast", "Deliver",
    "Demonitor", "FlushTimerFired", "Idle", "Input", "Join", "JoinAnswered", "Joined", "Leave",
    "MembersChanged", "MembershipLost", "Monitor", "NeighbourDown", "NeighbourDownDelayPassed",
    "Output", "Received", "Send", "Side", "StartFlushTimer", "StartNeighbourDownTimer", "Stop",
    "Stopped", "Transact", "Transacted", "ValidateMembers",
)  # fmt: skip

# The whole ring ends because the queue was deleted: no member needs to bury another. (A member that
# leaves for another reason must not end as "normal": channels would take the queue for deleted.)
RING_SHUTDOWN = "normal"

UNREAD = 1 << 62  # a version that is newer than what any node has read
_ANSWERS = (Transacted, MembershipLost, JoinAnswered)
T = TypeVar("T")


class Member:
    """One member of the ring of ``group``."""

    def __init__(self, group: str, pid: Pid, row: GroupRow | None, bugs: GmBugs = NO_BUGS) -> None:
        self.group = group
        self.bugs = bugs
        self.id = MemberId(0 if row is None else row.version, pid)
        self.stop_reason: str | None = None
        self.is_stopped = False
        self._outputs: list[Output] = []
        self._emit = self._outputs.append
        self._blocked = Blocked(self._emit)
        self._kept_back: deque[Input] = deque()
        self._membership = Membership(self.id, row, bugs)
        self.ring = Ring(self.id, bugs, self._emit)
        self.publishers = MembersState(self.id, bugs)
        self.broadcasts = Broadcasts(self.id, self.ring, self.publishers, self._emit)

    # -- the machine -------------------------------------------------------------------------------

    def step(self, given: Input, row: GroupRow | None) -> list[Output]:
        """Handle one input; ``row`` is the group row as this node sees it now."""
        self._membership.see(row)
        if not isinstance(given, _ANSWERS):
            self._kept_back.append(given)
        elif not self.is_stopped:
            if isinstance(given, Transacted):
                self._membership.row = given.row
            self._run(self._blocked.resume, given)
        while self._kept_back and self._blocked.work is None and not self.is_stopped:
            self._run(self._start, self._kept_back.popleft())
        outputs = self._outputs.copy()
        self._outputs.clear()
        return outputs

    @property
    def has_unsent(self) -> bool:
        """Whether ``Idle`` would send something."""
        return bool(self.broadcasts.pubs) and self._blocked.work is None

    def _start(self, given: Input) -> None:
        work = self._handle(given)
        if work is not None:
            self._blocked.begin(work)

    def _run(self, advance: Callable[[T], None], given: T) -> None:
        try:
            advance(given)
        except LostMembership:
            self._end("shutdown")
        if self._blocked.work is None:
            self._after_input()

    def _after_input(self) -> None:
        if self.is_stopped:
            return
        if self.stop_reason is not None and self._is_drained():
            self._end(self.stop_reason)
        else:
            self.broadcasts.keep_timer()

    def _end(self, reason: str) -> None:
        self.is_stopped = True
        self.broadcasts.settle_confirms(ok=False)
        self._emit(Stopped(reason))

    def _is_drained(self) -> bool:
        # A member that stops with pubs in flight would leave their settling to an alias owner
        # (rmq#224).
        if self.publishers.states is None or self.ring.is_alone or self.bugs.stops_undrained:
            return True  # KB-RMQ-04: a member that was told to stop stopped
        return not self.broadcasts.pubs and self.publishers.is_settled

    def _handle(self, given: Input) -> Work | None:
        """Most inputs are dealt with at once; those that must have something done first are not."""
        match given:
            case Received(message):
                return self._received(message)
            case Broadcast() | ConfirmedBroadcast():
                self._broadcast(given)
            case Idle():
                self.broadcasts.flush()
            case FlushTimerFired():
                self.broadcasts.timer_fired()
            case NeighbourDown(side, member, reason):
                self._neighbour_down(side, member, reason)
            case ValidateMembers(pids):
                if self.ring.view is not None:
                    self.ring.announce(pids, tuple(m.pid for m in self.ring.view.known()))
            case CheckMembership() if self.ring.view is not None:
                return self._follow(self._membership.read(UNREAD))
            case Stop(reason):
                self.stop_reason = reason
            case Leave():
                self._end("normal")
            case Join():
                return self._join()
            case NeighbourDownDelayPassed(side, member):
                return self._bury_neighbour(side, member)
            case AddOnRight(newcomer, token):
                return self._add_on_right(newcomer, token)
        return None

    def _broadcast(self, given: Broadcast | ConfirmedBroadcast) -> None:
        # As in the original, who is leaving or hasn't joined yet drops what it is given to
        # broadcast.
        if self.stop_reason is not None or self.publishers.states is None:
            if isinstance(given, ConfirmedBroadcast):
                self._emit(Confirmed(given.token, ok=False))
        elif isinstance(given, ConfirmedBroadcast):
            self.broadcasts.confirmed_broadcast(given.payload, given.token)
        else:
            self.broadcasts.broadcast(given.payload)
        # Who is alone does not hear that a newcomer had it recorded dead, and made a ring. (The
        # original does not look.)
        is_lonely = self.ring.is_alone and self.publishers.states is not None
        if is_lonely and self._membership.row is not None:
            self._membership.check(self._membership.row)

    # -- joining -----------------------------------------------------------------------------------

    def _join(self) -> Work:
        assert self.ring.view is None, "joined already"
        row = yield from self._membership.be_added(self.group)
        view = self.ring.view = group_to_view(row)
        self.publishers.states = {} if view.alive() == [self.id] else None
        self._neighbours_checked(self.ring.check_neighbours())
        self._emit(Joined(tuple(member.pid for member in view.known())))

    def _add_on_right(self, newcomer: MemberId, token: int) -> Work:
        if self.publishers.states is None:
            self._emit(AnswerAddOnRight(token, None))
            return
        row = yield from self._membership.add(newcomer)
        view = group_to_view(row)
        self.publishers.forget_erased(view.known())
        self._emit(Send(newcomer, self.publishers.catchup(newcomer, view.version)))
        self._change_view(view)
        self._emit(AnswerAddOnRight(token, row))

    # -- from the ring -----------------------------------------------------------------------------

    def _received(self, message: RingMessage) -> Work | None:
        view = self.ring.view
        if view is None or (
            self.publishers.states is None and isinstance(message, CheckNeighbours)
        ):
            return None
        if message.version > view.version:
            return self._refresh_and_take(message)
        return self._take(message)

    def _refresh_and_take(self, message: RingMessage) -> Work:
        yield from self._follow(self._membership.read(message.version))
        yield from self._take(message) or ()

    def _take(self, message: RingMessage) -> Work | None:
        if not self.ring.hears(message):
            return None
        match message:
            case Activity() if self.publishers.states is not None:
                return self._activity(message.items)
            case Catchup() if self.publishers.states is None:
                # A newcomer forwards the catchup, then adopts it.
                self.broadcasts.forward(message.states)
                self.publishers.adopt(message.states)
            case Catchup():
                return self._activity(self.publishers.missed(message.states, self.ring.aliases))
        return None

    def _activity(self, items: Sequence[ActivityItem]) -> Work | None:
        self._membership.check(self._membership.row)
        aliases = self.ring.aliases
        forwarded = []
        for item in items:
            onward, home = self.publishers.account(item, aliases)
            self.broadcasts.came_home(home)
            forwarded.append(onward)
        self.broadcasts.send_right([item for item in forwarded if item.pubs or item.acks])
        if aliases and (erasable := self.publishers.erasable(aliases)):
            return self._erase_and_deliver(erasable, forwarded)
        self.broadcasts.deliver(forwarded)
        return None

    def _erase_and_deliver(self, erasable: tuple[MemberId, ...], items: list[ActivityItem]) -> Work:
        yield from self._follow(self._membership.erase(erasable))
        self.broadcasts.deliver(items)

    # -- membership --------------------------------------------------------------------------------

    def _neighbour_down(self, side: Side, member: MemberId, reason: str) -> None:
        if not self.ring.is_neighbour(side, member):
            return
        if reason == RING_SHUTDOWN:
            if self.stop_reason is not None:
                self._end(self.stop_reason)
            return
        # KB-RMQ-10: a group that is gone went unnoticed here, and was looked for when burying.
        row = self._membership.row
        if row is not None or not self.bugs.missing_group_crash:
            self._membership.check(row)
        self.ring.link_broke(side, member)

    def _bury_neighbour(self, side: Side, member: MemberId) -> Work:
        if not self.ring.is_neighbour(side, member):
            return
        view = yield from self._membership.record_dead(member)
        if view.alive() == [self.id]:
            self.publishers.states = {}
            self.broadcasts.settle_confirms(ok=True)
            erasable = self.publishers.erasable(view.members[self.id].aliases)
            if erasable:
                yield from self._follow(self._membership.erase(erasable))
                return
        self._change_view(view)

    def _follow(self, change: ViewWork) -> Work:
        """To the view that the group's row has then."""
        view = yield from change
        self.publishers.forget_erased(view.known())
        self._change_view(view)

    def _change_view(self, view: View) -> None:
        ring, is_new = self.ring, self.publishers.states is None
        is_blind = is_new and ring.left not in view.members and ring.left != self.id
        if is_blind and not self.bugs.blind_newcomers:
            # Our left neighbour died before it told us what it knew, and we would stand in for it
            # without knowing its last words, which may be under way already. (OUR-06: the original
            # goes on, and members crash on the numbers.)
            raise LostMembership("the left neighbour died before its catchup")
        self._neighbours_checked(ring.change_view(view))

    def _neighbours_checked(self, is_right_new: bool) -> None:
        ring = self.ring
        assert ring.view is not None
        if ring.is_alone:
            self.broadcasts.drop()
        elif is_right_new and self.publishers.states is not None:
            self._emit(Send(ring.right, self.publishers.catchup(ring.right, ring.view.version)))
