"""Terms, heartbeats and ReadIndex: who is followed, and whether a leader still leads.

ReadIndex gives reads that are not stale without an entry in the log. A leader notes how far it has
committed, asks a quorum whether it still leads by a heartbeat that is sent after the read was asked
for, and lets the read go when that much is applied. A new leader knows what is committed only when
it has committed an entry of its own term; reads wait for that.
"""

from __future__ import annotations

from shalott.broker.raft.api import (
    HeartbeatRequest,
    HeartbeatResponse,
    RaftCode,
    ReadFailed,
    ReadReady,
    Send,
)
from shalott.broker.raft.state import NOT_READY_MS, Read, State

UNCONFIRMED = -1


def adopt_term(s: State, term: int) -> None:
    """A term above this member's own was seen: what it had in its own is over."""
    s.persist(term, "")
    if s.role == "leader":
        fail_all(s)
    if s.role != "candidate":
        s.seek_leader()
    s.ballot = None


def step_down_before(s: State, term: int, code: RaftCode) -> bool:
    """Whether a leader's request was refused because its term is over."""
    if code != RaftCode.EXPIRED_TERM or term <= s.term:
        return False
    if not s.has_bug("KB-DL-14"):  # isolated_follower_never_recovers
        adopt_term(s, term)
    return True


def accept_leader(s: State, sender: str, term: int) -> RaftCode:
    """What to say to a message of the leader of ``term``, and follow it if that is SUCCESS."""
    if sender not in s.members or sender == s.name:
        return RaftCode.UNKNOWN_MEMBER
    if term < s.term:
        return RaftCode.EXPIRED_TERM
    if term == s.term and s.role == "leader":
        return RaftCode.INCONSISTENT_LEADER  # two leaders of one term: never, but with a bug
    if term == s.term and s.leader not in ("", sender):
        return RaftCode.INCONSISTENT_LEADER
    if term > s.term:
        adopt_term(s, term)
    s.follow(sender)
    return RaftCode.SUCCESS


def has_leader(s: State) -> bool:
    """Whether it leads, or heard from its leader within the time that a leader is waited for."""
    if s.role == "leader":
        return True
    return s.leader != "" and s.now_ms - s.leader_heard_ms < s.settings.leak_ms


# -- heartbeats ------------------------------------------------------------------------------------


def heartbeat_due_ms(s: State) -> int:
    """Reads do not wait for the next regular heartbeat when the answers to one were lost."""
    regular = s.settings.heartbeat_interval_ms
    return min(regular, s.settings.push_timeout_ms) if s.reads else regular


def send_heartbeats(s: State) -> None:
    s.round += 1
    s.heartbeat_ms = s.now_ms
    round_begins(s)
    for member in s.others:
        request = HeartbeatRequest(
            serial=s.next_serial(), term=s.term, leader=s.name, round=s.round
        )
        s.send(member, request)


def handle_heartbeat(s: State, sender: str, request: HeartbeatRequest) -> None:
    code = accept_leader(s, sender, request.term)
    response = HeartbeatResponse(
        serial=request.serial, term=s.term, node=s.name, code=code, round=request.round
    )
    s.hold(s.hard_mark, Send(sender, response))


def handle_heartbeat_response(s: State, sender: str, response: HeartbeatResponse) -> None:
    if step_down_before(s, response.term, response.code) or response.term != s.term:
        return
    if response.code == RaftCode.TERM_NOT_READY:
        soon_ms = s.now_ms + NOT_READY_MS - heartbeat_due_ms(s)
        s.heartbeat_ms = min(s.heartbeat_ms, soon_ms)
    progress = s.progress.get(sender)
    if progress is not None and response.code == RaftCode.SUCCESS:
        progress.heard_ms = s.now_ms
        progress.round = max(progress.round, response.round)
        round_answered(s)


# -- ReadIndex -------------------------------------------------------------------------------------


def handle_read(s: State, read_id: int) -> None:
    if s.role != "leader":
        s.emit(ReadFailed(read_id, s.leader))
        return
    s.reads.append(Read(read_id, UNCONFIRMED))
    begin_reads(s)


def begin_reads(s: State) -> None:
    """Send a heartbeat for the reads that wait, unless one for others is under way."""
    is_asking = any(read.round for read in s.reads)
    if s.role == "leader" and s.reads and not is_asking and knows_committed(s):
        send_heartbeats(s)
        round_answered(s)  # a group of one needs no answer


def knows_committed(s: State) -> bool:
    """Whether it has committed an entry of its own term."""
    return s.commit_index > s.tenure_index


def round_begins(s: State) -> None:
    """A heartbeat is about to be sent: it will do for all reads that wait."""
    if not knows_committed(s):
        return
    for read in s.reads:
        if not read.round:
            read.round, read.index = s.round, s.commit_index


def round_answered(s: State) -> None:
    """Let go the reads whose heartbeat, or a later one, a quorum has answered."""
    rounds = sorted([s.round, *(p.round for p in s.progress.values())], reverse=True)
    confirmed = rounds[s.quorum - 1]
    ready = [read for read in s.reads if 0 < read.round <= confirmed]
    if ready:
        s.reads = [read for read in s.reads if read not in ready]
        for read in ready:
            s.emit(ReadReady(read.id, read.index))
        begin_reads(s)


def fail_all(s: State) -> None:
    reads, s.reads = s.reads, []
    for read in reads:
        s.emit(ReadFailed(read.id, s.leader if s.role != "leader" else ""))
