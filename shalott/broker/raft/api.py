"""The types of the consensus core: what happens to it (events), what it wants done (actions), and
what members say to each other (messages). What it needs of a log is LogView (storage.py).

``RaftCore.step(event)`` returns actions, to be carried out in their order. It is a state machine
without I/O: time comes as ``Tick``, randomness as an argument. A shell (runner.py) does the rest.

Durability. ``Persist``, ``Append``, ``Truncate`` and ``Install`` carry a growing ``mark``. When all
of them up to a mark are durable the shell says ``Persisted(mark)``. A ``Send`` that must not come
before some of them is held back by the core itself: the shell may send all that it is told to send
at once. Entries count for their own node only when they are persisted.

Indexes start at 1; 0 is the place before the first entry, with term 0. Message kinds and codes are
DLedger's: reference section 2.3.2.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Literal

import msgspec

Role = Literal["leader", "follower", "candidate"]


class VoteResult(enum.StrEnum):
    """VoteResponse.RESULT: why a vote is refused, the reasons in the order in which they are
    looked at (section 2.3.4)."""

    UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"  # the candidate is no member
    UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"  # it has this node's own name
    EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"
    ACCEPT = "ACCEPT"


class PushType(enum.StrEnum):
    """PushEntryRequest.Type: the states of a leader's dispatcher for one follower."""

    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"
    APPEND = "APPEND"
    COMMIT = "COMMIT"
    INSTALL_SNAPSHOT = "INSTALL_SNAPSHOT"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the log. A leader's no-op has what the group's settings say, mostly no data, and
    nothing else may."""

    index: int
    term: int
    data: bytes


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What a member may never forget: its term, and whom it voted for in it ("" for none)."""

    term: int = 0
    voted_for: str = ""


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state machine after the entry ``index``, which was of ``term``."""

    index: int
    term: int
    data: bytes


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timings and limits of one group: all of its members have the same."""

    heartbeat_interval_ms: int = 2000
    max_heartbeat_leak: int = 3
    vote_min_ms: int = 300
    vote_max_ms: int = 1000
    # How long a member that misses a leader waits before it first asks for votes; 0: as long as
    # between two rounds. A group whose members have different ones prefers who has the shortest.
    stand_min_ms: int = 0
    stand_max_ms: int = 0
    push_timeout_ms: int = 1000
    commit_push_interval_ms: int = 1000
    max_inflight_pushes: int = 16  # to one follower
    max_push_bytes: int = 1 << 20
    max_pending_entries: int = 10_000  # appended by a leader and not committed yet
    no_op_on_election: bool = False  # enableFastAdvanceCommitIndex; needed for ReadIndex
    no_op: bytes = b""  # what such an entry holds, and no proposal
    # Tell a follower what is committed as soon as it is, not only with the next entry or interval:
    # for state machines that are read on followers. DLedger has no such thing.
    push_commits_at_once: bool = False

    @property
    def leak_ms(self) -> int:
        """A leader that was not heard of for so long is given up, by others and by itself."""
        return self.heartbeat_interval_ms * self.max_heartbeat_leak


# -- messages --------------------------------------------------------------------------------------
# ``serial`` is the sender's count of its requests; an answer bears that of its request.


class VoteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``pre``: would you vote for me in ``term``? Nothing is promised with the answer.
    ``transfer``: the leader itself asked the candidate to take over."""

    serial: int
    term: int
    candidate: str
    last_index: int  # ledgerEndIndex
    last_term: int  # ledgerEndTerm
    pre: bool
    transfer: bool = False


class VoteResponse(msgspec.Struct, frozen=True, kw_only=True):
    """``term``: the voter's own, or that of the request which it accepted."""

    serial: int
    term: int
    voter: str
    result: VoteResult
    pre: bool


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``round``: counts the leader's heartbeats; what ReadIndex waits for."""

    serial: int
    term: int
    leader: str
    round: int


class HeartbeatResponse(msgspec.Struct, frozen=True, kw_only=True):
    serial: int
    term: int
    node: str
    code: RaftCode
    round: int


UNTOLD = -1  # the term of an entry that a leader only counts


class PushRequest(msgspec.Struct, frozen=True, kw_only=True):
    """COMPARE: have you the entry ``prev_index`` of ``prev_term``? TRUNCATE: I have other entries
    after it, or none; ``next_term`` is the term of mine that follows it (0: none). APPEND: these
    entries follow it. COMMIT: all up to ``commit_index`` is committed; up to ``prev_index`` you
    said that you have it. INSTALL_SNAPSHOT: ``snapshot`` instead of entries that I lack.

    A leader of another implementation does not say what its entry before is (``prev_term`` is
    UNTOLD): then a follower believes what it agreed on with this leader. Its TRUNCATE has the entry
    ``prev_index`` itself in ``entries``, for who has another first one.
    """

    serial: int
    term: int
    leader: str
    type: PushType
    prev_index: int
    prev_term: int
    commit_index: int
    next_term: int = 0
    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None


class PushResponse(msgspec.Struct, frozen=True, kw_only=True):
    """SUCCESS: the follower's log is durably the leader's up to ``match_index``.
    INCONSISTENT_STATE: it is not; ``x_term`` is what the follower has at ``prev_index`` and
    ``x_index`` where that term begins, or ``x_term`` is -1 and its log is too short.
    ``prev_index`` is that of the request, ``end_index`` is where the follower's log ends. Of a
    snapshot that is older than the follower's own, ``end_index`` is where that one ends, and
    ``x_term`` the term there.
    """

    serial: int
    term: int
    node: str
    type: PushType
    code: RaftCode
    prev_index: int = 0
    match_index: int = 0
    end_index: int = 0
    x_term: int = -1
    x_index: int = -1


class TakeLeadership(msgspec.Struct, frozen=True, kw_only=True):
    """LEADERSHIP_TRANSFER: the leader asks a follower that has everything to stand for election
    now. It is not answered: that the term changes is the answer."""

    serial: int
    term: int
    leader: str


Request = VoteRequest | HeartbeatRequest | PushRequest | TakeLeadership
Response = VoteResponse | HeartbeatResponse | PushResponse
Message = Request | Response

# -- events ----------------------------------------------------------------------------------------


class Tick(msgspec.Struct, frozen=True):
    """Time, by a clock that never goes back. All else happens at the time of the last tick, so a
    shell ticks before it hands in anything that it waited for."""

    now_ms: int


class MessageReceived(msgspec.Struct, frozen=True):
    """``sender``: the member that sent it."""

    sender: str
    message: Message


class Propose(msgspec.Struct, frozen=True):
    """Append ``data`` if this is the leader: the same step has ``Append`` with the new entry, or
    ``Refused``. Empty data is not allowed."""

    data: bytes


class ReadRequested(msgspec.Struct, frozen=True):
    """ReadIndex: answered by ``ReadReady`` or ``ReadFailed`` with the same id."""

    id: int


class Persisted(msgspec.Struct, frozen=True):
    """All actions with a mark up to this one are durable."""

    mark: int


class Loaded(msgspec.Struct, frozen=True):
    """The answer to ``Load``. ``entries`` begins with ``first``, or is empty: try again later."""

    first: int
    entries: Sequence[Entry]


class SnapshotTaken(msgspec.Struct, frozen=True):
    """A snapshot of the state machine after ``index``, which is applied, was taken. ``Compact``
    follows if the log can do without the entries now."""

    index: int


class TransferRequested(msgspec.Struct, frozen=True):
    """Hand the leadership to this member, if it can be done soon."""

    to: str


class ConnectionChanged(msgspec.Struct, frozen=True):
    """The connection to ``member`` was made (``is_up``) or lost. A shell whose transport keeps
    connections may say so: then no member waits for a time-out to learn what is known already. It
    is a hint: it changes when things are done, never what may be done."""

    member: str
    is_up: bool


Event = (
    Tick
    | MessageReceived
    | Propose
    | ReadRequested
    | Persisted
    | Loaded
    | SnapshotTaken
    | TransferRequested
    | ConnectionChanged
)

# -- actions ---------------------------------------------------------------------------------------


class Persist(msgspec.Struct, frozen=True):
    """Write the hard state, durably."""

    hard: HardState
    mark: int


class Append(msgspec.Struct, frozen=True):
    """Write entries at the end of the log, durably."""

    entries: tuple[Entry, ...]
    mark: int


class Truncate(msgspec.Struct, frozen=True):
    """Remove all entries from this index on; what follows in the list of actions may append."""

    from_index: int
    mark: int


class Install(msgspec.Struct, frozen=True):
    """Replace the whole log, and the state machine, by a snapshot; one step for a crash."""

    snapshot: Snapshot
    mark: int


class Compact(msgspec.Struct, frozen=True):
    """Keep the snapshot that was taken, and remove the entries up to this one: in one step for a
    crash, and whenever it suits."""

    upto_index: int


class Send(msgspec.Struct, frozen=True):
    to: str
    message: Message


class SendSnapshot(msgspec.Struct, frozen=True):
    """Send ``request`` with this node's newest snapshot in it, and ``prev_index`` and
    ``prev_term`` those of the snapshot; if the term is not over when that was read."""

    to: str
    request: PushRequest


class Load(msgspec.Struct, frozen=True):
    """Read entries from ``first`` on, about ``max_bytes``, and hand them in (``Loaded``)."""

    first: int
    max_bytes: int


class Commit(msgspec.Struct, frozen=True):
    """All entries up to this one are committed: apply those that are not applied yet."""

    index: int


class BecomeLeader(msgspec.Struct, frozen=True):
    """``end_index``: of the log when the tenure began; all after it is this leader's own."""

    term: int
    end_index: int


class BecomeFollower(msgspec.Struct, frozen=True):
    """``leader``: "" as long as it is not known."""

    term: int
    leader: str


class BecomeCandidate(msgspec.Struct, frozen=True):
    """There is no leader, as far as this member can see."""

    term: int


class Refused(msgspec.Struct, frozen=True):
    """A proposal was not appended. ``leader``: who may take it, "" if that is not known."""

    code: Literal["NOT_LEADER", "LEADER_PENDING_FULL", "LEADER_TRANSFERRING"]
    leader: str


class ReadReady(msgspec.Struct, frozen=True):
    """What is read when all up to ``index`` is applied here is not stale."""

    id: int
    index: int


class ReadFailed(msgspec.Struct, frozen=True):
    """This is not the leader, or not any more."""

    id: int
    leader: str


Action = (
    Persist
    | Append
    | Truncate
    | Install
    | Compact
    | Send
    | SendSnapshot
    | Load
    | Commit
    | BecomeLeader
    | BecomeFollower
    | BecomeCandidate
    | Refused
    | ReadReady
    | ReadFailed
)


# -- codes -----------------------------------------------------------------------------------------


class RaftCode(enum.IntEnum):
    """DLedgerResponseCode: how a request between DLedger's members ended; stands in the body."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    PUSH_REQUEST_IS_FULL = 421
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506
    LOAD_SNAPSHOT_ERROR = 507
    INSTALL_SNAPSHOT_ERROR = 508
