"""reads: a poll finds what had been acknowledged before it was asked.

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
from shalott.checkers.history.columns import Ints
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.history.loss import window_label
from shalott.checkers.logs.records import NOWHERE, LogHistory, read_log
from shalott.core.history import History


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
