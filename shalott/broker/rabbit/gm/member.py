"""Guaranteed multicast: one member of the ring, as a pure state machine.

Theory: rabbit/gm.erl. The members of a group form a ring, each knowing its left and right
neighbour. A message goes round the ring once and is delivered and *kept* by every member that it
passes; when it is home, its publisher sends an acknowledgement round, and everybody forgets it.
When a neighbour dies, the members on both sides of the gap meet, and the left one sends what it
holds (catchup), so whatever anybody delivered reaches everybody who survives. Nobody is told that a
member died before all that it published has settled.

``Member.step(input, row)`` returns outputs; it does no I/O and reads no clock. ``row`` is the group
row as this node sees it now. Where the original blocks in a transaction or a call, the machine
emits ``Transact`` or ``AskToJoin`` and keeps further inputs back until it is answered, so their
order is the original's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

from shalott.broker.rabbit.gm.activity import (
    Activity,
    ActivityItem,
    Catchup,
    CheckNeighbours,
    MemberState,
    RingMessage,
    missed,
    restore,
)
from shalott.broker.rabbit.gm.bugs import NO_BUGS, GmBugs
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
from shalott.broker.rabbit.gm.outgoing import Outgoing
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

BUFFER_BYTES_MAX = 100_000_000
# The whole ring ends because the queue was deleted: nobody needs to bury anybody. (Who leaves for
# another reason must not end as "normal": channels would take the queue for deleted as well.)
RING_SHUTDOWN = "normal"

UNREAD = 1 << 62  # a version that is newer than what any node has read
_ANSWERS = (Transacted, MembershipLost, JoinAnswered)

# A blocked activity: yields what it must have done, is sent the answer.
Work = Generator[Transact | AskToJoin, "GroupRow | JoinAnswered", None]


class Member:
    """One member of the ring of ``group``."""

    def __init__(self, group: str, pid: Pid, row: GroupRow | None, bugs: GmBugs = NO_BUGS) -> None:
        self.group = group
        self.bugs = bugs
        self.id = MemberId(0 if row is None else row.version, pid)
        self.view: View | None = None
        self.left = self.right = self.id
        # The last version of the view in which somebody else was our left neighbour. What the
        # present one sent at that version or before belongs to an earlier time as our neighbour,
        # and reached us by another way since.
        self._left_floor = -1
        # Neighbours whose link broke, or was not there yet, to be buried in a moment (the original
        # sleeps first): what is said by a new link comes after what was lost with the old.
        self._broken: dict[Side, MemberId] = {}
        self.states: dict[MemberId, MemberState] | None = None
        self.stop_reason: str | None = None
        self.is_stopped = False
        self._row = row
        self._is_in: GroupRow | None = None  # the row in which we were found last
        self.outgoing = Outgoing()
        self._timer_runs = False
        self._work: Work | None = None
        self._kept_back: deque[Input] = deque()
        self._outputs: list[Output] = []

    # -- the machine -------------------------------------------------------------------------------

    def step(self, given: Input, row: GroupRow | None) -> list[Output]:
        """Handle one input; ``row`` is the group row as this node sees it now."""
        if self._row is None or (row is not None and row.version >= self._row.version):
            self._row = row
        elif row is None:
            self._row = None
        if isinstance(given, _ANSWERS):
            self._resume(given)
        else:
            self._kept_back.append(given)
        while self._kept_back and self._work is None and not self.is_stopped:
            self._start(self._kept_back.popleft())
        outputs, self._outputs = self._outputs, []
        return outputs

    @property
    def has_unsent(self) -> bool:
        """Whether ``Idle`` would send something."""
        return bool(self.outgoing.pubs) and self._work is None

    @property
    def published(self) -> int:
        return self.outgoing.last

    def is_home(self, number: int) -> bool:
        """Whether every member has delivered all broadcasts of this one up to ``number``."""
        own = MemberState() if self.states is None else self._state_of(self.id)
        return all(first > number for first, _ in (*own.pending, *self.outgoing.pubs)[:1])

    def _start(self, given: Input) -> None:
        try:
            work = self._handle(given)
        except LostMembership:
            self._end("shutdown")
            return
        if work is None:
            self._after_input()
        else:
            self._work = work
            self._advance(None)

    def _resume(self, answer: Transacted | MembershipLost | JoinAnswered) -> None:
        if self.is_stopped:
            return
        assert self._work is not None, "an answer to no question"
        match answer:
            case Transacted(row):
                self._row = row
                self._advance(row)
            case JoinAnswered():
                self._advance(answer)
            case MembershipLost():
                self._advance(LostMembership())

    def _advance(self, answer: GroupRow | JoinAnswered | LostMembership | None) -> None:
        assert self._work is not None
        try:
            if isinstance(answer, LostMembership):
                question = self._work.throw(answer)
            elif answer is None:
                question = next(self._work)
            else:
                question = self._work.send(answer)
            self._emit(question)
            return
        except StopIteration:
            self._work = None
        except LostMembership:
            self._work = None
            self._end("shutdown")
        self._after_input()

    def _after_input(self) -> None:
        if self.is_stopped:
            return
        if self.stop_reason is not None and self._is_drained():
            self._end(self.stop_reason)
        elif self.outgoing.pubs and not self._timer_runs:
            self._timer_runs = True
            self._emit(StartFlushTimer())
        elif not self.outgoing.pubs and self._timer_runs:
            self._timer_runs = False
            self._emit(CancelFlushTimer())

    def _emit(self, output: Output) -> None:
        self._outputs.append(output)

    def _end(self, reason: str) -> None:
        self.is_stopped = True
        self._outputs += (Confirmed(token, ok=False) for token in self.outgoing.drop_confirms())
        self._emit(Stopped(reason))

    def _is_drained(self) -> bool:
        # A member that stops with pubs in flight would leave their settling to an alias owner
        # (rmq#224).
        if self.states is None or self.is_alone or self.bugs.stops_undrained:
            return True  # KB-RMQ-04: a member that was told to stop stopped
        return not self.outgoing.pubs and all(state.is_settled for state in self.states.values())

    @property
    def is_alone(self) -> bool:
        """Whether it is the only one of its ring; at its end, whether it was."""
        return self.right == self.id

    def _check_lonely(self) -> None:
        """Who is alone does not hear that a newcomer had it recorded dead, and made a ring. (The
        original does not look.)"""
        if self.is_alone and self.states is not None and self._row is not None:
            self._check_membership(self._row)

    def _handle(self, given: Input) -> Work | None:
        """Most inputs are dealt with at once; those that must have something done first are not."""
        match given:
            case Received(message):
                return self._received(message)
            case Broadcast(payload):
                self._broadcast(payload)
                self._check_lonely()
            case ConfirmedBroadcast(payload, token):
                self._confirmed_broadcast(payload, token)
                self._check_lonely()
            case Idle():
                self._flush()
            case FlushTimerFired():
                self._timer_runs = False
                self._flush()
            case NeighbourDown(side, member, reason):
                self._neighbour_down(side, member, reason)
            case ValidateMembers(pids):
                self._validate_members(pids)
            case CheckMembership() if self.view is not None:
                return self._refresh_view(UNREAD)
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

    # -- joining -----------------------------------------------------------------------------------

    def _join(self) -> Work:
        assert self.view is None, "joined already"
        row = yield from self._be_added()
        self.view = group_to_view(row)
        self.states = {} if self.view.alive() == [self.id] else None
        self._check_neighbours()
        self._emit(Joined(tuple(member.pid for member in self.view.known())))

    def _be_added(self) -> Generator[Transact | AskToJoin, GroupRow | JoinAnswered, GroupRow]:
        row = self._row
        while True:
            alive = () if row is None else tuple(m.id for m in row.members if m.alive)
            if row is not None and self.id in alive:
                if len(alive) > 1 and not self.bugs.blind_newcomers:
                    # Who added us died before its answer and its catchup came: see _change_view.
                    raise LostMembership("added by a neighbour that died")
                dead = tuple(m.id for m in row.members if not m.alive)
                if dead:
                    # The same, and nobody else is left. Of these nothing will ever come that could
                    # settle them, and a member that isn't settled isn't reported dead.
                    row = yield from self._transact(EraseMembers(dead, by=self._by))
                return row
            if not alive:
                row = yield from self._transact(CreateGroup(self.group, self.id))
                continue
            answer = yield AskToJoin(alive)
            assert isinstance(answer, JoinAnswered)
            if answer.outcome == "joined":
                assert answer.row is not None
                self._row = answer.row
                return answer.row
            if answer.outcome == "dead":
                row = yield from self._bury_candidate(answer.left)
            else:
                row = self._row

    def _bury_candidate(
        self, left: MemberId
    ) -> Generator[Transact | AskToJoin, GroupRow | JoinAnswered, GroupRow | None]:
        try:
            return (yield from self._transact(RecordDead(left, by=None)))
        except LostMembership:  # rmq#950: the group went away in the meantime
            return None

    def _transact(
        self, change: GroupChange
    ) -> Generator[Transact | AskToJoin, GroupRow | JoinAnswered, GroupRow]:
        row = yield Transact(change)
        assert isinstance(row, GroupRow)
        return row

    def _add_on_right(self, newcomer: MemberId, token: int) -> Work:
        if self.states is None:
            self._emit(AnswerAddOnRight(token, None))
            return
        try:
            row = yield from self._transact(AddMember(left=self.id, newcomer=newcomer))
        except LostMembership:
            # KB-RMQ-06: record_new_member_in_group took it for granted that it is in the group.
            assert not self.bugs.ignores_lost_membership, "badmatch: not in its own group"
            raise
        view = group_to_view(row)
        self._forget_erased(view)
        self._emit(Send(newcomer, self._catchup_for(newcomer, view)))
        self._change_view(view)
        self._emit(AnswerAddOnRight(token, row))

    # -- publishing --------------------------------------------------------------------------------

    def _broadcast(self, payload: bytes) -> None:
        # As in the original, who is leaving or hasn't joined yet drops what it is given to
        # broadcast.
        if self.stop_reason is not None or self.states is None:
            return
        if not self.is_alone:
            self.outgoing.add(payload)
        self._emit(Deliver(self.id.pid, payload))
        if self.outgoing.bytes > BUFFER_BYTES_MAX:
            self._flush()

    def _confirmed_broadcast(self, payload: bytes, token: int) -> None:
        if self.stop_reason is not None or self.states is None:
            self._emit(Confirmed(token, ok=False))
            return
        self._broadcast(payload)
        if self.is_alone:
            self._emit(Confirmed(token))
        else:
            self.outgoing.want_confirm(token)
            self._flush()

    def _flush(self) -> None:
        pubs = self.outgoing.take()
        if not pubs:
            return
        self._send_right([ActivityItem(self.id, pubs, ())])
        self._state_of(self.id).publish(pubs)

    # -- from the ring -----------------------------------------------------------------------------

    def _received(self, message: RingMessage) -> Work | None:
        if self.view is None or (self.states is None and isinstance(message, CheckNeighbours)):
            return None
        if message.version > self.view.version:
            return self._refresh_and_take(message)
        return self._take(message)

    def _refresh_and_take(self, message: RingMessage) -> Work:
        yield from self._refresh_view(message.version)
        yield from self._take(message) or ()

    def _take(self, message: RingMessage) -> Work | None:
        if message.sender != self.left or message.sender == self._broken.get("left"):
            return None
        # OUR-05: the original has no floor.
        if message.version <= self._left_floor and not self.bugs.hears_former_neighbours:
            return None
        match message:
            case Activity() if self.states is not None:
                return self._activity(message.items)
            case Catchup() if self.states is None:
                self._adopt(message)
            case Catchup():
                return self._activity(self._missed(message))
        return None

    def _refresh_view(self, version: int) -> Work:
        row = self._row
        if row is None or row.version < version:
            row = yield from self._transact(ReadGroup(self._by))
        view = group_to_view(self._check_membership(row))
        self._forget_erased(view)
        self._change_view(view)

    def _adopt(self, message: Catchup) -> None:
        assert self.view is not None
        if not self.is_alone:
            onward = Catchup(self.right, self.id, self.view.version, message.states)
            self._emit(Send(self.right, onward))
        self.states = {snapshot.id: restore(snapshot) for snapshot in message.states}

    def _missed(self, message: Catchup) -> list[ActivityItem]:
        assert self.states is not None and self.view is not None
        ours = (self.id, *self.view.members[self.id].aliases)
        return missed(self.states, message.states, ours, strict=self.bugs.strict_common)

    def _activity(self, items: Sequence[ActivityItem]) -> Work | None:
        assert self.view is not None
        self._check_membership(self._row)
        aliases = self.view.members[self.id].aliases
        forwarded = [self._account(item, aliases) for item in items]
        self._send_right([item for item in forwarded if item.pubs or item.acks])
        if aliases and (erasable := self._erasable_aliases(self.view)):
            return self._erase_and_deliver(erasable, forwarded)
        self._deliver(forwarded)
        return None

    def _erase_and_deliver(self, erasable: tuple[MemberId, ...], items: list[ActivityItem]) -> Work:
        yield from self._erase_aliases(erasable)
        self._deliver(items)

    def _deliver(self, items: list[ActivityItem]) -> None:
        for item in items:
            for _, payload in item.pubs:
                self._outputs.append(Deliver(item.publisher.pid, payload))

    def _account(self, item: ActivityItem, aliases: tuple[MemberId, ...]) -> ActivityItem:
        """Record one item; returns what goes on to the right."""
        state = self._state_of(item.publisher)
        if item.publisher != self.id and item.publisher not in aliases:
            state.publish(item.pubs)
            state.acknowledge(item.acks)
            return item
        acks = state.come_home(item.pubs, item.acks, strict=self.bugs.strict_common)
        if item.publisher == self.id:
            self._outputs += map(Confirmed, self.outgoing.confirmed(acks))
        return ActivityItem(item.publisher, (), acks)

    def _send_right(self, items: list[ActivityItem]) -> None:
        assert self.view is not None
        if items and self.right not in (self.id, self._broken.get("right")):
            message = Activity(self.right, self.id, self.view.version, tuple(items))
            self._outputs.append(Send(self.right, message))

    # -- membership --------------------------------------------------------------------------------

    def _neighbour_down(self, side: Side, member: MemberId, reason: str) -> None:
        if not self._is_neighbour(side, member):
            return
        if reason == RING_SHUTDOWN:
            if self.stop_reason is not None:
                self._end(self.stop_reason)
            return
        # KB-RMQ-10: a group that is gone went unnoticed here, and was looked for when burying.
        if self._row is not None or not self.bugs.missing_group_crash:
            self._check_membership(self._row)
        if not self.bugs.hears_broken_left:  # OUR-10
            self._broken[side] = member
        self._emit(StartNeighbourDownTimer(side, member))

    def _bury_neighbour(self, side: Side, member: MemberId) -> Work:
        if not self._is_neighbour(side, member):
            return
        row = yield from self._transact(RecordDead(member, by=self._by))
        view = group_to_view(row)
        if view.alive() == [self.id]:
            self.states = {}
            self._outputs += map(Confirmed, self.outgoing.drop_confirms())
            erasable = self._erasable_aliases(view)
            if erasable:
                yield from self._erase_aliases(erasable)
                return
        self._change_view(view)

    def _check_membership(self, row: GroupRow | None) -> GroupRow:
        if row is not None and self.bugs.ignores_lost_membership:
            # KB-RMQ-06: nobody asked. Who was recorded dead went on beside the ring, until it
            # looked for its own place in it and crashed on not finding it.
            return row
        if row is None or row is not self._is_in:
            self._is_in = check_membership(self.id, row)
        return self._is_in

    @property
    def _by(self) -> MemberId | None:
        """Who makes a change in the group, to be checked within the transaction."""
        return None if self.bugs.ignores_lost_membership else self.id

    def _is_neighbour(self, side: Side, member: MemberId) -> bool:
        current = self.left if side == "left" else self.right
        return current == member != self.id

    def _erasable_aliases(self, view: View) -> tuple[MemberId, ...]:
        """The dead for whom we stand in and of whom nothing is in flight."""
        assert self.states is not None
        states, aliases = self.states, view.members[self.id].aliases
        return aliases and tuple(a for a in aliases if states.get(a, MemberState()).is_settled)

    def _erase_aliases(self, erasable: tuple[MemberId, ...]) -> Work:
        """Drop them from the group."""
        view = group_to_view((yield from self._transact(EraseMembers(erasable, by=self._by))))
        self._forget_erased(view)
        self._change_view(view)

    def _validate_members(self, pids: tuple[Pid, ...]) -> None:
        if self.view is not None:
            self._announce(pids, tuple(member.pid for member in self.view.known()))

    def _change_view(self, view: View) -> None:
        assert self.view is not None
        is_blind = self.states is None and self.left not in view.members and self.left != self.id
        if is_blind and not self.bugs.blind_newcomers:
            # Our left neighbour died before it told us what it knew, and we would stand in for it
            # without knowing its last words, which may be under way already. (OUR-06: the original
            # goes on, and members crash on the numbers.)
            raise LostMembership("the left neighbour died before its catchup")
        before = self.view
        self.view = view
        if self.left != view.members[self.id].left:
            self._left_floor = before.version
        self._announce(
            tuple(member.pid for member in before.known()),
            tuple(member.pid for member in view.known()),
        )
        self._check_neighbours()

    def _announce(self, before: tuple[Pid, ...], after: tuple[Pid, ...]) -> None:
        were, are = dict.fromkeys(before), dict.fromkeys(after)
        births = tuple(pid for pid in after if pid not in were)
        deaths = tuple(pid for pid in before if pid not in are)
        if births or deaths:
            self._emit(MembersChanged(births, deaths))

    def _check_neighbours(self) -> None:
        assert self.view is not None
        place = self.view.members[self.id]
        right_before = self.right
        self.left = self._meet("left", self.left, place.left)
        self.right = self._meet("right", self.right, place.right)
        if self.is_alone:
            self.outgoing.take()
        elif self.right != right_before and self.states is not None:
            self._emit(Send(self.right, self._catchup_for(self.right, self.view)))

    def _meet(self, side: Side, before: MemberId, now: MemberId) -> MemberId:
        if before == now:
            return now
        assert self.view is not None
        if before != self.id:
            self._emit(Demonitor(side, before))
            self._emit(Send(before, CheckNeighbours(before, self.id, self.view.version)))
        if now != self.id:
            self._emit(Send(now, CheckNeighbours(now, self.id, self.view.version)))
            self._emit(Monitor(side, now))
        return now

    # -- state -------------------------------------------------------------------------------------

    def _state_of(self, member: MemberId) -> MemberState:
        assert self.states is not None
        state = self.states.get(member)
        if state is None:
            state = self.states[member] = MemberState()
        return state

    def _catchup_for(self, to: MemberId, view: View) -> Catchup:
        assert self.states is not None
        snapshots = tuple(state.snapshot(member) for member, state in self.states.items())
        return Catchup(to, self.id, view.version, snapshots)

    def _forget_erased(self, view: View) -> None:
        if self.bugs.blank_member_crash:
            # KB-RMQ-31: the original looks its members up in states that a newcomer hasn't got
            # before its first catchup (badmap in find_member_or_blank).
            assert self.states is not None, "badmap: a member without states was told of a new view"
        if self.states is not None:
            known = dict.fromkeys(view.known())
            self.states = {m: state for m, state in self.states.items() if m in known}
