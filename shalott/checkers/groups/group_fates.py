"""What became of each acknowledged message for each group: exactly one row of FATES.

In this order, the first that is so:

- ``filtered``: the group does not subscribe to its tag;
- ``consumed``: a listener returned success for it;
- ``dead-lettered``: it is in the group's dead letters;
- ``pending``: it is in the retry topic behind the group's offset, waits for its delay, or is in its
  queue behind the group's offset;
- ``unread``: what was read at the end is not whole;
- ``lost``: no node's log of its topic has it;
- ``consumed-unsure``: it was delivered, and it is unknown how that ended;
- ``retry-lost``: it was sent back, that was acknowledged, it is due, and it is nowhere;
- ``passed-over``: the group was to begin at the end of the queue, or the operator set it forward;
- ``skipped``: it is in its queue before the group's offset, and never got to a listener that ended.

A broadcast group has no offsets at brokers, and is judged apart, below.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.group_history import SUCCESS, UNSEEN, GroupHistory
from shalott.checkers.groups.master_changes import MS
from shalott.checkers.groups.offsets import LAST, NO_FLOOR, OffsetBook
from shalott.checkers.groups.retries import delayed_due_ns, due_ns, late_ns
from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints
from shalott.checkers.logs.records import FAIL, NOWHERE, OK

FATES = (
    *("filtered", "consumed", "dead-lettered", "pending", "unread", "lost", "consumed-unsure"),
    *("retry-lost", "passed-over", "skipped"),
)
FATE = {name: code for code, name in enumerate(FATES)}
UNTOLD = -2  # what the master says of an offset at the end, if it told no client


@dataclass(frozen=True, slots=True)
class Fates:
    """One row a group and acknowledged message of its topics; broadcast groups have none."""

    group: Codes
    message: Ints
    fate: Codes  # in FATES

    def count(self, group: int, fate: str) -> int:
        return int(((self.group == group) & (self.fate == FATE[fate])).sum())

    def of(self, fate: str) -> Ints:
        return np.flatnonzero(self.fate == FATE[fate])


def fates(story: GroupHistory, book: OffsetBook, floor: Ints) -> Fates:
    """Decide for every group and message. ``floor``: of each assignment."""
    found: list[tuple[int, Ints, Codes]] = []
    acked = story.messages.outcome == OK
    for number, group in enumerate(story.rules.groups):
        if group.broadcast:
            continue
        keys = [code for code, topic in enumerate(story.keys.topics) if topic in group.topics]
        own = np.flatnonzero(acked & np.isin(story.messages.key, keys))
        found.append((number, own, _of_group(story, book, floor, number)[own]))
    return Fates(
        np.concatenate([np.full(len(own), n, np.int32) for n, own, _ in found] or [_NONE]),
        np.concatenate([own for _, own, _ in found] or [_NONE.astype(np.int64)]),
        np.concatenate([fate for _, _, fate in found] or [_NONE]),
    )


_NONE: Codes = np.zeros(0, dtype=np.int32)


def _of_group(story: GroupHistory, book: OffsetBook, floor: Ints, number: int) -> Codes:
    """By message of the run: its outcome, were it one of the group's topics."""
    count, messages, keys = len(story.messages), story.messages, story.keys
    rows = story.deliveries
    own = (rows.group == number) & (rows.message >= 0)
    offsets = final_offsets(story, number)
    place = places(story, messages.key)
    at_topic = offsets[messages.key]
    retry_key = _code_of(keys.retry_of, number)
    retried = _last_in(story, retry_key)
    retry_offset = max(int(offsets[retry_key]), 0) if retry_key >= 0 else 0
    dead = _last_in(story, _code_of(keys.dead_of, number)) >= 0
    sent = story.send_backs
    sent_own = (sent.group == number) & (sent.message >= 0)
    was_sent = _any(count, sent.message[sent_own & (sent.type == OK)])
    may_be_sent = _any(count, sent.message[sent_own & (sent.type != FAIL)])
    waits = np.zeros(count, dtype=np.int64)
    waiting = np.flatnonzero(sent_own & (sent.type != FAIL))
    np.maximum.at(waits, sent.message[waiting], due_ns(story, waiting))
    read_ns = _read_ns(story, retry_key)
    in_retry = (retried >= retry_offset) & (retried >= 0)
    in_retry |= may_be_sent & (waits + late_ns(story) > read_ns) & (waits > 0) & (retried < 0)
    whole = story.final.whole[messages.key] & (at_topic != UNTOLD)
    unread = ~whole if _is_read(story, number, retry_key) else ~whole | may_be_sent
    delayed = (messages.delay > 0) & (place < 0)
    delayed &= delayed_due_ns(story) + late_ns(story) > story.final.read_ns[messages.key]
    steps: tuple[tuple[str, Bools], ...] = (
        ("filtered", ~subscribed(story, number)),
        ("consumed", _any(count, rows.message[own & (rows.outcome == SUCCESS)])),
        ("dead-lettered", dead),
        ("pending", in_retry),
        ("unread", unread),
        ("pending", delayed),
        ("lost", place < 0),
        ("pending", place >= np.maximum(at_topic, 0)),
        ("consumed-unsure", _any(count, rows.message[own & (rows.outcome == UNSEEN)])),
        ("retry-lost", was_sent),
        ("passed-over", _passed_over(story, book, floor, number, place)),
    )
    fate = np.full(count, FATE["skipped"], dtype=np.int32)
    for name, mask in reversed(steps):
        fate[mask] = FATE[name]
    return fate


def subscribed(story: GroupHistory, number: int) -> Bools:
    """By message: whether the group wants its tag."""
    tags = story.rules.groups[number].tags
    if not tags:
        return np.ones(len(story.messages), dtype=np.bool_)
    wanted = [code for code, tag in enumerate(story.tags) if tag in tags]
    return np.isin(story.messages.tag, wanted)


def final_offsets(story: GroupHistory, number: int) -> Ints:
    """By key: the group's offset at the end; NOWHERE: it has none; UNTOLD: it told no client."""
    offsets = np.full(len(story.keys.names) + 1, UNTOLD, dtype=np.int64)
    rows = story.offsets
    for row in np.flatnonzero((rows.group == number) & (rows.type == OK)).tolist():
        offsets[rows.key[row]] = rows.offset[row]
    return offsets


def places(story: GroupHistory, key: Codes) -> Ints:
    """By message: its last offset in its own queue, in any final read; -1: it is not there."""
    final, place = story.final, np.full(len(story.messages), -1, dtype=np.int64)
    own = np.flatnonzero(final.message >= 0)
    own = own[final.key[own] == key[final.message[own]]]
    np.maximum.at(place, final.message[own], final.offset[own])
    return place


def _last_in(story: GroupHistory, key: int) -> Ints:
    """By message: its last offset in that queue; -1: it is not there."""
    final, place = story.final, np.full(len(story.messages), -1, dtype=np.int64)
    own = np.flatnonzero((final.message >= 0) & (final.key == key) & (key >= 0))
    np.maximum.at(place, final.message[own], final.offset[own])
    return place


def _code_of(column: Codes, number: int) -> int:
    found = np.flatnonzero(column == number)
    return int(found[0]) if len(found) else -1


def _read_ns(story: GroupHistory, key: int) -> int:
    """When the queue was read at the end; the end of the run if it was not."""
    read_ns = int(story.final.read_ns[key]) if key >= 0 else NEVER
    return story.end_ns if read_ns == NEVER else read_ns


def _is_read(story: GroupHistory, number: int, retry_key: int) -> bool:
    """Whether the group's retries and dead letters were, to their ends."""
    dead_key = _code_of(story.keys.dead_of, number)
    return all(key >= 0 and bool(story.final.whole[key]) for key in (retry_key, dead_key))


def _any(count: int, messages: Ints) -> Bools:
    found = np.zeros(count, dtype=np.bool_)
    found[messages] = True
    return found


def _passed_over(
    story: GroupHistory, book: OffsetBook, floor: Ints, number: int, place: Ints
) -> Bools:
    """By message: whether it stood before where the group was told to begin."""
    rows, resets = story.assignments, story.resets
    found, key = np.zeros(len(story.messages), dtype=np.bool_), story.messages.key
    known = place > NOWHERE
    begun = (rows.group == number) & (rows.why == LAST) & (floor == NO_FLOOR)
    for row in np.flatnonzero(begun).tolist():
        found |= known & (key == rows.key[row]) & (place < rows.offset[row])
    for row in np.flatnonzero((resets.group == number) & (resets.type != FAIL)).tolist():
        at_ns = int(resets.begin_ns[row])
        from_ = book.floor(number, int(resets.key[row]), at_ns, at_ns)
        between = (place >= from_) & (place < resets.offset[row])
        found |= known & (key == resets.key[row]) & between
    return found


# Broadcast groups: every member gets every message from where it began, as long as it lives.
#
# Its offsets are its own, so there is nothing to ask a broker for. A *hole* is an acknowledged
# message before another one that the member was given, long enough before its end that the
# listener had time for it. One that is behind all of them is ``unseen`` where the member lived
# until the run was over and had time after the heal.

HOLE_NS = 10_000 * MS  # what lies between may still wait for the listener


@dataclass(frozen=True, slots=True)
class Missed:
    """Messages that one assignment of a broadcast member was not given."""

    kind: str  # broadcast-hole, broadcast-unseen
    assignment: int
    messages: Ints


@dataclass(frozen=True, slots=True)
class Broadcast:
    missed: tuple[Missed, ...]
    judged: int  # pairs of a message and a member
    given: int  # of them


def broadcast(story: GroupHistory, deadline_ns: Ints) -> Broadcast:
    """``deadline_ns``: by group, when at the latest all that had
    been sent should have been given to everybody."""
    owned, rows = story.assignments, story.deliveries
    flags = np.array([*(group.broadcast for group in story.rules.groups), False])
    missed: list[Missed] = []
    judged = given = 0
    by_member = np.argsort(rows.member, kind="stable")
    members = rows.member[by_member]
    kept = _kept(story)
    for row in np.flatnonzero(flags[owned.group] & (owned.offset > NOWHERE)).tolist():
        first, end = np.searchsorted(members, (owned.member[row], owned.member[row] + 1))
        own = by_member[first:end]
        own = own[rows.key[own] == owned.key[row]]
        due = _due(story, row, kept[owned.key[row]])
        offset = story.messages.offset[due]
        has = np.zeros(len(story.messages) + 2, dtype=np.bool_)  # the last are not messages
        has[rows.message[own]] = True
        got = has[due]
        judged, given = judged + len(due), given + int(got.sum())
        quiet_ns = HOLE_NS + _longest_ns(story, own)
        timely = own[rows.begin_ns[own] + quiet_ns <= owned.end_ns[row]]
        reach = int(rows.offset[timely].max(initial=-1))
        holes = due[~got & (offset < reach)]
        if len(holes):
            missed.append(Missed("broadcast-hole", row, holes))
        deadline = int(deadline_ns[owned.group[row]])
        if owned.end_ns[row] >= deadline:
            sent_ns = story.messages.end_ns[due]
            unseen = due[~got & (offset >= reach) & (sent_ns <= deadline)]
            if len(unseen):
                missed.append(Missed("broadcast-unseen", row, unseen))
    return Broadcast(tuple(missed), judged, given)


def _kept(story: GroupHistory) -> list[Ints]:
    """By key: the acknowledged messages that have an offset there, and are in a final read."""
    messages, final = story.messages, story.final
    there = np.zeros(len(messages), dtype=np.bool_)
    own = np.flatnonzero(final.message >= 0)
    own = own[final.key[own] == messages.key[final.message[own]]]
    there[final.message[own]] = True
    known = np.flatnonzero(there & (messages.outcome == OK) & (messages.offset > NOWHERE))
    order = known[np.argsort(messages.key[known], kind="stable")]
    bounds = np.searchsorted(messages.key[order], np.arange(len(story.keys.names) + 1))
    return [order[first:end] for first, end in itertools.pairwise(bounds.tolist())]


def _due(story: GroupHistory, row: int, kept: Ints) -> Ints:
    """What an assignment should give its member, of what its queue keeps: what it subscribes to,
    behind its beginning, and sent while it had the queue."""
    owned, messages = story.assignments, story.messages
    own = messages.offset[kept] >= max(0, int(owned.offset[row]))
    own &= messages.end_ns[kept] <= owned.end_ns[row]
    own &= subscribed(story, int(owned.group[row]))[kept]
    return kept[own]


def _longest_ns(story: GroupHistory, deliveries: Ints) -> int:
    """How long the slowest of these took, five times."""
    rows = story.deliveries
    took = rows.end_ns[deliveries] - rows.begin_ns[deliveries]
    return 5 * int(took.max(initial=0))
