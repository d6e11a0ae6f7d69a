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

from shalott.broker.raft import heartbeats, leader
from shalott.broker.raft.api import Send, TakeLeadership, VoteRequest, VoteResponse, VoteResult
from shalott.broker.raft.state import NOT_READY_MS, Ballot, SelfVote, State

NAIVE_BUGS = ("KB-DL-03", "KB-DL-14")  # naive_election, isolated_follower_never_recovers
BACKOFF_ROUNDS_MAX = 3


def tick(s: State) -> None:
    if s.role == "leader":
        _check_quorum(s)
    elif s.now_ms >= s.wake_ms:
        if s.role == "follower":
            s.seek_leader()
        if s.ballot is not None and s.ballot.again and s.now_ms < s.ballot.ends_ms:
            _ask_again(s, s.ballot)
        else:
            s.failed_rounds += 1
            begin_round(s, pre=not any(s.has_bug(bug) for bug in NAIVE_BUGS))
    if s.role == "leader" and s.now_ms - s.heartbeat_ms >= heartbeats.heartbeat_due_ms(s):
        heartbeats.send_heartbeats(s)


def _check_quorum(s: State) -> None:
    heard = [p for p in s.progress.values() if s.now_ms - p.heard_ms < s.settings.leak_ms]
    if len(heard) + 1 < s.quorum:
        heartbeats.fail_all(s)
        s.seek_leader()


def connection_changed(s: State, member: str, is_up: bool) -> None:
    """Who lost its leader, or so many that it leads no quorum, seeks one now; who seeks one while
    it gains a member to ask does not sit out a pause that grew when there was none."""
    if s.role == "leader":
        leader.connection_changed(s, member, is_up)
        _check_quorum(s)
    elif s.role == "follower" and s.leader == member and not is_up:
        s.seek_leader()
    elif s.role == "candidate" and is_up:
        s.failed_rounds = 0
        s.wake_ms = min(s.wake_ms, s.now_ms + s.draw_stand_ms())


# -- asking for votes ------------------------------------------------------------------------------


def begin_round(s: State, *, pre: bool, transfer: bool = False) -> None:
    """Ask everybody. A round that is not won when the next one begins is lost."""
    if not pre:
        s.persist(s.term + 1, s.name)
    request = _vote_request(s, s.term + 1 if pre else s.term, pre=pre, transfer=transfer)
    s.ballot = Ballot(request.serial, request.term, pre)
    _ask(s, s.ballot, request)
    # Rounds grow longer: a disk may need longer to make a vote durable than a round is.
    longer = min(s.failed_rounds, BACKOFF_ROUNDS_MAX)
    s.wake_ms = s.now_ms + s.draw_ms(
        s.settings.vote_min_ms, s.settings.vote_max_ms * max(1, longer)
    )
    s.ballot.ends_ms = s.wake_ms
    if pre:
        take_vote(s, s.name)
    else:
        s.hold(s.hard_mark, SelfVote(s.term))


def _vote_request(s: State, term: int, *, pre: bool, transfer: bool = False) -> VoteRequest:
    return VoteRequest(
        serial=s.next_serial(),
        term=term,
        candidate=s.name,
        last_index=s.log.last_index,
        last_term=end_term(s),
        pre=pre,
        transfer=transfer,
    )


def _ask_again(s: State, ballot: Ballot) -> None:
    """In the same round, who has not voted yet."""
    request = _vote_request(s, ballot.term, pre=ballot.pre)
    ballot.serial, ballot.again = request.serial, False
    _ask(s, ballot, request)
    s.wake_ms = ballot.ends_ms


def _ask(s: State, ballot: Ballot, request: VoteRequest) -> None:
    for member in s.others:
        if member not in ballot.accepted:
            s.hold(s.hard_mark, Send(member, request))


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
        leader.begin_tenure(s)
        heartbeats.send_heartbeats(s)


def handle_vote_response(s: State, sender: str, response: VoteResponse) -> None:
    ballot = s.ballot
    if ballot is None or response.serial != ballot.serial:
        return
    if response.result == VoteResult.ACCEPT:
        # Serials begin anew in every life, so an answer to an earlier life may look like ours.
        if response.term == ballot.term and response.pre == ballot.pre:
            take_vote(s, sender)
    elif response.result == VoteResult.TERM_NOT_READY:
        ballot.again = True
        s.wake_ms = min(s.wake_ms, s.now_ms + NOT_READY_MS)
    elif response.term > s.term and not s.has_bug("KB-DL-09"):  # no_revote_on_larger_term
        heartbeats.adopt_term(s, response.term)


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
        heartbeats.adopt_term(s, request.term)
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
    is_wanted = request.transfer or s.transfer_to == sender
    if not is_wanted and not s.has_bug("KB-DL-03") and heartbeats.has_leader(s):
        return VoteResult.ALREADY_HAS_LEADER
    if request.term < s.term:
        return VoteResult.EXPIRED_VOTE_TERM
    if request.term == s.term and s.hard.voted_for not in ("", request.candidate):
        # Who has not heard from its leader for long is about to stand: it is none to wait for.
        has = heartbeats.has_leader(s)
        return VoteResult.ALREADY_HAS_LEADER if has else VoteResult.ALREADY_VOTED
    return VoteResult.ACCEPT


# -- heartbeats ------------------------------------------------------------------------------------


def handle_take_leadership(s: State, sender: str, request: TakeLeadership) -> None:
    if request.term == s.term and s.leader == sender and s.role == "follower":
        s.seek_leader()
        begin_round(s, pre=False, transfer=True)
