"""What every order of a queue's operations must fulfil, looked at before any search.

Monitors decide queues with distinct values. What they pass over went to a search that may take for
ever on histories that break a simple rule. Here simple rules are asked, in O(n log n); each is
necessary, none is sufficient, so the answer is "invalid" or "not known". What refutes the unordered
queue refutes every other, because a FIFO queue, a stack and a priority queue are unordered queues
that return fewer of their elements.

- *Counts.* In every order the k-th dequeue of a value stands behind k enqueues of it. With the
  dequeues sorted by their returns and the enqueues by their calls, the k-th enqueue must have been
  called before the k-th dequeue returned (Hall's condition for intervals that are open to one
  side). Crashed enqueues count as done.
- *Emptiness.* When a dequeue that found nothing took effect, all enqueues that had returned before
  its call were undone by dequeues called before its return: of their values, or crashed.
- *Projection.* A queue, restricted to some of its values, is a queue. So the values that were
  enqueued once are given to a monitor that decides them.
- *Turns* (stacks, priority queues). A value that certainly was there during all of a dequeue that
  returned another one must not have had its turn before that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, lib
from shalott.checkers.history.concurrent import FAIL, NEVER, NOTHING, ConcurrentHistory
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.collections import priority_of
from shalott.checkers.monitors.monitor import Monitor, MonitorAnswer
from shalott.checkers.monitors.monitor_columns import Numbering
from shalott.checkers.monitors.queue_monitor import BAG, FIFO, MEANS

Ints = npt.NDArray[np.int64]
_FOREVER: Final = 2**40
MOST: Final = 200_000  # operations whose turns are compared, one by one in Python

# Of the enqueues of a history, (as, bs): the value of one must leave before that of another whose b
# is greater than its a. None: the values have no turns.
Turns = Callable[[ConcurrentHistory, Ints], "tuple[Ints, Ints] | None"]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The rows that count, as numbers. A crashed operation returns at _FOREVER."""

    call: Ints
    ret: Ints
    enqueues: Ints  # rows
    enqueued: Ints  # the value of each
    dequeues: Ints  # rows that returned a value
    dequeued: Ints
    empty: Ints  # rows that found nothing
    crashed: Ints  # dequeues with an unknown result
    room: int  # more than there are operations of one value


@dataclass(frozen=True, slots=True)
class QueueConditions:
    """A monitor (checkers.linearizability.monitors.base) that only ever says "invalid".

    ``decides``: the monitor of queues with distinct values that the projection is given to.
    """

    name: str
    decides: Monitor
    turns: Turns | None = None  # of stacks and priority queues

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        columns = _columns(history)
        answer = None
        if columns is not None:
            answer = (
                self._counts(history, columns)
                or self._emptiness(history, columns)
                or self._projection(history, columns, budget)
                or self._turns(history, columns)
            )
        return answer or MonitorAnswer(self.name, "unknown", why="no simple rule is broken")

    def _invalid(self, word: str, rows: tuple[int, ...], reason: str) -> MonitorAnswer:
        return MonitorAnswer(self.name, False, "", word, rows, reason)

    def _counts(self, history: ConcurrentHistory, c: _Columns) -> MonitorAnswer | None:
        taken, given, number = _pairs(c)
        call = np.where(given >= 0, c.call[np.maximum(given, 0)], _FOREVER)
        broken = np.flatnonzero(call > c.ret[taken])
        if not len(broken):
            return None
        at = int(broken[np.argmin(c.ret[taken[broken]])])
        row, count = int(taken[at]), int(number[at])
        value = value_text(history.result.get(row))
        enqueued = "never" if count == 1 else _times(count - 1)
        reason = (
            f"message {value} was dequeued {_times(count)}, but by then its enqueue had been"
            f" called {enqueued}"
        )
        late = () if given[at] < 0 else (int(given[at]),)
        return self._invalid("counts", (row, *late), reason)

    def _emptiness(self, history: ConcurrentHistory, c: _Columns) -> MonitorAnswer | None:
        if not len(c.empty):
            return None
        # The k-th enqueue of a value to return, and the k-th dequeue of it to be called.
        put, put_key = _keyed(c.enqueued, c.ret[c.enqueues], c.room)
        got, got_key = _keyed(c.dequeued, c.call[c.dequeues], c.room)
        at, found = _partners(put_key, got_key)
        done_at = c.ret[c.enqueues[put]]
        gone_at = np.full(len(at), _FOREVER)
        gone_at[found] = c.call[c.dequeues[got[at[found]]]]
        crashed = np.sort(c.call[c.crashed])
        for row in c.empty[np.argsort(c.ret[c.empty])].tolist():
            there = (done_at < c.call[row]) & (gone_at > c.ret[row])
            count = int(np.count_nonzero(there))
            if count > int(np.searchsorted(crashed, c.ret[row])):
                left = int(c.enqueues[put[np.argmax(there)]])
                reason = (
                    f"a dequeue found the queue empty although {count} more messages had been"
                    " enqueued than dequeues can have taken,"
                    f" {value_text(history.argument.get(left))} among them"
                )
                return self._invalid("empty", (row, left), reason)
        return None

    def _projection(
        self, history: ConcurrentHistory, c: _Columns, budget: Budget
    ) -> MonitorAnswer | None:
        values, counts = np.unique(c.enqueued, return_counts=True)
        several = values[counts > 1]
        if not len(several) and self.turns is None:
            return None  # its monitor has seen the whole
        kept = np.ones(len(history), dtype=np.bool_)
        kept[c.enqueues[np.isin(c.enqueued, several)]] = False
        kept[c.dequeues[np.isin(c.dequeued, several)]] = False
        kept &= history.type != FAIL
        rows = np.flatnonzero(kept)
        answer = self.decides(history.take(rows), budget)
        if answer.valid is not False:
            return None
        own = tuple(int(rows[row]) for row in answer.operations)
        return self._invalid(answer.violation, own, answer.reason)

    def _turns(self, history: ConcurrentHistory, c: _Columns) -> MonitorAnswer | None:
        if self.turns is None or len(history) > MOST:
            return None
        values, first, counts = np.unique(c.enqueued, return_index=True, return_counts=True)
        once = np.flatnonzero(counts == 1)
        put = c.enqueues[first[once]]
        got = np.full(len(once), -1, dtype=np.int64)
        order = np.argsort(c.dequeued, kind="stable")
        at = np.searchsorted(c.dequeued[order], values[once])
        there = at < len(order)
        there[there] = c.dequeued[order[at[there]]] == values[once][there]
        got[there] = c.dequeues[order[at[there]]]
        turns = self.turns(history, put)
        if turns is None:
            return None
        gone_at = np.where(got >= 0, c.call[got], c.call[c.crashed].min(initial=_FOREVER))
        found = _overtaken(c, put, got, turns, gone_at)
        if found is None:
            return None
        taken, left = found
        reason = (
            f"message {value_text(history.result.get(int(got[taken])))} was dequeued while message"
            f" {value_text(history.argument.get(int(put[left])))} was there, whose turn came first"
        )
        rows = [put[taken], put[left], got[taken], got[left]]
        return self._invalid("turn", tuple(int(row) for row in rows if row >= 0), reason)


def _columns(history: ConcurrentHistory) -> _Columns | None:
    """None: an f is none of a queue's, or an enqueue has no value."""
    means = np.array([MEANS.get(name, lib.SHL_OTHER_F) for name in history.f.names], dtype=np.uint8)
    means = means[history.f.codes]
    counts = history.type != FAIL
    if (means == lib.SHL_OTHER_F).any():
        return None
    is_enqueue = (means == lib.SHL_ENQUEUE) & counts
    if (history.argument.kind[is_enqueue] == NOTHING).any():
        return None
    is_dequeue = (means == lib.SHL_DEQUEUE) & counts
    returned = history.ret != NEVER
    found = history.result.kind != NOTHING
    enqueues = np.flatnonzero(is_enqueue)
    dequeues = np.flatnonzero(is_dequeue & returned & found)
    numbering = Numbering.over([history.argument.number, history.result.number])
    enqueued = numbering.keys(history.argument, is_enqueue)[enqueues]
    dequeued = numbering.keys(history.result, is_dequeue)[dequeues]
    _, ids = np.unique(np.concatenate([enqueued, dequeued]), return_inverse=True)
    return _Columns(
        call=history.call.astype(np.int64),
        ret=np.where(returned, history.ret.astype(np.int64), _FOREVER),
        enqueues=enqueues,
        enqueued=ids[: len(enqueues)],
        dequeues=dequeues,
        dequeued=ids[len(enqueues) :],
        empty=np.flatnonzero(is_dequeue & returned & ~found),
        crashed=np.flatnonzero(is_dequeue & ~returned),
        room=len(history) + 1,
    )


def _keyed(ids: Ints, times: Ints, room: int) -> tuple[Ints, Ints]:
    """(operations by value, those of one value by time; ascending keys that name a value and the
    position among its operations)."""
    order = np.lexsort((times, ids))
    ordered = ids[order]
    begins = np.searchsorted(ordered, ordered, side="left")
    return order, ordered * room + (np.arange(len(order)) - begins)


def _partners(of: Ints, among: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(where each key stands among others, whether it does)."""
    at = np.searchsorted(among, of)
    found = at < len(among)
    found[found] = among[at[found]] == of[found]
    return np.where(found, at, 0), found


def _pairs(c: _Columns) -> tuple[Ints, Ints, Ints]:
    """(each dequeue's row; the enqueue of its value that is as late as it, -1: there are not so
    many; how late that is, from 1)."""
    taken, taken_key = _keyed(c.dequeued, c.ret[c.dequeues], c.room)
    given, given_key = _keyed(c.enqueued, c.call[c.enqueues], c.room)
    at, found = _partners(taken_key, given_key)
    rows = np.full(len(at), -1, dtype=np.int64)
    rows[found] = c.enqueues[given[at[found]]]
    return c.dequeues[taken], rows, taken_key % c.room + 1


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _overtaken(
    c: _Columns, put: Ints, got: Ints, turns: tuple[Ints, Ints], gone_at: Ints
) -> tuple[int, int] | None:
    """(who was dequeued too early, who should have been), as positions in the arrays; of all those
    dequeues the first to return. None: there are none.

    Turn by turn: those that have theirs before it are put into a tree of prefix maxima (Fenwick's)
    by their enqueues' returns. The one that stayed longest of those that were there when a dequeue
    was called tells whether one of them was there until it returned.
    """
    before, behind = turns
    by_return = np.argsort(c.ret[put], kind="stable")
    place = np.empty(len(put), dtype=np.int64)
    place[by_return] = np.arange(len(put))
    there_by = np.searchsorted(c.ret[put][by_return], c.call[got]).tolist()
    places, stays, returned = place.tolist(), gone_at.tolist(), c.ret[got].tolist()
    first = np.argsort(before, kind="stable")
    entered, sooner = 0, np.searchsorted(before[first], behind).tolist()  # so many are before it
    tree: list[tuple[int, int]] = [(-1, -1)] * (len(put) + 1)
    best: tuple[int, int, int] | None = None
    for at in np.argsort(behind, kind="stable").tolist():
        if got[at] < 0:
            continue
        for known in first[entered : sooner[at]].tolist():
            slot, entry = places[known] + 1, (stays[known], known)
            while slot <= len(put):
                tree[slot] = max(tree[slot], entry)
                slot += slot & -slot
        entered = max(entered, sooner[at])
        slot, longest = there_by[at], (-1, -1)
        while slot > 0:
            longest = max(longest, tree[slot])
            slot -= slot & -slot
        if longest[0] > returned[at] and (best is None or returned[at] < best[0]):
            best = returned[at], at, longest[1]
    return None if best is None else best[1:]


def _by_age(history: ConcurrentHistory, put: Ints) -> tuple[Ints, Ints]:
    """Of a stack's values: the last one in is the first one out."""
    return -history.call[put].astype(np.int64), -history.ret[put].astype(np.int64)


def by_priority(first: str) -> Turns:
    """Of a priority queue's values; ``first``: "lowest" or "highest"."""

    def turns(history: ConcurrentHistory, put: Ints) -> tuple[Ints, Ints] | None:
        try:
            priorities = [priority_of(history.argument.get(row)) for row in put.tolist()]
        except ValueError:
            return None  # the model says so, of the operation that has none
        _, turn = np.unique(priorities, return_inverse=True)
        turn = (turn if first == "lowest" else -turn).astype(np.int64)
        return turn, turn

    return turns


FIFO_CONDITIONS: Final = QueueConditions("rules of FIFO queues", FIFO)
BAG_CONDITIONS: Final = QueueConditions("rules of unordered queues", BAG)
STACK_CONDITIONS: Final = QueueConditions("rules of stacks", BAG, _by_age)


def priority_conditions(first: str) -> QueueConditions:
    """Those of a priority queue: see ``by_priority``."""
    return QueueConditions("rules of priority queues", BAG, by_priority(first))
