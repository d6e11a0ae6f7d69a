"""What each delivery was: the first of its message to a group, or why it came again.

- ``first``; ``redelivered``: again, and an event explains it (CAUSES says which);
- ``twice-at-once``: so explained, while another member still worked on it;
- ``after-commit``: from a queue whose owner began behind what had been committed safely
  (offsets.py), so everybody had been told that it was consumed;
- ``unexplained``: again, and nothing that is known happened.

Every member of a broadcast group is a group of its own. A message that is pulled from the group's
retry topic comes again because it was sent back; retries.py judges when and how often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.group_history import ENDS, LATER, SUSPEND, GroupHistory, Rows
from shalott.checkers.groups.master_changes import MS
from shalott.checkers.groups.offsets import LATE_NS, NO_FLOOR
from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints
from shalott.checkers.logs.records import FAIL, OK

CLASSES = ("first", "redelivered", "twice-at-once", "after-commit", "unexplained")
FIRST, REDELIVERED, AT_ONCE, AFTER_COMMIT, UNEXPLAINED = range(len(CLASSES))
CAUSES = (
    *("", "retry", "suspended", "local-retry", "reset", "moved", "failover"),
    *("rebalanced", "lock-lost", "left", "died", "closed", "two-owners", "stored-twice"),
    *("client-resent", "unknown-owner"),
)
_CODE = {cause: code for code, cause in enumerate(CAUSES)}
# Members hear of each other at once, or else with their next round, every 20 s (rebalance
# interval); a dead connection may be a member for two minutes (CHANNEL_EXPIRED_TIMEOUT).
REBALANCE_NS = 30_000 * MS
LEAVING_NS = 5_000 * MS  # a member that leaves tells the broker, and then its end is written down


@dataclass(frozen=True, slots=True)
class Judged:
    """By delivery. ``before``: the delivery of the same place that it repeats; -1: none."""

    assignment: Ints
    class_: Codes
    cause: Codes  # in CAUSES
    before: Ints


def assignment_of(story: GroupHistory, rows: Rows) -> Ints:
    """By row: the latest assignment of its queue to its member that had begun; -1: none."""
    own = story.assignments
    if not len(own) or not len(rows):
        return np.full(len(rows), -1, dtype=np.int64)
    width = len(story.keys.names) + 1
    places = own.member.astype(np.int64) * width + own.key
    wanted = rows.member.astype(np.int64) * width + rows.key
    distinct, rank = np.unique(places, return_inverse=True)
    at = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    span = np.int64(max(story.end_ns, int(rows.begin_ns.max()), int(own.begin_ns.max())) + 1)
    order = np.argsort(rank * span + own.begin_ns, kind="stable")
    sorted_ = (rank * span + own.begin_ns)[order]
    found = np.searchsorted(sorted_, at * span + rows.begin_ns, side="right") - 1
    found = np.where(found >= 0, order[found], -1)
    return np.where((found >= 0) & (places[found] == wanted), found, -1)


def units(story: GroupHistory, rows: Rows) -> Ints:
    """By row: the group, or the member where the group is a broadcast."""
    broadcast = np.array([*(g.broadcast for g in story.rules.groups), False], np.bool_)
    own = len(story.rules.groups) + rows.member.astype(np.int64)
    return np.where(broadcast[rows.group], own, rows.group)


def judge(story: GroupHistory, assignment: Ints, floor: Ints) -> Judged:
    """``assignment``: of each delivery; ``floor``: of each assignment."""
    rows = story.deliveries
    unit = units(story, rows)
    before, first = _earlier(rows, unit)
    class_ = np.where(first, FIRST, UNEXPLAINED).astype(np.int32)
    cause = np.zeros(len(rows), dtype=np.int32)
    again = np.flatnonzero((before >= 0) & (rows.message >= 0) & (rows.group >= 0))
    _explain_again(story, assignment, floor, before, again, class_, cause)
    elsewhere = np.flatnonzero((before < 0) & ~first & (rows.group >= 0))
    _explain_elsewhere(story, elsewhere, class_, cause)
    class_[(class_ == UNEXPLAINED) & (cause > 0)] = REDELIVERED
    at_once = again[(class_[again] == REDELIVERED) & _at_once(rows, before, again)]
    class_[at_once] = AT_ONCE
    return Judged(assignment, class_, cause, before)


def _earlier(rows: Rows, unit: Ints) -> tuple[Ints, Bools]:
    """By delivery: the one before it of the same message at the same place, and whether it is the
    unit's first of this message. What has no message is a first."""
    count = len(rows)
    before = np.full(count, -1, dtype=np.int64)
    order = np.lexsort((rows.offset, rows.key, rows.message, unit))  # stable: by time within
    same_unit = (np.diff(unit[order]) == 0) & (np.diff(rows.message[order]) == 0)
    same = same_unit & (np.diff(rows.key[order]) == 0) & (np.diff(rows.offset[order]) == 0)
    before[order[1:][same]] = order[:-1][same]
    # The first of a message's run, at any place, is the one that came first.
    begins = np.flatnonzero(np.concatenate(([True], ~same_unit))) if count else np.zeros(0, int)
    first = np.ones(count, dtype=np.bool_)
    if count:
        first[:] = False
        first[np.minimum.reduceat(order, begins)] = True
    known = rows.message >= 0
    before[~known] = -1
    return before, first | ~known


def _explain_again(
    story: GroupHistory,
    assignment: Ints,
    floor: Ints,
    before: Ints,
    again: Ints,
    class_: Codes,
    cause: Codes,
) -> None:
    """What came again from the same place."""
    rows = story.deliveries
    now, then = again, before[again]
    at, was = assignment[now], assignment[then]
    unknown = (at < 0) | (was < 0)
    _set(cause, now[unknown], "unknown-owner")
    one = ~unknown & (at == was)
    _explain_one(story, now[one], then[one], cause)
    other = ~unknown & (at != was)
    now, then, at, was = now[other], then[other], at[other], was[other]
    owned = story.assignments
    _explain_owners(story, now, then, at, was, cause)
    turned = story.turns.disturbed(rows.begin_ns[then], rows.begin_ns[now])
    _set(cause, now[turned], "failover")
    late = (floor[at] > rows.offset[now]) & (floor[at] != NO_FLOOR)
    told = _set_told_back(story, now, np.minimum(rows.begin_ns[then], owned.begin_ns[at]), cause)
    late &= ~told
    class_[now[late]] = AFTER_COMMIT
    cause[now[late]] = 0


def _explain_one(story: GroupHistory, now: Ints, then: Ints, cause: Codes) -> None:
    """Within one assignment: the member did it itself, or was told to."""
    rows = story.deliveries
    _set(cause, now[rows.outcome[then] == SUSPEND], "suspended")
    later = rows.outcome[then] == LATER
    _set(cause, now[later & ~_sent_back(story, then, now)], "local-retry")
    _set_told_back(story, now, rows.begin_ns[then], cause)


def _set_told_back(story: GroupHistory, now: Ints, since_ns: Ints, cause: Codes) -> Bools:
    """By delivery: whether a broker or the operator set its queue back since."""
    rows, moves = story.deliveries, story.moves
    moved = np.zeros(len(now), dtype=np.bool_)
    for row in range(len(moves)):
        own = (rows.member[now] == moves.member[row]) & (rows.key[now] == moves.key[row])
        at_ns = moves.begin_ns[row]
        moved |= own & (at_ns >= since_ns) & (at_ns <= rows.begin_ns[now])
    reset = _was_reset(story, now, since_ns)
    _set(cause, now[moved], "moved")
    _set(cause, now[reset], "reset")
    return moved | reset


def _sent_back(story: GroupHistory, then: Ints, now: Ints) -> Bools:
    """By pair: whether the message was sent back from there in between, and that was answered."""
    rows, sent = story.deliveries, story.send_backs.take(story.send_backs.type == OK)
    width = np.int64(max(int(rows.offset.max(initial=0)), int(sent.offset.max(initial=0))) + 2)
    keys = np.int64(len(story.keys.names) + 1)
    asked = (sent.member * keys + sent.key) * width + sent.offset
    mine = (rows.member[now] * keys + rows.key[now]) * width + rows.offset[now]
    # A place is asked for a few times at most, but the places are many.
    order = np.lexsort((sent.begin_ns, asked))
    asked, begin_ns = asked[order], sent.begin_ns[order]
    found = np.zeros(len(now), dtype=np.bool_)
    first, end = np.searchsorted(asked, mine), np.searchsorted(asked, mine, side="right")
    for pair in np.flatnonzero(end > first).tolist():
        own = begin_ns[first[pair] : end[pair]]
        since_ns, until_ns = rows.begin_ns[then[pair]], rows.begin_ns[now[pair]]
        found[pair] = bool(((own >= since_ns) & (own <= until_ns)).any())
    return found


def _was_reset(story: GroupHistory, now: Ints, since_ns: Ints) -> Bools:
    """By delivery: whether its queue was set back by the operator since, as far as its offset."""
    rows, resets = story.deliveries, story.resets
    found = np.zeros(len(now), dtype=np.bool_)
    for row in np.flatnonzero(resets.type != FAIL).tolist():
        own = (rows.group[now] == resets.group[row]) & (rows.key[now] == resets.key[row])
        until_ns = resets.end_ns[row]
        until_ns = NEVER if until_ns == NEVER else until_ns + LATE_NS
        reached = (resets.begin_ns[row] <= rows.begin_ns[now]) & (until_ns >= since_ns)
        found |= own & reached & (rows.offset[now] >= resets.offset[row])
    return found


def _explain_owners(
    story: GroupHistory, now: Ints, then: Ints, at: Ints, was: Ints, cause: Codes
) -> None:
    """Another assignment: how the one before it ended, or why there are two at once."""
    rows, owned = story.deliveries, story.assignments
    over = owned.end_ns[was] <= owned.begin_ns[at]
    ended = owned.ended[was]
    by_end = np.array([_CODE.get(name, _CODE["rebalanced"]) for name in ENDS], np.int32)
    cause[now] = np.where(over, by_end[ended], 0)
    two = np.flatnonzero(~over)
    near = _near_a_change(story, rows.group[now[two]], rows.begin_ns[now[two]])
    same = owned.member[at[two]] == owned.member[was[two]]
    cause[now[two]] = np.where(near | same, _CODE["two-owners"], 0)


def _near_a_change(story: GroupHistory, group: Codes, at_ns: Ints) -> Bools:
    """Whether members may not agree at that time on who has what: shortly after one of them came
    or went, or after anything was wrong with the cluster."""
    lives = story.lives
    near = story.turns.troubled(at_ns - REBALANCE_NS, at_ns)
    for number in range(len(story.rules.groups)):
        own = lives.group == number
        changes = np.sort(np.concatenate((lives.begin_ns[own], lives.end_ns[own])))
        mine = group == number
        last = np.searchsorted(changes, at_ns + LEAVING_NS, side="right") - 1
        if len(changes):
            near |= mine & (last >= 0) & (changes[last] >= at_ns - REBALANCE_NS)
    return near


def _explain_elsewhere(story: GroupHistory, rows_: Ints, class_: Codes, cause: Codes) -> None:
    """Again, from another place: a retry, or what the log has twice."""
    rows = story.deliveries
    retried = story.keys.retry_of[rows.key[rows_]] == rows.group[rows_]
    _set(cause, rows_[retried], "retry")
    stored = rows_[~retried]
    delay = story.messages.delay[rows.message[stored]]
    since_ns = story.messages.begin_ns[rows.message[stored]]
    turned = story.turns.troubled(since_ns, rows.begin_ns[stored])
    _set(cause, stored[(delay > 0) & turned], "stored-twice")
    if story.rules.client != "own":
        _set(cause, stored, "client-resent")


def _at_once(rows: Rows, before: Ints, again: Ints) -> Bools:
    then = before[again]
    other = rows.member[then] != rows.member[again]
    return np.asarray(other & (rows.end_ns[then] > rows.begin_ns[again]))


def _set(cause: Codes, rows: Ints, name: str) -> None:
    cause[rows] = _CODE[name]
