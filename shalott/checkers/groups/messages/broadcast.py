"""Broadcast groups: every member gets every message from where it began, as long as it lives.

Its offsets are its own, so there is nothing to ask a broker for. A *hole* is an acknowledged
message before another one that the member was given, long enough before its end that the listener
had time for it. One that is behind all of them is ``unseen`` where the member lived until the run
was over and had time after the heal.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.messages.fates import subscribed
from shalott.checkers.groups.rows.reading import GroupHistory
from shalott.checkers.groups.rows.turns import MS
from shalott.checkers.history.columns import Ints
from shalott.checkers.logs.records import NOWHERE, OK

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
