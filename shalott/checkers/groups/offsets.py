"""What a broker may rightfully say of a group's offset at a time, by what was committed.

The last commit counts, also another member's that is late. One is *superseded* by a later one that
was answered before it is asked for. A commit that was not answered may count for a while yet, and
so may an operator's reset: the broker tells the members, and a queue that none of them has at that
time stays as it was (upstream: ClientRemotingProcessor.resetOffset). A turn (master_changes.py) may
take back what was committed in its reach, and then what had been superseded counts again. The
*floor* is the least that is left; there is none if no commit is safe. Upstream:
ConsumerOffsetManager, SlaveSynchronize.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.group_history import UNSAID, WHYS, GroupHistory, Rows
from shalott.checkers.groups.master_changes import MS, Turns
from shalott.checkers.history.columns import NEVER, Bools, Ints
from shalott.checkers.logs.records import FAIL, INFO, NOWHERE, OK

LATE_NS = 30_000 * MS  # so long may a commit that was not answered be on its way
ASKED_NS = 3_500 * MS  # before a queue is assigned its offset is asked for, by a request of 3 s
NO_FLOOR = -1
COMMITTED, FIRST, LAST = (WHYS.index(why) for why in ("committed", "first", "last"))


@dataclass(frozen=True, slots=True)
class _Own:
    """Commits and resets of one queue by one group."""

    offset: Ints
    begin_ns: Ints
    end_ns: Ints
    is_ok: Bools


class OffsetBook:
    def __init__(self, story: GroupHistory) -> None:
        self._turns: Turns = story.turns
        self._width = len(story.keys.names) + 1
        commits, resets = story.commits, story.resets
        told = np.where(commits.seen == UNSAID, commits.offset, commits.seen)
        offset = np.concatenate((np.minimum(commits.offset, told), resets.offset))
        # A reset is the broker's word to members: a queue that none of them has is not set.
        asked = np.where(resets.type == FAIL, FAIL, INFO)
        type_ = np.concatenate((commits.type, asked))
        begin = np.concatenate((commits.begin_ns, resets.begin_ns))
        end = np.concatenate((commits.end_ns, resets.end_ns))
        end = np.where(type_ == INFO, _late_ns(begin, end, story.turns), end)
        place = np.concatenate((self._places(commits), self._places(resets)))
        kept = np.flatnonzero((type_ != FAIL) & (offset > NOWHERE))
        order = kept[np.lexsort((begin[kept], place[kept]))]
        # One that was made in a trouble may have gone to a broker that was master no more: a client
        # goes by its route, and what a slave is told its master's copy undoes.
        is_ok = (type_ == OK) & ~story.turns.troubled(begin, np.where(end == NEVER, begin, end))
        self._place = place[order]
        self._all = _Own(offset[order], begin[order], end[order], is_ok[order])

    def _places(self, rows: Rows) -> Ints:
        return rows.group.astype(np.int64) * self._width + rows.key

    def floor(self, group: int, key: int, begin_ns: int, end_ns: int) -> int:
        """The least that a broker may answer who is asked after ``begin_ns`` and answers before
        ``end_ns``; NO_FLOOR: nothing is promised."""
        own = self._own(group, key)
        if not len(own.offset):
            return NO_FLOOR
        safe = own.is_ok & (own.end_ns <= begin_ns)
        turns = self._turns
        for turn in np.flatnonzero(turns.begin_ns <= end_ns):
            before = own.end_ns <= turns.reach_ns[turn]
            safe &= before | (own.begin_ns >= turns.end_ns[turn])
        if not safe.any():
            return NO_FLOOR
        last_ns = own.begin_ns[safe].max()
        counts = (own.end_ns >= last_ns) & (own.begin_ns <= end_ns)
        return int(own.offset[counts].min())

    def is_alone(self, group: int, key: int, begin_ns: int, end_ns: int) -> bool:
        """Whether no more than one commit may have taken effect in that time."""
        own = self._own(group, key)
        return int(((own.begin_ns <= end_ns) & (own.end_ns >= begin_ns)).sum()) <= 1

    def _own(self, group: int, key: int) -> _Own:
        place = group * self._width + key
        first, end = np.searchsorted(self._place, (place, place + 1))
        whole = self._all
        return _Own(
            whole.offset[first:end],
            whole.begin_ns[first:end],
            whole.end_ns[first:end],
            whole.is_ok[first:end],
        )


def _late_ns(begin_ns: Ints, end_ns: Ints, turns: Turns) -> Ints:
    """Until when an unanswered commit may take effect: a while, and as long again as a trouble
    lasts that was there, since a broker that was suspended goes on with what lay in its sockets."""
    until = np.where(end_ns == NEVER, begin_ns, end_ns) + LATE_NS
    for trouble_begin_ns, trouble_end_ns in turns.troubles:
        touched = (begin_ns <= trouble_end_ns) & (until >= trouble_begin_ns)
        until = np.where(touched, np.maximum(until, trouble_end_ns + LATE_NS), until)
    return until


@dataclass(frozen=True, slots=True)
class Fall:
    """What was told of an offset, and was less than anything that may be so.

    ``kind``: offset-back, spurious-zero, spurious-end, commit-back, offset-not-taken.
    """

    kind: str
    group: int
    key: int
    told: int
    floor: int
    operations: tuple[int, ...]
    at_ns: int


def floors(story: GroupHistory, book: OffsetBook, asked_until_ns: Ints) -> Ints:
    """By assignment: the least offset at which it may have begun, by what had been committed."""
    rows = story.assignments
    return np.array(
        [
            NO_FLOOR if group < 0 else book.floor(group, key, begin - ASKED_NS, until)
            for group, key, begin, until in zip(
                rows.group.tolist(),
                rows.key.tolist(),
                rows.begin_ns.tolist(),
                asked_until_ns.tolist(),
                strict=True,
            )
        ],
        dtype=np.int64,
    )


def wrong_beginnings(story: GroupHistory, floor: Ints) -> Iterator[Fall]:
    """Assignments that began where nothing that was committed lets them."""
    rows = story.assignments
    below = (floor > rows.offset) & (rows.offset > NOWHERE) & ~_is_broadcast(story, rows)
    ended = (floor > NO_FLOOR) & (rows.why == LAST) & ~below & ~_is_broadcast(story, rows)
    for row in np.flatnonzero((below & (rows.why != LAST)) | ended).tolist():
        why, told = int(rows.why[row]), int(rows.offset[row])
        kind = "spurious-end" if why == LAST else "offset-back"
        if why == FIRST or (why == COMMITTED and told == 0):
            kind = "spurious-zero"
        elif why not in (COMMITTED, LAST):
            continue
        yield _fall(kind, rows, row, told, int(floor[row]))


def wrong_answers(story: GroupHistory, book: OffsetBook) -> Iterator[Fall]:
    """What brokers said at the end, and after a commit, and can't be."""
    finals = story.offsets
    for row in np.flatnonzero((finals.type == OK) & (finals.group >= 0)).tolist():
        group, key, told = int(finals.group[row]), int(finals.key[row]), int(finals.offset[row])
        floor = book.floor(group, key, int(finals.begin_ns[row]), int(finals.end_ns[row]))
        if max(told, 0) < floor:
            kind = "offset-back" if told > 0 else "spurious-zero"
            yield _fall(kind, finals, row, max(told, 0), floor)
    commits = story.commits
    quiet = ~story.turns.troubled(commits.begin_ns, commits.end_ns)
    lower = (commits.group >= 0) & (commits.seen != UNSAID) & (commits.seen < commits.offset)
    for row in np.flatnonzero(lower & quiet).tolist():
        group, key = int(commits.group[row]), int(commits.key[row])
        if book.is_alone(group, key, int(commits.begin_ns[row]), int(commits.end_ns[row])):
            told, floor = int(commits.seen[row]), int(commits.offset[row])
            yield _fall("offset-not-taken", commits, row, told, floor)


def falling_commits(story: GroupHistory, assignment: Ints) -> Iterator[Fall]:
    """Commits of one assignment that go back, though its member was not told to.

    ``assignment``: of each commit; -1: of none.
    """
    commits, resets, moves = story.commits, story.resets, story.moves
    rows = np.flatnonzero((assignment >= 0) & (commits.offset > NOWHERE) & (commits.group >= 0))
    rows = rows[np.lexsort((commits.begin_ns[rows], assignment[rows]))]
    if not len(rows):
        return
    before, row = rows[:-1], rows[1:]
    falls = (assignment[before] == assignment[row]) & (commits.offset[row] < commits.offset[before])
    for last, now in zip(before[falls].tolist(), row[falls].tolist(), strict=True):
        group, key, at_ns = commits.group[now], commits.key[now], commits.begin_ns[now]
        reset = (resets.group == group) & (resets.key == key) & (resets.begin_ns <= at_ns)
        own = (moves.member == commits.member[now]) & (moves.key == key)
        moved = own & (moves.begin_ns <= at_ns)
        since_ns = story.assignments.begin_ns[assignment[now]]
        reset &= np.where(resets.type == OK, resets.end_ns + LATE_NS, NEVER) >= since_ns
        if reset.any() or (moved & (moves.begin_ns >= since_ns)).any():
            continue
        told, floor = int(commits.offset[now]), int(commits.offset[last])
        fall = _fall("commit-back", commits, now, told, floor)
        yield Fall(
            fall.kind, fall.group, fall.key, told, floor,
            (int(commits.index[last]), int(commits.index[now])), fall.at_ns,
        )  # fmt: skip


def _fall(kind: str, rows: Rows, row: int, told: int, floor: int) -> Fall:
    return Fall(
        kind, int(rows.group[row]), int(rows.key[row]), told, floor,
        (int(rows.index[row]),), int(rows.begin_ns[row]),
    )  # fmt: skip


def _is_broadcast(story: GroupHistory, rows: Rows) -> Bools:
    flags = [group.broadcast for group in story.rules.groups]
    return np.array([*flags, True], np.bool_)[rows.group]
