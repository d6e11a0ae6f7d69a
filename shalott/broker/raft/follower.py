"""What a follower does with a leader's pushes.

It appends nothing unless the entry before is the leader's, gives way where its own entries
conflict, and answers when what it says is durable. Pushes may come late, twice and in any order:
what is already there is skipped, never removed, for it may have been acknowledged since.
"""

from __future__ import annotations

from shalott.broker.raft import heartbeats
from shalott.broker.raft.api import (
    UNTOLD,
    Append,
    Entry,
    Install,
    PushRequest,
    PushResponse,
    PushType,
    RaftCode,
    Send,
    Truncate,
)
from shalott.broker.raft.state import State


def handle_push(s: State, sender: str, request: PushRequest) -> None:
    code = heartbeats.accept_leader(s, sender, request.term)
    if code != RaftCode.SUCCESS:
        _answer(s, sender, request, code=code)
    elif s.has_bug("KB-DL-15") and _is_stuck(s, request):
        _answer(s, sender, request, code=RaftCode.REPEATED_PUSH)
    elif request.type == PushType.INSTALL_SNAPSHOT:
        _install(s, sender, request)
    elif request.type == PushType.TRUNCATE and _lacks_first(s, request):
        _begin_anew(s, sender, request)
    elif not _agrees(s, request):
        _disagree(s, sender, request)
    elif request.type == PushType.APPEND:
        _append(s, sender, request)
    elif request.type == PushType.TRUNCATE:
        _remove_rest(s, request)
        _answer(s, sender, request, match_index=request.prev_index)
    else:
        if request.type == PushType.COMMIT:
            is_told = request.prev_term != UNTOLD
            agreed = request.prev_index if is_told else s.agreed_index
            learn_commit(s, request.commit_index, agreed)
        _answer(s, sender, request, match_index=request.prev_index)


def _agrees(s: State, request: PushRequest) -> bool:
    if request.prev_term == UNTOLD:
        return request.prev_index <= s.agreed_index
    return s.log.has(request.prev_index, request.prev_term)


def _lacks_first(s: State, request: PushRequest) -> bool:
    """Whether it is the first entry of all that comes with this TRUNCATE, and is not here."""
    is_first = request.prev_index == s.log.first_index == 1
    return is_first and bool(request.entries) and not s.log.has(1, request.prev_term)


def _begin_anew(s: State, sender: str, request: PushRequest) -> None:
    if s.log.last_index:
        remove_from(s, 1)
    _write(s, request.entries)
    _answer(s, sender, request, match_index=1)


def _append(s: State, sender: str, request: PushRequest) -> None:
    end = request.prev_index + len(request.entries)
    for position, entry in enumerate(request.entries):
        if entry.index > s.log.last_index:
            _write(s, request.entries[position:])
            break
        if entry.index >= s.log.first_index and s.log.term_at(entry.index) != entry.term:
            remove_from(s, entry.index)
            _write(s, request.entries[position:])
            break
    learn_commit(s, request.commit_index, end)
    _answer(s, sender, request, match_index=end)


def _write(s: State, entries: tuple[Entry, ...]) -> None:
    s.log_mark = s.next_mark()
    s.log.append(entries, s.log_mark)
    s.emit(Append(entries, s.log_mark))


def remove_from(s: State, index: int) -> None:
    """Entries that a leader does not have give way; committed ones never do, unless a majority of
    disks lost what they had acknowledged."""
    s.log_mark = s.next_mark()
    s.log.truncate(index, s.log_mark)
    s.agreed_index = min(s.agreed_index, index - 1)
    s.emit(Truncate(index, s.log_mark))
    if not s.has_bug("KB-DL-13"):  # committed_not_lowered
        s.commit_index = min(s.commit_index, index - 1)


def _remove_rest(s: State, request: PushRequest) -> None:
    """Remove what follows ``prev_index``, but not what this leader has there, or gave."""
    following = request.prev_index + 1
    if following > s.log.last_index:
        return
    if s.log.term_at(following) not in (request.next_term, request.term):
        remove_from(s, following)


def learn_commit(s: State, commit_index: int, agreed_index: int) -> None:
    """``agreed_index``: up to where this log is known to be the leader's."""
    if s.has_bug("KB-DL-11"):  # commit_unchecked
        s.commit_to(commit_index)
    else:
        s.commit_to(min(commit_index, agreed_index))


def _install(s: State, sender: str, request: PushRequest) -> None:
    snapshot = request.snapshot
    assert snapshot is not None
    if snapshot.index > s.commit_index:
        if s.log.has(snapshot.index, snapshot.term):
            s.commit_to(snapshot.index)
        else:
            s.log_mark = s.next_mark()
            s.log.install(snapshot, s.log_mark)
            s.emit(Install(snapshot, s.log_mark))
            s.commit_index = snapshot.index
    if s.log.has(snapshot.index, snapshot.term):
        _answer(s, sender, request, match_index=snapshot.index)
    elif snapshot.index < s.log.first_index:
        # Its own goes further: a leader that has what this one ends with need not send more.
        end = s.log.first_index - 1
        _refuse(s, sender, request, end_index=end, x_term=s.log.term_at(end), x_index=end)
    else:
        _disagree(s, sender, request)


def _disagree(s: State, sender: str, request: PushRequest) -> None:
    prev = request.prev_index
    if s.has_bug("KB-DL-15") and request.type == PushType.APPEND:  # repeated_push_stuck
        s.stuck_pushes |= dict.fromkeys(entry.index for entry in request.entries)
    if prev > s.log.last_index:
        _refuse(s, sender, request, end_index=s.log.last_index, x_term=-1, x_index=-1)
    elif prev < s.log.first_index - 1:
        # It is in the snapshot here: look for agreement from there on.
        _refuse(s, sender, request, end_index=s.log.first_index - 1, x_term=-1, x_index=-1)
    else:
        x_index = s.log.first_of_term(prev)
        _refuse(
            s,
            sender,
            request,
            end_index=s.log.last_index,
            x_term=s.log.term_at(prev),
            x_index=x_index,
        )


def _is_stuck(s: State, request: PushRequest) -> bool:
    """With the bug, a push that could not be appended yet is remembered as under way for ever."""
    return any(entry.index in s.stuck_pushes for entry in request.entries)


def _refuse(
    s: State, sender: str, request: PushRequest, *, end_index: int, x_term: int, x_index: int
) -> None:
    response = PushResponse(
        serial=request.serial,
        term=s.term,
        node=s.name,
        type=request.type,
        code=RaftCode.INCONSISTENT_STATE,
        prev_index=request.prev_index,
        end_index=end_index,
        x_term=x_term,
        x_index=x_index,
    )
    s.hold(s.hard_mark, Send(sender, response))


def _answer(
    s: State,
    sender: str,
    request: PushRequest,
    *,
    code: RaftCode = RaftCode.SUCCESS,
    match_index: int = 0,
) -> None:
    if code == RaftCode.SUCCESS:
        s.agreed_index = max(s.agreed_index, match_index)
    response = PushResponse(
        serial=request.serial,
        term=s.term,
        node=s.name,
        type=request.type,
        code=code,
        prev_index=request.prev_index,
        match_index=match_index,
        end_index=s.log.last_index,
    )
    mark = max(s.hard_mark, s.log_mark) if code == RaftCode.SUCCESS else s.hard_mark
    s.hold(mark, Send(sender, response))
