"""State: all that one member knows, and how it says what it wants done.

The rules are elsewhere: election.py (votes, heartbeats, terms), leader.py (a leader's dispatchers
and commits), follower.py (what a follower does with pushes), heartbeats.py (ReadIndex). They are
functions of a State, which they change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from shalott.broker.raft.api import (
    Action,
    BecomeCandidate,
    BecomeFollower,
    Commit,
    HardState,
    Message,
    Persist,
    PushResponse,
    PushType,
    RaftCode,
    RaftSettings,
    Role,
    Send,
)
from shalott.broker.raft.log import Log

LONG_AGO_MS = -(1 << 62)
# A member of upstream's takes up a higher term before it says anything to it, in 10 ms.
NOT_READY_MS = 20


@dataclass(slots=True)
class Progress:
    """A leader's dispatcher for one follower."""

    next_index: int
    state: PushType = PushType.COMPARE
    match_index: int = 0
    # COMPARE, TRUNCATE and INSTALL_SNAPSHOT have one request under way, APPEND has many.
    asked_serial: int = 0
    asked_ms: int = LONG_AGO_MS
    inflight: deque[tuple[int, int]] = field(default_factory=deque)  # (serial, sent_ms)
    commit_pushed_ms: int = LONG_AGO_MS
    told_commit: int = 0  # the newest commit index that was sent to it
    trusted_serial: int = 0  # answers to older requests are of a life before a wipe
    heard_ms: int = 0
    round: int = 0  # of the last heartbeat that it answered
    loading: bool = False

    def ask_again(self, state: PushType) -> None:
        self.state = state
        self.asked_ms = LONG_AGO_MS
        self.inflight.clear()
        self.told_commit = 0
        self.loading = False


@dataclass(slots=True)
class Ballot:
    """A candidate's round: who was asked for what, and who said yes."""

    serial: int
    term: int
    pre: bool
    accepted: dict[str, None] = field(default_factory=dict)
    ends_ms: int = 0
    again: bool = False  # a member was not ready to answer


@dataclass(slots=True)
class Read:
    """A ReadIndex under way; ``round`` is the heartbeat that must be answered, 0: not sent yet."""

    id: int
    index: int
    round: int = 0


class SelfVote(msgspec.Struct, frozen=True):
    """Held like a Send: a candidate's own vote counts when it is persisted."""

    term: int


@dataclass(slots=True)
class State:
    """``members`` has this one's own ``name``. ``random`` gives numbers in [0, 1)."""

    name: str
    members: tuple[str, ...]
    settings: RaftSettings
    log: Log
    hard: HardState
    commit_index: int
    random: Callable[[], float]
    bugs: tuple[str, ...] = ()
    now_ms: int = 0
    role: Role = "follower"
    leader: str = ""
    leader_heard_ms: int = LONG_AGO_MS
    agreed_index: int = 0  # a follower's: up to there its log is known to be its leader's
    wake_ms: int = 0  # when a follower gives its leader up, a candidate begins another round
    failed_rounds: int = 0
    ballot: Ballot | None = None
    progress: dict[str, Progress] = field(default_factory=dict)  # a leader's, of the others
    tenure_index: int = 0  # the end of the log when this leader's tenure began
    heartbeat_ms: int = LONG_AGO_MS
    round: int = 0
    reads: list[Read] = field(default_factory=list)
    transfer_to: str = ""
    transfer_ends_ms: int = 0
    serial: int = 0
    mark: int = 0
    hard_mark: int = 0
    log_mark: int = 0
    persisted_mark: int = 0
    held: list[tuple[int, Send | SelfVote]] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    # Of the switched-on bugs only: see KB-DL-02 and KB-DL-15 where they are used.
    stale_end_term: int = 0
    stuck_pushes: dict[int, None] = field(default_factory=dict)
    term: int = field(init=False)  # of ``hard``: it is asked for at every message

    def __post_init__(self) -> None:
        self.term = self.hard.term

    @property
    def others(self) -> list[str]:
        return [member for member in self.members if member != self.name]

    @property
    def quorum(self) -> int:
        return len(self.members) // 2 + 1

    def has_bug(self, bug: str) -> bool:
        return bug in self.bugs

    def next_serial(self) -> int:
        self.serial += 1
        return self.serial

    def next_mark(self) -> int:
        self.mark += 1
        return self.mark

    def draw_ms(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def draw_stand_ms(self) -> int:
        """The pause before the first round of a candidate."""
        settings = self.settings
        if settings.stand_max_ms:
            return self.draw_ms(settings.stand_min_ms, settings.stand_max_ms)
        return self.draw_ms(settings.vote_min_ms, settings.vote_max_ms)

    # -- what is wanted done -----------------------------------------------------------------------

    def emit(self, action: Action) -> None:
        self.actions.append(action)

    def send(self, to: str, message: Message) -> None:
        self.actions.append(Send(to, message))

    def hold(self, mark: int, what: Send | SelfVote) -> None:
        """To be done when all writes up to ``mark`` are durable; at once if they are."""
        self.held.append((mark, what))

    def persist(self, term: int, voted_for: str) -> None:
        assert term > self.term or self.hard.voted_for in ("", voted_for)
        self.hard = HardState(term, voted_for)
        self.term = term
        self.hard_mark = self.next_mark()
        self.emit(Persist(self.hard, self.hard_mark))

    def commit_to(self, index: int) -> None:
        if index > self.commit_index:
            self.commit_index = index
            self.emit(Commit(index))

    # -- roles -------------------------------------------------------------------------------------

    def follow(self, leader: str) -> None:
        """Be a follower of ``leader``, in this term."""
        self.leader_heard_ms = self.now_ms
        if self.role != "follower" or self.leader != leader:
            self._end_role()
            self.role, self.leader, self.agreed_index = "follower", leader, 0
            self.emit(BecomeFollower(self.term, leader))
        self.wake_ms = self.now_ms + self.settings.leak_ms + self.draw_stand_ms()

    def seek_leader(self) -> None:
        """Be a candidate, and begin to ask for votes after a random pause."""
        if self.role != "candidate":
            self._end_role()
            self.role, self.leader = "candidate", ""
            self.failed_rounds = 0
            self.emit(BecomeCandidate(self.term))
        self.ballot = None
        self.wake_ms = self.now_ms + self.draw_stand_ms()

    def _end_role(self) -> None:
        self.ballot = None
        self.progress.clear()
        self.transfer_to = ""


def outdated(response: PushResponse, term: int) -> PushResponse:
    """The same answer when the term for which it was given is over."""
    return msgspec.structs.replace(response, code=RaftCode.EXPIRED_TERM, term=term)
