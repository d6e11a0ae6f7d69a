"""Orderly groups: a queue is one member's at a time, who takes its messages in their order.

A broker's lock is its holder's for 60 s after he last asked for it (RebalanceLockManager), in that
broker's memory: its successor knows of none. So *claimed* ownership, by what brokers answered, is
judged while one master rules, and *effective* ownership, two members at work on one queue, unless
the master changed or the lock expired since the first one last had an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.group_history import SUSPEND, GroupHistory
from shalott.checkers.groups.master_changes import MS
from shalott.checkers.groups.retries import is_orderly
from shalott.checkers.history.columns import NEVER, Bools, Ints
from shalott.checkers.logs.records import NOWHERE, OK

LOCK_NS = 60_000 * MS  # rocketmq.broker.rebalance.lockMaxLiveTime
SLACK_NS = 1_000 * MS  # clocks that drift; what a member does just before it says so


@dataclass(frozen=True, slots=True)
class Clash:
    """Two rows that must not be. ``at_ns``: when the second one began."""

    kind: str
    group: int
    key: int
    operations: tuple[int, ...]
    at_ns: int
    text: str


def two_holders(story: GroupHistory) -> Iterator[Clash]:
    """Locks that were given to one member while another had them."""
    locks = story.locks
    held = np.flatnonzero((locks.type == OK) & locks.held & (locks.group >= 0))
    held = held[np.lexsort((locks.begin_ns[held], locks.key[held], locks.group[held]))]
    if len(held) < 2:
        return
    then, now = held[:-1], held[1:]
    same = (locks.group[then] == locks.group[now]) & (locks.key[then] == locks.key[now])
    other = same & (locks.member[then] != locks.member[now])
    other &= locks.end_ns[now] < locks.begin_ns[then] + LOCK_NS - SLACK_NS
    then, now = then[other], now[other]
    steady = ~story.turns.disturbed(locks.begin_ns[then], locks.end_ns[now])
    for first, second in zip(then[steady].tolist(), now[steady].tolist(), strict=True):
        until_ns = int(locks.end_ns[second])
        if not _still_has(story, first, until_ns):
            continue
        age_s = (until_ns - int(locks.begin_ns[first])) / 1e9
        yield Clash(
            "lock-of-two",
            int(locks.group[second]),
            int(locks.key[second]),
            (int(locks.index[first]), int(locks.index[second])),
            int(locks.begin_ns[second]),
            f"its lock was given to {story.members[locks.member[second]]} {age_s:.1f} s after"
            f" {story.members[locks.member[first]]} had asked for it, who had not given it up",
        )


def _still_has(story: GroupHistory, lock: int, until_ns: int) -> bool:
    """Whether the holder of a lock had its queue until then, by his own rows."""
    locks, owned = story.locks, story.assignments
    own = (owned.member == locks.member[lock]) & (owned.key == locks.key[lock])
    own &= owned.begin_ns <= until_ns
    return bool((own & (owned.end_ns > until_ns + SLACK_NS)).any())


def two_workers(story: GroupHistory) -> Iterator[Clash]:
    """Deliveries of one queue to two members that overlap in time."""
    rows = story.deliveries
    mine = np.flatnonzero(is_orderly(story, rows))
    mine = mine[np.lexsort((rows.begin_ns[mine], rows.key[mine], rows.group[mine]))]
    then, now = _overlaps(story, mine)
    for first, second in zip(then.tolist(), now.tolist(), strict=True):
        at_ns = int(rows.begin_ns[second])
        if not _is_excused(story, first, second, at_ns):
            yield Clash(
                "work-of-two",
                int(rows.group[second]),
                int(rows.key[second]),
                (int(rows.index[first]), int(rows.index[second])),
                at_ns,
                f"{story.members[rows.member[second]]} was given offset {rows.offset[second]}"
                f" while {story.members[rows.member[first]]} worked on {rows.offset[first]}",
            )


def _is_excused(story: GroupHistory, first: int, second: int, at_ns: int) -> bool:
    """Whether either went by a lock that another master had given, or the first one's expired."""
    asked_ns = [_last_lock_ns(story, each, at_ns) for each in (first, second)]
    begin_ns = int(story.deliveries.begin_ns[first])
    since_ns = [begin_ns - LOCK_NS if each is None else each for each in asked_ns]
    if story.turns.disturbed(np.array(since_ns), np.array([at_ns, at_ns])).any():
        return True
    return asked_ns[0] is not None and at_ns + SLACK_NS >= asked_ns[0] + LOCK_NS


def _overlaps(story: GroupHistory, order: Ints) -> tuple[Ints, Ints]:
    """Pairs of deliveries, the first of which was still worked on when the second began."""
    rows = story.deliveries
    if len(order) < 2:
        return order[:0], order[:0]
    new = (np.diff(rows.group[order]) != 0) | (np.diff(rows.key[order]) != 0)
    part = np.concatenate(([0], np.cumsum(new)))
    span = np.int64(story.end_ns + 1)
    ends = np.minimum(rows.end_ns[order], story.end_ns) + part * span
    # Who goes on longest of all before, and who came just before.
    longest = np.maximum.accumulate(ends)
    is_new = np.concatenate(([True], longest[1:] > longest[:-1]))
    by = np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))
    pairs = []
    for earlier in (by[:-1], np.arange(len(order) - 1)):
        then, now = order[earlier], order[1:]
        bad = (part[earlier] == part[1:]) & (rows.member[then] != rows.member[now])
        bad &= rows.end_ns[then] > rows.begin_ns[now]
        pairs.append(np.stack((then[bad], now[bad]), axis=1))
    both = np.unique(np.concatenate(pairs), axis=0)
    return both[:, 0], both[:, 1]


def _last_lock_ns(story: GroupHistory, delivery: int, before_ns: int) -> int | None:
    """When the member of a delivery last asked for its lock and was given it."""
    rows, locks = story.deliveries, story.locks
    own = (locks.member == rows.member[delivery]) & (locks.key == rows.key[delivery])
    own &= locks.held & (locks.type == OK) & (locks.begin_ns <= before_ns)
    return int(locks.begin_ns[own].max()) if own.any() else None


def out_of_order(story: GroupHistory, assignment: Ints) -> Iterator[Clash]:
    """Deliveries of one assignment that are not in the order of offsets. ``assignment``: of each
    delivery."""
    rows = story.deliveries
    mine = np.flatnonzero(is_orderly(story, rows) & (assignment >= 0) & (rows.offset > NOWHERE))
    mine = mine[np.lexsort((rows.offset[mine], rows.begin_ns[mine], assignment[mine]))]
    if len(mine) < 2:
        return
    then, now = mine[:-1], mine[1:]
    same = assignment[then] == assignment[now]
    then, now = then[same], now[same]
    step = rows.offset[now] - rows.offset[then]
    over = (step > 0) & (rows.outcome[then] == SUSPEND) & ~_given_up(story, then)
    at_once = (rows.begin_ns[now] < rows.end_ns[then]) & (step != 0)
    at_once &= rows.begin_ns[now] != rows.begin_ns[then]
    for kind, mask, text in (
        ("order-back", (step < 0) & ~_sent_elsewhere(story, then, now), "came after"),
        ("order-over", over & ~_sent_elsewhere(story, then, now), "came after suspended"),
        ("order-at-once", at_once, "came during"),
    ):
        for first, second in zip(then[mask].tolist(), now[mask].tolist(), strict=True):
            yield Clash(
                kind,
                int(rows.group[second]),
                int(rows.key[second]),
                (int(rows.index[first]), int(rows.index[second])),
                int(rows.begin_ns[second]),
                f"{story.members[rows.member[second]]}: offset {rows.offset[second]} {text}"
                f" {rows.offset[first]}",
            )


def _given_up(story: GroupHistory, deliveries: Ints) -> Bools:
    """By delivery: whether its member sent the message to the retry topic or the dead letters."""
    rows, sent = story.deliveries, story.send_backs
    width = np.int64(max(int(rows.offset.max(initial=0)), int(sent.offset.max(initial=0))) + 2)
    keys = np.int64(len(story.keys.names) + 1)
    mine = (rows.member[deliveries] * keys + rows.key[deliveries]) * width + rows.offset[deliveries]
    return np.isin(mine, (sent.member * keys + sent.key) * width + sent.offset)


def _sent_elsewhere(story: GroupHistory, then: Ints, now: Ints) -> Bools:
    """By pair: whether the queue was reset, or its member told to read on elsewhere, meanwhile."""
    rows, found = story.deliveries, np.zeros(len(then), dtype=np.bool_)
    for told in (story.resets, story.moves):
        for row in range(len(told)):
            own = (rows.group[now] == told.group[row]) & (rows.key[now] == told.key[row])
            end_ns = int(told.end_ns[row])
            until_ns = NEVER if end_ns == NEVER else end_ns + 30 * SLACK_NS
            before = told.begin_ns[row] <= rows.begin_ns[now]
            found |= own & before & (until_ns >= rows.begin_ns[then])
    return found
