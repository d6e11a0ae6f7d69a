"""RaftCore: one member of a group of fixed membership, as a state machine without I/O.

``step`` takes one event and returns what is to be done about it, in order (api.py says what the
shell owes). The same events and the same random numbers give the same actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shalott.broker.raft import election, follower, heartbeats, leader
from shalott.broker.raft.api import (
    Action,
    Compact,
    ConnectionChanged,
    Event,
    HardState,
    HeartbeatRequest,
    HeartbeatResponse,
    Loaded,
    MessageReceived,
    Persisted,
    Propose,
    PushRequest,
    PushResponse,
    PushType,
    RaftSettings,
    ReadRequested,
    Role,
    Send,
    SnapshotTaken,
    TakeLeadership,
    Tick,
    TransferRequested,
    VoteRequest,
    VoteResponse,
)
from shalott.broker.raft.log import Log
from shalott.broker.raft.state import Progress, SelfVote, State, outdated
from shalott.broker.raft.storage import LogView


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a member's disk holds when its life begins."""

    log: LogView
    hard: HardState
    committed_index: int


class RaftCore:
    """One life of a member. ``random`` gives numbers in [0, 1); ``bugs`` are historical ones to
    bring back.

    Until ``next_tick_ms`` a tick does nothing but tell the time, unless something else happens.
    """

    def __init__(
        self,
        name: str,
        members: tuple[str, ...],
        settings: RaftSettings,
        recovered: Recovered,
        *,
        random: Callable[[], float],
        now_ms: int,
        bugs: tuple[str, ...] = (),
    ) -> None:
        assert name in members and len(dict.fromkeys(members)) == len(members)
        self._state = s = State(
            name,
            members,
            settings,
            Log(recovered.log),
            recovered.hard,
            max(recovered.committed_index, recovered.log.first_index - 1),
            random,
            bugs,
            now_ms=now_ms,
        )
        s.stale_end_term = s.log.last_term
        s.role = "candidate"
        s.wake_ms = now_ms + s.draw_stand_ms()
        self.next_tick_ms = s.wake_ms

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def member_count(self) -> int:
        return len(self._state.members)

    @property
    def leader(self) -> str:
        """ "" if it is not known."""
        return self._state.leader

    @property
    def commit_index(self) -> int:
        return self._state.commit_index

    @property
    def last_index(self) -> int:
        return self._state.log.last_index

    @property
    def durable_index(self) -> int:
        return self._state.log.durable_index

    @property
    def tenure_index(self) -> int:
        """A leader's: where its log ended when its tenure began."""
        return self._state.tenure_index

    def matches(self) -> dict[str, int]:
        """A leader's: up to where each of the others is known to have its log."""
        return {name: p.match_index for name, p in self._state.progress.items()}

    def match_of(self, member: str) -> int:
        """A leader's: up to where this one is known to have its log; 0 if it leads no more."""
        progress = self._state.progress.get(member)
        return 0 if progress is None else progress.match_index

    def heard_count(self) -> int:
        """A leader's: how many members it has heard, itself included, in twice the time after
        which it should give up."""
        s = self._state
        since_ms = s.now_ms - 2 * s.settings.leak_ms
        return 1 + sum(p.heard_ms >= since_ms for p in s.progress.values())

    def tell_time(self, now_ms: int) -> None:
        """All that a tick before ``next_tick_ms`` does."""
        self._state.now_ms = max(self._state.now_ms, now_ms)

    def step(self, event: Event) -> list[Action]:
        s = self._state
        match event:
            case Tick(now_ms):
                s.now_ms = max(s.now_ms, now_ms)
                if s.now_ms < self.next_tick_ms:
                    return []
                election.tick(s)
                if s.role == "leader":
                    leader.tick(s)
            case MessageReceived(sender, message):
                self._receive(sender, message)
            case Propose():
                leader.propose(s, event)
            case Persisted(mark):
                self._persisted(mark)
            case ReadRequested(read_id):
                heartbeats.handle_read(s, read_id)
            case Loaded(first, entries):
                leader.handle_loaded(s, first, tuple(entries))
            case SnapshotTaken(index):
                if s.log.first_index <= index <= min(s.commit_index, s.log.durable_index):
                    s.emit(Compact(index))
            case TransferRequested(to):
                leader.transfer(s, to)
            case ConnectionChanged(member, is_up):
                election.connection_changed(s, member, is_up)
        if s.held:
            self._release()
        # What is compacted when this returns may ask for a snapshot to be sent.
        compacts = isinstance(event, SnapshotTaken)
        self.next_tick_ms = s.now_ms if compacts else due_ms(s)
        actions, s.actions = s.actions, []
        return actions

    def _receive(self, sender: str, message: object) -> None:
        s = self._state
        match message:
            case PushRequest():
                follower.handle_push(s, sender, message)
            case PushResponse():
                leader.handle_push_response(s, sender, message)
            case HeartbeatRequest():
                heartbeats.handle_heartbeat(s, sender, message)
            case HeartbeatResponse():
                heartbeats.handle_heartbeat_response(s, sender, message)
            case VoteRequest():
                election.handle_vote(s, sender, message)
            case VoteResponse():
                election.handle_vote_response(s, sender, message)
            case TakeLeadership():
                election.handle_take_leadership(s, sender, message)

    def _persisted(self, mark: int) -> None:
        s = self._state
        s.persisted_mark = max(s.persisted_mark, mark)
        s.log.persisted(mark)
        if s.role == "leader":
            leader.commit(s)

    def _release(self) -> None:
        """Do what waited for writes that are durable now, also what that leads to."""
        s = self._state
        while s.held:
            ready = [what for mark, what in s.held if mark <= s.persisted_mark]
            if not ready:
                break
            s.held = [one for one in s.held if one[0] > s.persisted_mark]
            for what in ready:
                self._carry_out(what)

    def _carry_out(self, what: Send | SelfVote) -> None:
        s = self._state
        if isinstance(what, SelfVote):
            if what.term == s.term and s.ballot is not None and not s.ballot.pre:
                election.take_vote(s, s.name)
            return
        message = what.message
        if isinstance(message, PushResponse) and message.term != s.term:
            message = outdated(message, s.term)
        s.send(what.to, message)


# -- when it next needs the time -------------------------------------------------------------------
# When a tick next changes more than the member's clock. A shell that sleeps until then misses
# nothing.


RETRY_MS = 10  # what could be sent now and was not: entries that a disk did not have, say


def due_ms(s: State) -> int:
    """A moment that is over already means: at once."""
    if s.role != "leader":
        return s.wake_ms
    due = s.heartbeat_ms + heartbeats.heartbeat_due_ms(s)
    if (quorum := s.quorum) > 1:
        heard = sorted([p.heard_ms for p in s.progress.values()], reverse=True)
        due = min(due, heard[quorum - 2] + s.settings.leak_ms)
    if s.transfer_to:
        due = min(due, s.transfer_ends_ms)
    last_index, idle_ms = s.log.last_index, s.settings.commit_push_interval_ms
    for p in s.progress.values():
        # Mostly a follower has all and nothing is under way to it.
        is_idle = not p.inflight and p.next_index > last_index and p.state == PushType.APPEND
        its = p.commit_pushed_ms + idle_ms if is_idle else _dispatcher_due_ms(s, p, last_index)
        if its < due:
            due = its
    return due


def _dispatcher_due_ms(s: State, p: Progress, last_index: int) -> int:
    """When ``leader.dispatch`` would do something."""
    settings = s.settings
    if p.state != PushType.APPEND:
        if (p.next_index < s.log.first_index) != (p.state == PushType.INSTALL_SNAPSHOT):
            return s.now_ms + RETRY_MS
        return p.asked_ms + leader.patience(p.state) * settings.push_timeout_ms
    due = p.inflight[0][1] + settings.push_timeout_ms if p.inflight else None
    has_room = len(p.inflight) < settings.max_inflight_pushes
    if has_room and not p.loading and p.next_index <= last_index:
        retry = s.now_ms + RETRY_MS
        return retry if due is None else min(due, retry)
    return p.commit_pushed_ms + settings.commit_push_interval_ms if due is None else due
