"""What a history says before a model sees it: drains as dequeues, and failures that say nothing.

A drain takes what is in a queue, one message after the other. As in ``expand-queue-drain-ops`` of
jepsen.checker one that returned a list is the dequeues of its elements, in their order, and says
no more: not that the queue was empty at the end. One that returned a word, such as ``:exhausted``,
took messages that it does not tell, as many as there were, and found the queue empty in the end if
the word says so. One that crashed may have taken any number. One that failed did nothing, nor did
one whose dequeues the history has by themselves (engine/read_pair.c leaves those out).

The dequeues of a drain fill its interval, but nothing says when each was. Where no other operation
begins or ends meanwhile, it does not matter. Elsewhere there are several timings: with ``LOOSE``
each may have been at any time within the drain, so what is invalid then is invalid; with the others
each has its time, so what is valid then is valid.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.column_values import Words, exact
from shalott.checkers.history.concurrent import (
    FAIL,
    FORM,
    INFO,
    INTEGER,
    NEVER,
    NOTHING,
    OK,
    ConcurrentHistory,
    Operation,
    Values,
)
from shalott.checkers.history.failures import Said, what_it_says
from shalott.checkers.linearizability.register_groups import by_group
from shalott.checkers.models import Meanings, Model, OneOf, meanings_of, own_name

DRAIN: Final = "drain"
DRAINED: Final = "drained"  # the word of a violation that only the order within drains proves
LOOSE, IN_TURN, EARLY, LATE = "loose", "in turn", "early", "late"
TIMED: Final = (IN_TURN, EARLY, LATE)
_TAKES: Final = {
    "fifo-queue": "dequeue",
    "unordered-queue": "dequeue",
    "priority-queue": "dequeue",
    "stack": "pop",
}
_EMPTIED: Final = ("exhausted", "empty", "emptied", "drained")

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Drain:
    """One drain that took messages which it tells, in their order."""

    row: int
    call: int
    ret: int
    taken: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A history as a model takes it. ``loose``: there are other timings of its drains."""

    history: ConcurrentHistory
    notes: tuple[str, ...] = ()
    loose: bool = False


def prepared(history: ConcurrentHistory, model: Model, timing: str = LOOSE) -> Prepared:
    """``history`` itself if there is nothing to do, which is found out in no time."""
    notes: tuple[str, ...] = ()
    if history.error is not None and own_name(model) == "cas-register":
        history, notes = _without_untried(history, model)
    if own_name(model) == "multi-register":
        return Prepared(by_group(history), notes)
    if DRAIN not in history.f.names or own_name(model) not in _TAKES:
        return Prepared(history, notes)
    if not history.f.equal(DRAIN).any():
        return Prepared(history, notes)
    expanded = _Expansion(history, _TAKES[own_name(model)])
    return Prepared(expanded.history(timing), (*notes, *expanded.notes()), expanded.is_loose)


def _without_untried(
    history: ConcurrentHistory, model: Model
) -> tuple[ConcurrentHistory, tuple[str, ...]]:
    """Without the failed operations that would tell something, had they been tried."""
    assert history.error is not None
    meanings = meanings_of(model) or {}
    seen = [name for name, meaning in meanings.items() if meaning.failed]
    untried = [at for at, text in enumerate(history.error.names)
               if what_it_says(text) is Said.UNTRIED]  # fmt: skip
    left_out = (history.type == FAIL) & np.isin(history.error.codes, untried)
    left_out &= history.f.among(tuple(seen))
    count = int(np.count_nonzero(left_out))
    if not count:
        return history, ()
    texts = [history.error.names[code] for code in np.unique(history.error.codes[left_out])]
    shown = ", ".join(texts[:3]) + (" ..." if len(texts) > 3 else "")
    were = "failed compare-and-set is" if count == 1 else "failed compare-and-sets are"
    note = f"{count} {were} no observation of another value: never tried, says the error ({shown})"
    return history.take(~left_out), (note,)


class _Expansion:
    """The drains of a history, and the operations that stand for them."""

    def __init__(self, history: ConcurrentHistory, f: str) -> None:
        self._history, self._f = history, f
        is_drain = history.f.equal(DRAIN)
        self._kept = np.flatnonzero(~is_drain)
        self._drains: list[Drain] = []
        self._emptied: list[int] = []  # rows
        self._untold: list[int] = []  # rows of drains that took messages without telling which
        for row in np.flatnonzero(is_drain & (history.type != FAIL)).tolist():
            self._take(row)
        self._others = np.sort(np.concatenate([history.call, history.ret[history.ret != NEVER]]))
        self.is_loose = any(self._is_among_others(drain) for drain in self._drains)

    def notes(self) -> tuple[str, ...]:
        if not self._untold:
            return ()
        many = f"{len(self._untold)} drains don't tell what they took, or crashed: they"
        one = "a drain does not tell what it took, or crashed: it"
        return (f"{one if len(self._untold) == 1 else many} may have taken any message",)

    def _take(self, row: int) -> None:
        history = self._history
        if history.type[row] == INFO or history.ret[row] == NEVER:
            self._untold.append(row)
            return
        result = history.result.get(row)
        if isinstance(result, tuple | frozenset):
            call, ret = int(history.call[row]), int(history.ret[row])
            self._drains.append(Drain(row, call, ret, tuple(result)))
            return
        self._untold.append(row)
        if isinstance(result, str) and result in _EMPTIED:
            self._emptied.append(row)

    def _is_among_others(self, drain: Drain) -> bool:
        between = np.searchsorted(self._others, [drain.call, drain.ret])
        return len(drain.taken) > 0 and bool(between[1] - between[0] > 1)

    def history(self, timing: str) -> ConcurrentHistory:
        """Its operations without the drains, and with what stands for them."""
        history, kept = self._history, self._kept
        spans = self._spans(timing)
        rows = [drain.row for drain in self._drains for _ in drain.taken]
        values: list[Hashable] = [value for drain in self._drains for value in drain.taken]
        calls = [begin for drain in self._drains for begin, _ in spans[drain.row]]
        rets = [end for drain in self._drains for _, end in spans[drain.row]]
        types = [OK] * len(rows)
        for row in self._emptied:
            rows.append(row)
            values.append(None)
            calls.append(float(history.call[row]) + 0.75)
            rets.append(float(history.ret[row]) - 0.25)
            types.append(OK)
        if self._untold:
            first = min(self._untold, key=lambda row: int(history.call[row]))
            copies = self._untaken(len([value for value in values if value is not None]))
            rows += [first] * copies
            values += [None] * copies
            calls += (history.call[first] + 0.5 * (np.arange(copies) + 1) / (copies + 1)).tolist()
            rets += [np.inf] * copies
            types += [INFO] * copies
        order, call, ret = _ranked(history, kept, np.array(calls), np.array(rets))
        source = np.concatenate([kept, np.array(rows, dtype=np.int64)])[order]
        made = history.take(source)
        is_new = order >= len(kept)
        types_of = np.concatenate([history.type[kept], np.array(types, dtype=np.uint8)])[order]
        names = (*history.f.names, self._f)
        codes = np.where(is_new, np.int32(len(names) - 1), made.f.codes).astype(np.int32)
        new_rows, of = np.flatnonzero(is_new), order[is_new] - len(kept)
        places: list[Hashable] = [
            (drain.row, place) for drain in self._drains for place in range(len(drain.taken))
        ]
        places += [None] * (len(rows) - len(places))
        return replace(
            made, f=Words(codes, names), type=types_of, call=call, ret=ret,
            argument=_with(made.argument, new_rows, places, of),
            result=_with(made.result, new_rows, values, of),
        )  # fmt: skip

    def _untaken(self, known: int) -> int:
        """At most so many messages may have been taken without a word."""
        history = self._history
        counts = history.type != FAIL
        given = history.argument.kind != NOTHING
        took = (history.result.kind != NOTHING) & (history.type == OK) & ~given
        took &= ~history.f.equal(DRAIN)
        return max(0, int(np.count_nonzero(counts & given)) - int(np.count_nonzero(took)) - known)

    def _spans(self, timing: str) -> dict[int, list[tuple[float, float]]]:
        """(call, ret) of each dequeue of each drain, between the ranks of the history."""
        if timing == IN_TURN:
            return self._in_turn()
        spans = {}
        for drain in self._drains:
            count = len(drain.taken)
            step = 0.5 / (2 * count + 1)
            at = np.arange(count)
            if timing == LOOSE and self._is_among_others(drain):
                begins, ends = drain.call + step * (at + 1), drain.ret - step * (count - at)
            else:
                begins = drain.call + step * (2 * at + 1)
                if timing == LATE:
                    begins = drain.ret - 0.5 + step * (2 * at + 1)
                ends = begins + step
            spans[drain.row] = list(zip(begins.tolist(), ends.tolist(), strict=True))
        return spans

    def _in_turn(self) -> dict[int, list[tuple[float, float]]]:
        """Merged by when messages were enqueued, each drain in its own order."""
        history = self._history
        given = np.flatnonzero((history.argument.kind != NOTHING) & (history.type != FAIL))
        enqueued: dict[Hashable, int] = {}
        for row, value in zip(given.tolist(), history.argument.get_all(given), strict=True):
            enqueued.setdefault(exact(value), int(history.call[row]))
        turns: list[tuple[float, int, int]] = []
        for number, drain in enumerate(self._drains):
            latest = -1.0
            for at, value in enumerate(drain.taken):
                latest = max(latest, enqueued.get(exact(value), -1))
                turns.append((latest, number, at))
        turns.sort()
        step = 0.5 / (2 * len(turns) + 1)
        spans: dict[int, list[tuple[float, float]]] = {drain.row: [] for drain in self._drains}
        base = -1.0
        for place, (_, number, at) in enumerate(turns):
            drain = self._drains[number]
            base = max(base, drain.call, enqueued.get(exact(drain.taken[at]), -1))
            begin = min(base, drain.ret - 1) + step * (2 * place + 1)
            spans[drain.row].append((begin, begin + step))
        return spans


def _ranked(
    history: ConcurrentHistory, kept: npt.NDArray[np.int64], calls: Floats, rets: Floats
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """(the operations by their calls: those that are kept, then the new ones; call; ret)."""
    call = np.concatenate([history.call[kept].astype(np.float64), calls])
    returned = np.where(history.ret[kept] == NEVER, np.inf, history.ret[kept])
    ret = np.concatenate([returned, rets])
    times = np.concatenate([call, ret[ret < np.inf]])
    rank = np.empty(len(times), dtype=np.int32)
    rank[np.argsort(times, kind="stable")] = np.arange(len(times), dtype=np.int32)
    ranked_ret = np.full(len(ret), NEVER, dtype=np.int32)
    ranked_ret[ret < np.inf] = rank[len(call) :]
    order = np.argsort(call, kind="stable")
    return order, rank[: len(call)][order], ranked_ret[order]


def _with(
    known: Values, rows: npt.NDArray[np.int64], values: list[Hashable], of: npt.NDArray[np.int64]
) -> Values:
    """``known``, with ``values[of[i]]`` in row ``rows[i]``."""
    kind, number = known.kind.copy(), known.number.copy()
    forms = list(known.forms)
    numbers = {exact(form): at for at, form in enumerate(forms)}
    for row, at in zip(rows.tolist(), of.tolist(), strict=True):
        value = values[at]
        if value is None:
            kind[row], number[row] = NOTHING, 0
        elif type(value) is int and -(2**63) <= value < 2**63:
            kind[row], number[row] = INTEGER, value
        else:
            found = numbers.setdefault(exact(value), len(numbers))
            if found == len(forms):
                forms.append(value)
            kind[row], number[row] = FORM, found
    return Values(kind, number, tuple(forms))


@dataclass(frozen=True, slots=True)
class InOrder:
    """A queue whose drains take their messages one after the other: a dequeue of a drain has its
    place in it for an argument. The state: the queue's, and how far each drain has come."""

    queue: Model

    @property
    def meanings(self) -> Meanings:
        known = meanings_of(self.queue) or {}
        return {
            name: replace(each, argument=each.argument or each.result)
            for name, each in known.items()
        }

    @property
    def init(self) -> Hashable:
        return self.queue.init, frozenset[Hashable]()

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf:
        assert isinstance(state, tuple)
        inner, done = state
        if op.f in ("dequeue", "pop") and op.argument is not None:
            assert isinstance(op.argument, tuple)
            if (
                op.argument in done
                or sum(row == op.argument[0] for row, _ in done) != op.argument[1]
            ):
                return None
            done = done | {op.argument}
        after = self.queue.step(inner, op)
        if isinstance(after, OneOf):
            return OneOf(tuple((each, done) for each in after.states))
        return None if after is None else (after, done)
