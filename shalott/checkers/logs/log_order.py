"""The order of a log: offsets rise with time for senders and readers, and none skips one.

A queue's offsets count its messages, so they are dense. Within one poll, and from one poll of a
process to its next one that goes on from there, a reader sees each offset once, in order:
otherwise it is a ``poll-skip`` or a ``nonmonotonic-poll`` (kafka.clj's int-poll-skip and poll-skip
are one here, since no group is ever rebalanced). A broker that does not have the offset sends its
reader elsewhere: forward is a skip; back is none, as a slave that comes back may not know yet how
far it may be read, and what it has there is compared with what was read before.

Two sends of one process get rising offsets (``nonmonotonic-send``); and a send that began when
another one of that queue had been acknowledged comes behind it (``reordered``), also where only a
reader tells its place. What lies before a transaction's message is in order: that got its place
later.

reads: a poll finds what had been acknowledged before it was asked.

For systems that promise linearizable reads: DLedger with ReadIndex, at every node. A poll that was
sent from an offset at or before that of a send which had been acknowledged by then, and was told
that nothing is there, or that its queue ends before that, is a ``stale-read``. Polls that found
something prove nothing: brokers send no more than a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.history.columns import Ints, Operations
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.history.loss import window_label
from shalott.checkers.logs.records import NOWHERE, LogHistory, read_log
from shalott.core.history import History


@dataclass(frozen=True, slots=True)
class Breach:
    """One place where order is broken. ``rows``: positions in the operations that prove it."""

    kind: str
    sentence: str
    rows: tuple[int, ...]
    key: str


def poll_breaches(log: LogHistory) -> list[Breach]:
    """What readers saw out of order, in the order of the operations."""
    found = [*_within_polls(log), *_between_polls(log), *_sent_on(log)]
    return sorted(found, key=lambda breach: breach.rows)


def _within_polls(log: LogHistory) -> Iterator[Breach]:
    polls, records = log.polls, log.records
    if not len(records.row):
        return
    expected = np.empty(len(records.row), dtype=np.int64)
    expected[1:] = records.offset[:-1] + 1  # or fillers begin there
    filled = polls.count > 0
    expected[polls.first[filled]] = polls.start[filled]
    for at in np.flatnonzero(records.begins != expected):
        wanted, came, row = int(expected[at]), int(records.begins[at]), int(records.row[at])
        yield _poll_breach(log.ops, row, (row,), wanted, came, "was sent")


def _sent_on(log: LogHistory) -> Iterator[Breach]:
    """By a broker whose queue begins later than its reader stands."""
    polls = log.polls
    for poll in np.flatnonzero(polls.moved > polls.start):
        row = int(polls.row[poll])
        wanted, came = int(polls.start[poll]), int(polls.moved[poll])
        yield _poll_breach(log.ops, row, (row,), wanted, came, "was sent on")


def _between_polls(log: LogHistory) -> Iterator[Breach]:
    """From each poll to the next one of its process and queue, if that goes on from there.

    A new client of an old process does not know where that stood, and begins anew, at 0.
    """
    polls, ops = log.polls, log.ops
    if len(polls.row) < 2:
        return
    process = ops.process[polls.row]
    order = np.lexsort((polls.row, polls.key, process))
    stands = np.where(polls.moved != NOWHERE, polls.moved, polls.stand)
    before, after = order[:-1], order[1:]
    same = (process[before] == process[after]) & (polls.key[before] == polls.key[after])
    moved = (polls.start[after] != stands[before]) & (polls.start[after] != 0)
    wrong = same & polls.goes_on[after] & moved
    for first, second in zip(before[wrong], after[wrong], strict=True):
        rows = (int(polls.row[first]), int(polls.row[second]))
        wanted, came = int(stands[first]), int(polls.start[second])
        yield _poll_breach(ops, rows[1], rows, wanted, came, "went on")


_PREPOSITIONS = {"was sent": "with", "was sent on": "to", "went on": "at"}


def _poll_breach(
    ops: Operations, row: int, rows: tuple[int, ...], wanted: int, came: int, did: str
) -> Breach:
    kind = "poll-skip" if came > wanted else "nonmonotonic-poll"
    key, node = ops.key.names[ops.key.codes[row]], ops.node.names[ops.node.codes[row]]
    where = f"offset {came} of {key} instead of {wanted}"
    sentence = f"a reader at {node} {did} {_PREPOSITIONS[did]} {where}"
    return Breach(kind, sentence, rows, key)


def send_breaches(log: LogHistory) -> list[Breach]:
    """What senders' messages were put out of order."""
    found = [*_within_processes(log), *_reordered(log)]
    return sorted(found, key=lambda breach: breach.rows)


def _within_processes(log: LogHistory) -> Iterator[Breach]:
    sends, ops = log.sends, log.ops
    told = np.flatnonzero(sends.offset != NOWHERE)
    process = ops.process[sends.row[told]]
    own = told[np.lexsort((sends.row[told], sends.key[told], process))]
    before, after = own[:-1], own[1:]
    process = ops.process[sends.row]
    same = (process[before] == process[after]) & (sends.key[before] == sends.key[after])
    wrong = same & (sends.offset[after] <= sends.offset[before])
    for first, second in zip(before[wrong], after[wrong], strict=True):
        row = int(sends.row[second])
        key = ops.key.names[sends.key[second]]
        sentence = (
            f"a sender's message {sends.value[second]} was put at offset {sends.offset[second]} of"
            f" {key}, after its earlier one at {sends.offset[first]}"
        )
        yield Breach("nonmonotonic-send", sentence, (int(sends.row[first]), row), key)


def _reordered(log: LogHistory) -> Iterator[Breach]:
    """Sends that are placed before one that had been acknowledged when they began."""
    ops, sends = log.ops, log.sends
    place = placed(log)
    for code in np.unique(sends.key):
        own = np.flatnonzero((sends.key == code) & (place != NOWHERE))
        acked = own[sends.is_acked[own] & ~sends.is_transaction[own]]
        if not len(acked):
            continue
        acked = acked[np.argsort(ops.complete_ns[sends.row[acked]], kind="stable")]
        ends_ns = ops.complete_ns[sends.row[acked]]
        highest = np.maximum.accumulate(place[acked])
        # Of those that had ended strictly before each one began.
        ended = np.searchsorted(ends_ns, ops.invoke_ns[sends.row[own]], side="left")
        behind = np.where(ended > 0, highest[np.maximum(ended - 1, 0)], NOWHERE)
        key = ops.key.names[code]
        for at in np.flatnonzero(place[own] <= behind):
            second = own[at]
            first = acked[: ended[at]][np.argmax(place[acked[: ended[at]]])]
            if ops.process[sends.row[first]] == ops.process[sends.row[second]]:
                continue  # told as nonmonotonic-send
            sentence = (
                f"message {sends.value[second]} lies at offset {place[second]} of {key}, although"
                f" message {sends.value[first]} at {place[first]} had been acknowledged before it"
                " was sent"
            )
            rows = (int(sends.row[first]), int(sends.row[second]))
            yield Breach("reordered", sentence, rows, key)


def placed(log: LogHistory) -> Ints:
    """By send: its offset, as the sender was told, or else as the first reader saw it."""
    sends, records = log.sends, log.records
    place = np.array(sends.offset)
    sound = np.flatnonzero(records.is_sound)
    values, first = np.unique(records.value[sound], return_index=True)
    if not len(values):
        return place
    at = np.minimum(np.searchsorted(values, sends.value), len(values) - 1)
    seen = sound[first[at]]
    known = (values[at] == sends.value) & (records.key[seen] == sends.key)
    return np.where((place == NOWHERE) & known, records.offset[seen], place)


@dataclass(frozen=True, slots=True)
class FreshReads:
    """Needs no configuration: a workload that uses it knows that the system promises it."""

    name: str = "reads"

    def check(self, history: History) -> Result:
        log = read_log(history)
        stale = list(_stale(log))
        anomalies: tuple[Anomaly, ...] = ()
        if stale:
            injected = read_surroundings(history).injected
            poll, send = stale[0]
            at_ns = int(log.ops.invoke_ns[log.polls.row[poll]])
            story = f"{_told(log, poll, send)}, {window_label(injected, at_ns)}"
            rows = [int(row) for pair in stale for row in _rows(log, *pair)][:OPERATIONS_MAX]
            anomalies = (
                Anomaly(
                    kind="stale-read",
                    summary=f"{len(stale)} stale reads, the first: {story}",
                    operations=tuple(int(log.ops.index[row]) for row in rows),
                    detail={"count": len(stale)},
                ),
            )
        return Result(
            checker=self.name,
            valid=not stale,
            counts={"stale-read-count": len(stale), "poll-count": len(log.polls.row)},
            anomalies=anomalies,
        )


def _rows(log: LogHistory, poll: int, send: int) -> tuple[int, int]:
    return int(log.sends.row[send]), int(log.polls.row[poll])


def _told(log: LogHistory, poll: int, send: int) -> str:
    ops, row = log.ops, log.polls.row[poll]
    node, key = ops.node.names[ops.node.codes[row]], ops.key.names[log.polls.key[poll]]
    moved = int(log.polls.moved[poll])
    found = "nothing" if moved == NOWHERE else f"that it ends at {moved}"
    acked_ns = int(ops.complete_ns[log.sends.row[send]])
    return (
        f"a reader at {node} was told at {int(ops.complete_ns[row]) / 1e9:.1f} s of {key} from"
        f" {int(log.polls.start[poll])}: {found}; message {log.sends.value[send]} at"
        f" {log.sends.offset[send]} had been acknowledged at {acked_ns / 1e9:.1f} s"
    )


def _stale(log: LogHistory) -> Iterator[tuple[int, int]]:
    """(poll, a send that it should have found), in the order of the polls."""
    polls, sends, ops = log.polls, log.sends, log.ops
    nothing = (polls.count == 0) & (polls.moved == NOWHERE)
    sent_back = (polls.moved != NOWHERE) & (polls.moved < polls.start)
    lacking = np.flatnonzero(nothing | sent_back)
    ends: Ints = np.where(polls.moved == NOWHERE, polls.start, polls.moved)  # it says
    found: list[tuple[int, int]] = []
    for code in np.unique(polls.key[lacking]):
        acked = np.flatnonzero((sends.key == code) & sends.is_acked & (sends.offset != NOWHERE))
        if not len(acked):
            continue
        acked = acked[np.argsort(ops.complete_ns[sends.row[acked]], kind="stable")]
        at_ns = ops.complete_ns[sends.row[acked]]
        highest = np.maximum.accumulate(sends.offset[acked])
        for poll in lacking[polls.key[lacking] == code]:
            before = int(np.searchsorted(at_ns, ops.invoke_ns[polls.row[poll]], side="left"))
            if before and highest[before - 1] >= ends[poll]:
                first = int(np.argmax(sends.offset[acked[:before]] >= ends[poll]))
                found.append((int(poll), int(acked[first])))
    yield from sorted(found)
