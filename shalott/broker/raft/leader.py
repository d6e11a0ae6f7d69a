"""What a leader does: a dispatcher for each follower, and commits.

A dispatcher COMPAREs until it knows where its follower's log agrees, TRUNCATEs what the follower
has beyond that, and APPENDs, several pushes ahead of the answers; when there is nothing to append
it tells at intervals what is COMMITted. A follower that lacks what is not in the log any more is
sent the snapshot. What is not answered in time is asked anew, appends by a new COMPARE.

A leader commits what a quorum has durably, and only up to an entry of its own term: entries of
older terms are committed with it (Raft, section 5.4.2, Figure 8).
"""

from __future__ import annotations

from shalott.broker.raft import heartbeats
from shalott.broker.raft.api import (
    Append,
    BecomeLeader,
    Entry,
    Load,
    Propose,
    PushRequest,
    PushResponse,
    PushType,
    RaftCode,
    Refused,
    SendSnapshot,
    TakeLeadership,
)
from shalott.broker.raft.state import LONG_AGO_MS, NOT_READY_MS, Progress, State

SNAPSHOT_PATIENCE = 10  # push timeouts: reading and installing a snapshot takes longer


def begin_tenure(s: State) -> None:
    s.role, s.leader = "leader", s.name
    s.tenure_index = s.log.last_index
    s.progress = {
        member: Progress(next_index=s.log.last_index + 1, heard_ms=s.now_ms) for member in s.others
    }
    s.emit(BecomeLeader(s.term, s.tenure_index))
    if s.settings.no_op_on_election:
        _append(s, s.settings.no_op)
    dispatch_all(s)


def propose(s: State, proposal: Propose) -> None:
    assert proposal.data
    if s.role != "leader":
        s.emit(Refused("NOT_LEADER", s.leader))
    elif s.transfer_to:
        s.emit(Refused("LEADER_TRANSFERRING", ""))
    elif s.log.last_index - s.commit_index >= s.settings.max_pending_entries:
        s.emit(Refused("LEADER_PENDING_FULL", s.name))
    else:
        _append(s, proposal.data)
        dispatch_all(s)


def _append(s: State, data: bytes) -> None:
    entry = Entry(s.log.last_index + 1, s.term, data)
    s.log_mark = s.next_mark()
    s.log.append([entry], s.log_mark)
    s.stale_end_term = s.term
    s.emit(Append((entry,), s.log_mark))


# -- dispatchers -----------------------------------------------------------------------------------


def tick(s: State) -> None:
    if s.transfer_to and s.now_ms >= s.transfer_ends_ms:
        s.transfer_to = ""
    dispatch_all(s)


def dispatch_all(s: State) -> None:
    for member, progress in s.progress.items():
        dispatch(s, member, progress)


def dispatch(s: State, member: str, p: Progress) -> None:
    if p.state == PushType.APPEND:
        timeout_ms = s.settings.push_timeout_ms
        if p.inflight and s.now_ms - p.inflight[0][1] >= timeout_ms:
            _compare_from(p, p.match_index)
        else:
            _append_more(s, member, p)
            _push_commit(s, member, p)
            return
    if p.next_index < s.log.first_index:
        if p.state != PushType.INSTALL_SNAPSHOT:
            p.ask_again(PushType.INSTALL_SNAPSHOT)
    elif p.state == PushType.INSTALL_SNAPSHOT:
        p.ask_again(PushType.COMPARE)
    _ask(s, member, p)


def patience(state: PushType) -> int:
    """How many push timeouts a request of this state may take."""
    return SNAPSHOT_PATIENCE if state == PushType.INSTALL_SNAPSHOT else 1


def _ask(s: State, member: str, p: Progress) -> None:
    """COMPARE, TRUNCATE or INSTALL_SNAPSHOT, if it is not under way."""
    if s.now_ms - p.asked_ms < patience(p.state) * s.settings.push_timeout_ms:
        return
    p.asked_ms = s.now_ms
    p.asked_serial = s.next_serial()
    if p.state == PushType.INSTALL_SNAPSHOT:
        request = _request(s, p.state, s.log.first_index - 1, p.asked_serial)
        s.emit(SendSnapshot(member, request))
    else:
        s.send(member, _request(s, p.state, p.next_index - 1, p.asked_serial))


def _request(
    s: State, kind: PushType, prev_index: int, serial: int, entries: tuple[Entry, ...] = ()
) -> PushRequest:
    following = prev_index + 1
    return PushRequest(
        serial=serial,
        term=s.term,
        leader=s.name,
        type=kind,
        prev_index=prev_index,
        prev_term=s.log.term_at(prev_index),
        commit_index=s.commit_index,
        next_term=s.log.term_at(following) if following <= s.log.last_index else 0,
        entries=entries,
    )


def _append_more(s: State, member: str, p: Progress) -> None:
    while len(p.inflight) < s.settings.max_inflight_pushes and p.next_index <= s.log.last_index:
        if p.loading:
            return
        if p.next_index < s.log.first_index:
            p.ask_again(PushType.INSTALL_SNAPSHOT)
            return
        entries = s.log.entries(p.next_index, s.settings.max_push_bytes)
        if entries is None:
            p.loading = True
            s.emit(Load(p.next_index, s.settings.max_push_bytes))
            return
        _push(s, member, p, tuple(entries))


def _push(s: State, member: str, p: Progress, entries: tuple[Entry, ...]) -> None:
    serial = s.next_serial()
    s.send(member, _request(s, PushType.APPEND, p.next_index - 1, serial, entries))
    p.next_index += len(entries)
    p.inflight.append((serial, s.now_ms))
    p.commit_pushed_ms = s.now_ms
    p.told_commit = s.commit_index


def handle_loaded(s: State, first: int, entries: tuple[Entry, ...]) -> None:
    """Entries from the disk, for all followers that wait for them."""
    for member, p in s.progress.items():
        if p.loading and p.next_index == first and p.state == PushType.APPEND:
            p.loading = False
            if entries and all(s.log.has(entry.index, entry.term) for entry in entries):
                _push(s, member, p, entries)
                _append_more(s, member, p)


def _push_commit(s: State, member: str, p: Progress) -> None:
    """Tell an idle follower what is committed, and so see whether it still has what it said."""
    if p.state != PushType.APPEND or p.inflight:
        return
    has_news = s.settings.push_commits_at_once and p.told_commit < s.commit_index
    if not has_news and s.now_ms - p.commit_pushed_ms < s.settings.commit_push_interval_ms:
        return
    p.commit_pushed_ms = s.now_ms
    p.told_commit = s.commit_index
    prev_index = max(p.match_index, s.log.first_index - 1)
    s.send(member, _request(s, PushType.COMMIT, prev_index, s.next_serial()))


def _compare_from(p: Progress, index: int) -> None:
    p.next_index = index + 1
    p.ask_again(PushType.COMPARE)


# -- answers ---------------------------------------------------------------------------------------


def handle_push_response(s: State, sender: str, response: PushResponse) -> None:
    if heartbeats.step_down_before(s, response.term, response.code) or response.term != s.term:
        return
    p = s.progress.get(sender)
    if p is None or response.serial < p.trusted_serial:
        return
    p.heard_ms = s.now_ms
    if response.code == RaftCode.SUCCESS:
        _agreed(s, p, response)
        commit(s)
    elif response.code == RaftCode.INCONSISTENT_STATE:
        _disagreed(s, p, response)
    elif response.code == RaftCode.NOT_FOLLOWER and response.serial == p.asked_serial:
        p.asked_ms = s.now_ms + NOT_READY_MS - patience(p.state) * s.settings.push_timeout_ms
    dispatch(s, sender, p)
    _hand_over(s)


def _agreed(s: State, p: Progress, response: PushResponse) -> None:
    p.match_index = max(p.match_index, response.match_index)
    if p.state == PushType.APPEND:
        while p.inflight and p.inflight[0][0] <= response.serial:
            p.inflight.popleft()
        return
    if response.serial != p.asked_serial:
        return
    p.next_index = response.match_index + 1
    is_longer = response.end_index > response.match_index
    if p.state == PushType.COMPARE and is_longer:
        p.ask_again(PushType.TRUNCATE)
    else:
        p.ask_again(PushType.APPEND)


def _disagreed(s: State, p: Progress, response: PushResponse) -> None:
    """Its log is not what this leader took it for: find anew where it agrees."""
    if response.type in (PushType.APPEND, PushType.COMMIT):
        if p.state != PushType.APPEND:
            return  # it is being found out already
        if response.type == PushType.COMMIT and s.has_bug("KB-DL-04"):  # no_recompare_when_idle
            return
    elif response.serial != p.asked_serial:
        return
    elif response.type == PushType.INSTALL_SNAPSHOT:
        if response.x_term >= 0 and s.log.has(response.end_index, response.x_term):
            _compare_from(p, response.end_index)  # its own snapshot goes further, and agrees
        return  # one that does not agree is sent again when it is time
    if response.end_index < p.match_index:
        # It lost what it had acknowledged: its disk was wiped.
        p.match_index = response.end_index
        p.trusted_serial = s.serial + 1
    _compare_from(p, _last_that_may_agree(s, response))


def _last_that_may_agree(s: State, response: PushResponse) -> int:
    if response.x_term < 0:
        return min(response.end_index, s.log.last_index)
    same = s.log.last_up_to_term(response.x_term, response.prev_index - 1)
    return same if s.log.has(same, response.x_term) else min(same, response.x_index - 1)


def commit(s: State) -> None:
    """Commit what a quorum has durably."""
    durable = [s.log.durable_index, *(p.match_index for p in s.progress.values())]
    index = sorted(durable, reverse=True)[s.quorum - 1]
    if index <= s.commit_index:
        return
    own = s.log.term_at(index) == s.term
    if own or s.has_bug("KB-DL-01"):  # commit_prior_term
        s.commit_to(index)
        heartbeats.begin_reads(s)
        if s.settings.push_commits_at_once:
            dispatch_all(s)


def connection_changed(s: State, member: str, is_up: bool) -> None:
    """What was under way to ``member`` is lost, and who is gone is not waited for."""
    p = s.progress.get(member)
    if p is None:
        return
    _compare_from(p, p.match_index)
    if is_up:
        dispatch(s, member, p)
    else:
        p.heard_ms = LONG_AGO_MS


# -- handing over ----------------------------------------------------------------------------------


def transfer(s: State, to: str) -> None:
    if s.role == "leader" and to in s.progress:
        s.transfer_to = to
        s.transfer_ends_ms = s.now_ms + s.settings.vote_max_ms
        _hand_over(s)


def _hand_over(s: State) -> None:
    p = s.progress.get(s.transfer_to)
    if p is not None and p.match_index == s.log.last_index:
        request = TakeLeadership(serial=s.next_serial(), term=s.term, leader=s.name)
        s.send(s.transfer_to, request)
