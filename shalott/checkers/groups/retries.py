"""Messages that were sent back: when they come again, how often, and where they end.

Upstream: AbstractSendMessageProcessor.consumerSendMsgBack and ScheduleMessageService. A message
that was reconsumed r times and is sent back with level L comes again with r + 1, when the delay of
L is over, or of level 3 + r if L is 0; with r at the group's limit, or L below 0, it goes to the
dead letters instead. An orderly member sends it by itself, and not before its own limit, so of
orderly groups only what is lost, doubled or beyond the limit is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.group_history import GroupHistory, Rows
from shalott.checkers.groups.master_changes import MS
from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints
from shalott.checkers.history.faults import stalled_ns
from shalott.checkers.logs.records import FAIL, OK

EARLY_NS = 500 * MS  # of the node's clock and the harness's, with drift
LATE_NS = 5_000 * MS  # what a broker may take to deliver what is due
UNSEEN_NS = 30_000 * MS  # so long may what was not answered be on its way


@dataclass(frozen=True, slots=True)
class Breach:
    """One message of one group. ``operations``: what proves it."""

    kind: str
    group: int
    message: int
    operations: tuple[int, ...]
    text: str


def delay_ns(story: GroupHistory, level: Ints, reconsumed: Ints) -> Ints:
    """How long what is sent back so waits; 0 on its way to the dead letters."""
    levels = np.array([0, *story.rules.levels_ms], dtype=np.int64) * MS
    chosen = np.where(level == 0, story.rules.first_retry_level + reconsumed, level)
    return np.asarray(levels[np.clip(chosen, 0, len(levels) - 1)])


def due_ns(story: GroupHistory, rows: Ints) -> Ints:
    """By position in the send-backs: when it comes again at the latest, if all is well."""
    sent = story.send_backs
    end_ns = np.where(sent.end_ns == NEVER, sent.begin_ns + UNSEEN_NS, sent.end_ns)[rows]
    wait_ns = delay_ns(story, sent.level[rows], sent.reconsumed[rows])
    return _by_right_clocks(story, sent.begin_ns[rows], end_ns, wait_ns)


def late_ns(story: GroupHistory) -> int:
    """How long after it is due something may still be on its way; stalls are charged to none."""
    return LATE_NS + stalled_ns(story.around.stalls, 0, story.end_ns)


def delayed_due_ns(story: GroupHistory) -> Ints:
    """By message: when it is in its queue at the latest, if it was sent at all."""
    messages = story.messages
    end_ns = np.where(messages.end_ns == NEVER, messages.begin_ns + UNSEEN_NS, messages.end_ns)
    zero = np.zeros(len(messages), dtype=np.int64)
    wait_ns = delay_ns(story, messages.delay, zero)
    due_ns_ = _by_right_clocks(story, messages.begin_ns, end_ns, wait_ns)
    return np.where(messages.delay > 0, due_ns_, end_ns)


def _by_right_clocks(story: GroupHistory, begin_ns: Ints, end_ns: Ints, wait_ns: Ints) -> Ints:
    """When delays are over by clocks that may be wrong for a time, or another master's: what was
    stored in a future is due when its level's delay is over, counted from when a client knows the
    time again (ScheduleMessageService.correctDeliverTimestamp)."""
    due = end_ns + wait_ns
    turns = story.turns
    ruled = zip(turns.begin_ns.tolist(), turns.end_ns.tolist(), strict=True)
    for wrong_ns, right_ns in (*turns.clocks, *ruled):
        touched = (begin_ns <= right_ns) & (due >= wrong_ns)
        due = np.where(touched, np.maximum(due, right_ns + wait_ns), due)
    return np.asarray(due)


def _by_other_clocks(story: GroupHistory, since_ns: Ints, until_ns: Ints) -> Bools:
    """By pair: whether the clock that ended a delay may not be the one that began it."""
    turns = story.turns
    return turns.wrong_clocks(since_ns, until_ns) | turns.disturbed(since_ns, until_ns)


def is_orderly(story: GroupHistory, rows: Rows) -> Bools:
    """By row: whether its group's queues are consumed in order."""
    return np.array([*(group.orderly for group in story.rules.groups), False])[rows.group]


def too_early(story: GroupHistory) -> Iterator[Breach]:
    """Retries that came before their delay was over."""
    rows, sent = story.deliveries, story.send_backs
    retries = _retries(story)
    retries = retries[~is_orderly(story, rows)[retries]]
    possible = np.flatnonzero((sent.type != FAIL) & (sent.message >= 0) & (sent.group >= 0))
    soonest = sent.begin_ns[possible] + delay_ns(
        story, sent.level[possible], sent.reconsumed[possible]
    )
    asked = _places(story, sent.group, sent.message, sent.reconsumed)[possible]
    order = np.lexsort((soonest, asked))
    asked, soonest, possible = asked[order], soonest[order], possible[order]
    wanted = _places(story, rows.group, rows.message, rows.reconsumed - 1)[retries]
    at = np.searchsorted(asked, wanted)
    known = np.flatnonzero(at < len(asked))
    known = known[asked[at[known]] == wanted[known]]
    retries, at = retries[known], at[known]
    early = rows.begin_ns[retries] + EARLY_NS < soonest[at]
    since_ns = sent.begin_ns[possible[at]]
    early &= ~_by_other_clocks(story, since_ns, rows.begin_ns[retries])
    for row, ask in zip(retries[early].tolist(), at[early].tolist(), strict=True):
        by_ms = (int(soonest[ask]) - int(rows.begin_ns[row])) / MS
        yield Breach(
            "retry-early",
            int(rows.group[row]),
            int(rows.message[row]),
            (int(sent.index[possible[ask]]), int(rows.index[row])),
            f"it came again {by_ms:.0f} ms before its delay was over",
        )


def wrong_numbers(story: GroupHistory) -> Iterator[Breach]:
    """Retries that no member asked for, beyond the limit, or twice for one sending back."""
    rows, sent = story.deliveries, story.send_backs
    retries = _retries(story)
    limits = np.array([g.max_reconsume for g in story.rules.groups] or [0], dtype=np.int64)
    over = retries[rows.reconsumed[retries] > limits[rows.group[retries]]]
    for row in over.tolist():
        yield _of(rows, row, "retry-over", f"it came for the {rows.reconsumed[row]}th time")
    judged = retries[~is_orderly(story, rows)[retries]]
    possible = (sent.type != FAIL) & (sent.message >= 0)
    asked = _places(story, sent.group, sent.message, sent.reconsumed)[possible]
    wanted = _places(story, rows.group, rows.message, rows.reconsumed - 1)[judged]
    for row in judged[~np.isin(wanted, asked)].tolist():
        times = int(rows.reconsumed[row])
        yield _of(
            rows, row, "retry-unasked",
            f"it came as reconsumed {times} times, and was never sent back after {times - 1}",
        )  # fmt: skip
    yield from _twice(story, judged, wanted, asked)


def _twice(story: GroupHistory, judged: Ints, wanted: Ints, asked: Ints) -> Iterator[Breach]:
    """One sending back, two places in the retry topic. After a failover or a restart a broker may
    deliver again what was due shortly before: its delay offsets are written behind."""
    rows = story.deliveries
    order = np.lexsort((rows.offset[judged], wanted))
    judged, wanted = judged[order], wanted[order]
    if len(judged) < 2:
        return
    new = np.ones(len(judged), dtype=np.bool_)
    new[1:] = (np.diff(wanted) != 0) | (np.diff(rows.offset[judged]) != 0)
    judged, wanted = judged[new], wanted[new]
    distinct, first, places = np.unique(wanted, return_index=True, return_counts=True)
    times = np.searchsorted(np.sort(asked), distinct, "right") - np.searchsorted(
        np.sort(asked), distinct, "left"
    )
    many = np.flatnonzero(places > np.maximum(times, 1))
    for at in many.tolist():
        some = judged[first[at] : first[at] + places[at]]
        since_ns = story.messages.begin_ns[rows.message[some[:1]]]
        if not story.turns.troubled(since_ns, rows.begin_ns[some].max(keepdims=True))[0]:
            text = f"it came from {places[at]} places of the retry topic with one number"
            yield _of(rows, int(some[0]), "retry-twice", text)


def dead_letters(story: GroupHistory) -> Iterator[Breach]:
    """What is in the dead letters twice, too early, or not though it should be."""
    sent, final, keys = story.send_backs, story.final, story.keys
    limits = np.array([g.max_reconsume for g in story.rules.groups] or [0], dtype=np.int64)
    possible = (sent.type != FAIL) & (sent.message >= 0) & (sent.group >= 0)
    last = (sent.level < 0) | (sent.reconsumed >= limits[np.maximum(sent.group, 0)])
    for number, group in enumerate(story.rules.groups):
        codes = np.flatnonzero(keys.dead_of == number)
        own = np.isin(final.key, codes) & (final.message >= 0)
        there, times = np.unique(final.message[own], return_counts=True)
        mine = possible & (sent.group == number)
        asked = np.bincount(sent.message[mine if group.orderly else mine & last], minlength=1)
        for message, count in zip(there.tolist(), times.tolist(), strict=True):
            may_be = int(asked[message]) if message < len(asked) else 0
            where = f"the group's dead letters have it {count} times"
            ops = tuple(sent.index[mine & (sent.message == message)].tolist())
            if may_be == 0:
                yield Breach("dead-letter-early", number, message, ops,
                             "it is in the dead letters, and had retries left")  # fmt: skip
            elif count > may_be and not _troubled_since(story, message):
                yield Breach("dead-letter-twice", number, message, ops, where)
        if not len(codes) or not story.final.whole[codes].all() or group.orderly:
            continue
        over = np.flatnonzero(mine & last & (sent.type == OK))
        for row in over[~np.isin(sent.message[over], there)].tolist():
            yield Breach("dead-letter-missing", number, int(sent.message[row]),
                         (int(sent.index[row]),),
                         "it was given up, and no dead letters have it")  # fmt: skip


def _troubled_since(story: GroupHistory, message: int) -> bool:
    since_ns = story.messages.begin_ns[message : message + 1]
    return bool(story.turns.troubled(since_ns, np.array([story.end_ns]))[0])


def delayed_early(story: GroupHistory) -> Iterator[Breach]:
    """Delayed messages that came before their time."""
    rows, messages = story.deliveries, story.messages
    known = np.flatnonzero(rows.message >= 0)
    known = known[messages.delay[rows.message[known]] > 0]
    message = rows.message[known]
    soonest = messages.begin_ns[message] + delay_ns(
        story, messages.delay[message], np.zeros(len(message), dtype=np.int64)
    )
    early = rows.begin_ns[known] + EARLY_NS < soonest
    early &= ~_by_other_clocks(story, messages.begin_ns[message], rows.begin_ns[known])
    for row in known[early].tolist():
        at = int(rows.message[row])
        by_ms = (int(rows.begin_ns[row]) - int(messages.begin_ns[at])) / MS
        yield Breach(
            "delayed-early",
            int(rows.group[row]),
            at,
            (int(messages.index[at]), int(rows.index[row])),
            f"it came {by_ms:.0f} ms after it was sent, with delay level {messages.delay[at]}",
        )


def delayed_twice(story: GroupHistory) -> Iterator[Breach]:
    """Delayed messages that their topic has oftener than they were sent, though no broker lost its
    place meanwhile."""
    final, messages = story.final, story.messages
    own = np.flatnonzero(final.message >= 0)
    own = own[messages.delay[final.message[own]] > 0]
    own = own[final.key[own] == messages.key[final.message[own]]]
    there, times = np.unique(final.message[own], return_counts=True)
    for message in there[times > messages.attempts[there]].tolist():
        if not _troubled_since(story, message):
            yield Breach("delayed-twice", -1, message, (int(messages.index[message]),),
                         "its topic has it twice")  # fmt: skip


def _retries(story: GroupHistory) -> Ints:
    """Deliveries from the retry topic of their group, of messages that are known."""
    rows = story.deliveries
    own = (story.keys.retry_of[rows.key] == rows.group) & (rows.group >= 0)
    return np.flatnonzero(own & (rows.message >= 0))


def _places(story: GroupHistory, group: Codes, message: Ints, times: Ints) -> Ints:
    """(group, message, times) as one number."""
    groups, most = len(story.rules.groups) + 1, np.int64(1 << 12)
    return (message * groups + group) * most + np.clip(times, -1, most - 2) + 1


def _of(rows: Rows, row: int, kind: str, text: str) -> Breach:
    return Breach(kind, int(rows.group[row]), int(rows.message[row]), (int(rows.index[row]),), text)
