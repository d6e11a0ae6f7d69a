"""Terms, votes and heartbeats: who leads.

Raft with pre-vote: who asks for votes first asks whether it would get them, and raises its term
only then, so a member that was cut off does not depose a leader when it comes back. Refusals are
looked at in DLedger's order (reference section 2.3.4), with two of its rules: a candidate with an
older log does not even make others raise their term, and who hears from a leader refuses everybody
(but the candidate that this leader sent). Unlike DLedger's, a follower of a lower term votes, or
follows, at once instead of becoming a candidate first.

A leader that no quorum answered for as long as a follower would wait for a leader steps down.
"""

from __future__ import annotations

from shalott.broker.raft import leading, reading
from shalott.broker.raft.api import (
    HeartbeatRequest,
    HeartbeatResponse,
    Send,
    TakeLeadership,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from shalott.broker.raft.codes import RaftCode
from shalott.broker.raft.state import Ballot, SelfVote, State

NAIVE_BUGS = ("KB-DL-03", "KB-DL-14")  # naive_election, isolated_follower_never_recovers
BACKOFF_ROUNDS_MAX = 3


def tick(s: State) -> None:
    if s.role == "leader":
        _check_quorum(s)
    elif s.now_ms >= s.wake_ms:
        if s.role == "follower":
            s.seek_leader()
        s.failed_rounds += 1
        begin_round(s, pre=not any(s.has_bug(bug) for bug in NAIVE_BUGS))
    if s.role == "leader" and s.now_ms - s.heartbeat_ms >= heartbeat_due_ms(s):
        send_heartbeats(s)


def heartbeat_due_ms(s: State) -> int:
    """Reads do not wait for the next regular heartbeat when the answers to one were lost."""
    regular = s.settings.heartbeat_interval_ms
    return min(regular, s.settings.push_timeout_ms) if s.reads else regular


def _check_quorum(s: State) -> None:
    heard = [p for p in s.progress.values() if s.now_ms - p.heard_ms < s.settings.leak_ms]
    if len(heard) + 1 < s.quorum:
        reading.fail_all(s)
        s.seek_leader()


def connection_changed(s: State, member: str, is_up: bool) -> None:
    """Who lost its leader, or so many that it leads no quorum, seeks one now; who seeks one while
    it gains somebody to ask does not sit out a pause that grew when there was nobody."""
    if s.role == "leader":
        leading.connection_changed(s, member, is_up)
        _check_quorum(s)
    elif s.role == "follower" and s.leader == member and not is_up:
        s.seek_leader()
    elif s.role == "candidate" and is_up:
        s.failed_rounds = 0
        s.wake_ms = min(s.wake_ms, s.now_ms + s.draw_stand_ms())


def adopt_term(s: State, term: int) -> None:
    """A term above this member's own was seen: what it had in its own is over."""
    s.persist(term, "")
    if s.role == "leader":
        reading.fail_all(s)
    if s.role != "candidate":
        s.seek_leader()
    s.ballot = None


# -- asking for votes ------------------------------------------------------------------------------


def begin_round(s: State, *, pre: bool, transfer: bool = False) -> None:
    """Ask everybody. A round that is not won when the next one begins is lost."""
    if not pre:
        s.persist(s.term + 1, s.name)
    request = VoteRequest(
        serial=s.next_serial(),
        term=s.term + 1 if pre else s.term,
        candidate=s.name,
        last_index=s.log.last_index,
        last_term=end_term(s),
        pre=pre,
        transfer=transfer,
    )
    s.ballot = Ballot(request.serial, request.term, pre)
    for member in s.others:
        s.hold(s.hard_mark, Send(member, request))
    # Rounds grow longer: a disk may need longer to make a vote durable than a round is.
    longer = min(s.failed_rounds, BACKOFF_ROUNDS_MAX)
    s.wake_ms = s.now_ms + s.draw_ms(
        s.settings.vote_min_ms, s.settings.vote_max_ms * max(1, longer)
    )
    if pre:
        take_vote(s, s.name)
    else:
        s.hold(s.hard_mark, SelfVote(s.term))


def end_term(s: State) -> int:
    if s.has_bug("KB-DL-02"):  # ledger_end_term_stale
        return s.stale_end_term
    return s.log.last_term


def take_vote(s: State, voter: str) -> None:
    ballot = s.ballot
    if ballot is None:
        return
    ballot.accepted[voter] = None
    if len(ballot.accepted) < s.quorum:
        return
    if ballot.pre:
        begin_round(s, pre=False)
    else:
        s.ballot = None
        leading.begin_tenure(s)
        send_heartbeats(s)


def handle_vote_response(s: State, sender: str, response: VoteResponse) -> None:
    ballot = s.ballot
    if ballot is None or response.serial != ballot.serial:
        return
    if response.result == VoteResult.ACCEPT:
        # Serials begin anew in every life, so an answer to an earlier life may look like ours.
        if response.term == ballot.term and response.pre == ballot.pre:
            take_vote(s, sender)
    elif response.term > s.term and not s.has_bug("KB-DL-09"):  # no_revote_on_larger_term
        adopt_term(s, response.term)


# -- giving votes ----------------------------------------------------------------------------------


def handle_vote(s: State, sender: str, request: VoteRequest) -> None:
    result = _judge(s, sender, request)
    term = s.term
    if result == VoteResult.ACCEPT:
        term = request.term
        if not request.pre:
            _vote(s, request)
    response = VoteResponse(
        serial=request.serial, term=term, voter=s.name, result=result, pre=request.pre
    )
    if s.has_bug("KB-DL-21"):  # vote_not_durable
        s.send(sender, response)
    else:
        s.hold(s.hard_mark, Send(sender, response))


def _vote(s: State, request: VoteRequest) -> None:
    if request.term > s.term and s.role != "follower":
        adopt_term(s, request.term)
    if s.hard.voted_for != request.candidate or request.term != s.term:
        s.persist(request.term, request.candidate)
    if s.role == "follower" and s.leader != "":
        s.seek_leader()
    # Give the candidate time to win before standing against it.
    s.ballot = None
    s.wake_ms = s.now_ms + s.draw_ms(s.settings.vote_max_ms, 2 * s.settings.vote_max_ms)


def _judge(s: State, sender: str, request: VoteRequest) -> VoteResult:
    if sender not in s.members or sender != request.candidate:
        return VoteResult.UNKNOWN_LEADER
    if sender == s.name:
        return VoteResult.UNEXPECTED_LEADER
    if request.last_term < end_term(s):
        return VoteResult.EXPIRED_LEDGER_TERM
    if request.last_term == end_term(s) and request.last_index < s.log.last_index:
        return VoteResult.SMALL_LEDGER_END_INDEX
    if not request.transfer and not s.has_bug("KB-DL-03") and has_leader(s):
        return VoteResult.ALREADY_HAS_LEADER
    if request.term < s.term:
        return VoteResult.EXPIRED_VOTE_TERM
    if request.term == s.term and s.hard.voted_for not in ("", request.candidate):
        return VoteResult.ALREADY_HAS_LEADER if s.leader else VoteResult.ALREADY_VOTED
    return VoteResult.ACCEPT


def has_leader(s: State) -> bool:
    """Whether it leads, or heard from its leader within the time that a leader is waited for."""
    if s.role == "leader":
        return True
    return s.leader != "" and s.now_ms - s.leader_heard_ms < s.settings.leak_ms


# -- heartbeats ------------------------------------------------------------------------------------


def send_heartbeats(s: State) -> None:
    s.round += 1
    s.heartbeat_ms = s.now_ms
    reading.round_begins(s)
    for member in s.others:
        request = HeartbeatRequest(
            serial=s.next_serial(), term=s.term, leader=s.name, round=s.round
        )
        s.send(member, request)


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


def handle_heartbeat(s: State, sender: str, request: HeartbeatRequest) -> None:
    code = accept_leader(s, sender, request.term)
    response = HeartbeatResponse(
        serial=request.serial, term=s.term, node=s.name, code=code, round=request.round
    )
    s.hold(s.hard_mark, Send(sender, response))


def handle_heartbeat_response(s: State, sender: str, response: HeartbeatResponse) -> None:
    if step_down_before(s, response.term, response.code) or response.term != s.term:
        return
    progress = s.progress.get(sender)
    if progress is not None and response.code == RaftCode.SUCCESS:
        progress.heard_ms = s.now_ms
        progress.round = max(progress.round, response.round)
        reading.round_answered(s)


def step_down_before(s: State, term: int, code: RaftCode) -> bool:
    """Whether a leader's request was refused because its term is over."""
    if code != RaftCode.EXPIRED_TERM or term <= s.term:
        return False
    if not s.has_bug("KB-DL-14"):  # isolated_follower_never_recovers
        adopt_term(s, term)
    return True


def handle_take_leadership(s: State, sender: str, request: TakeLeadership) -> None:
    if request.term == s.term and s.leader == sender and s.role == "follower":
        s.seek_leader()
        begin_round(s, pre=False, transfer=True)
