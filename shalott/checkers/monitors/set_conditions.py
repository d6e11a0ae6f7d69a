"""What every order of a set's operations must fulfil, looked at before any search.

The set monitor passes over histories with removes and reads of the whole set. Each element alone is
a set of at most one element, and what is wrong with it is wrong with the history. Of each it is
asked, in O(n log n), whether it vanished or appeared with no operation to have done it:

- *Vanished*: one found it, and one that was called later missed it, and no remove of it
  can have taken effect between the two.
- *Appeared*: one missed it, or none had added it yet, and one that was called later (or
  at all) found it, and no add of it can have taken effect between the two.

A remove can have done it if it was called before the second returned and did not return before the
first was called. Each rule is necessary, together they are not sufficient: the answer is "invalid"
or "not known".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, lib
from shalott.checkers.history.concurrent import FAIL, FORM, NEVER, ConcurrentHistory
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.monitor_columns import Numbering, integers
from shalott.checkers.monitors.set_monitor import MEANS, operation_in_words, rows_of

Ints = npt.NDArray[np.int64]
MOST: Final = 20_000_000  # elements in all reads together
_FOREVER: Final = 2**31
_ROOM: Final = 2**32  # more than there are times


class _Rows(NamedTuple):
    """Operations on elements: which element, which row."""

    element: Ints
    row: Ints


@dataclass(frozen=True, slots=True)
class _Seen:
    """Who knows what of which element."""

    call: Ints  # of every row
    ret: Ints
    found: _Rows
    missed: _Rows
    adds: _Rows  # that may have added it
    removes: _Rows


@dataclass(frozen=True, slots=True)
class SetConditions:
    """A monitor (checkers.linearizability.monitors.base) that only ever says "invalid"."""

    name: ClassVar[str] = "rules of sets"

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        seen = _seen(history)
        if seen is not None:
            vanished = _unexplained(seen, seen.found, seen.missed, seen.removes)
            if vanished is not None:
                before, after = (operation_in_words(history, row) for row in vanished)
                reason = (
                    f"the {after} did not find an element that the {before} had found or put"
                    " there, and no operation can have removed it between the two"
                )
                return MonitorAnswer(self.name, False, "", "vanished", vanished, reason)
            appeared = _unexplained(seen, _nowhere(seen), seen.found, seen.adds)
            if appeared is not None:
                rows = tuple(row for row in appeared if row >= 0)
                reason = (
                    f"the {operation_in_words(history, rows[-1])} found an element that no"
                    " operation can have added by then, after it was missing"
                )
                return MonitorAnswer(self.name, False, "", "appeared", rows, reason)
        return MonitorAnswer(self.name, "unknown", why="no simple rule is broken")


def _nowhere(seen: _Seen) -> _Rows:
    """Who missed elements, and row -1, which missed all of them before anything was called."""
    elements = np.unique(np.concatenate([each.element for each in (seen.found, seen.adds)]))
    return _Rows(
        np.concatenate([elements, seen.missed.element]),
        np.concatenate([np.full(len(elements), -1, dtype=np.int64), seen.missed.row]),
    )


def _seen(history: ConcurrentHistory) -> _Seen | None:
    """None: an operation is none of a set's, or there is too much to look at."""
    means = np.array([MEANS.get(name, 255) for name in history.f.names], dtype=np.uint8)
    f = means[history.f.codes]
    returned, counts = history.ret != NEVER, history.type != FAIL
    is_read = (f == lib.SHL_SET_READ) & returned & counts
    if (f == 255).any() or (history.result.kind[is_read] != FORM).any():
        return None
    one = (f != lib.SHL_SET_READ) & counts
    sets = {
        number: history.result.forms[number]
        for number in np.unique(history.result.number[is_read]).tolist()
    }
    if not all(isinstance(each, tuple | frozenset) for each in sets.values()):
        return None
    known = {number: tuple(each) for number, each in sets.items()}
    numbering = Numbering.over(
        [history.argument.number, *(integers(each) for each in known.values())]
    )
    keys = numbering.keys(history.argument, one)
    forms = {number: numbering.keys_of(each) for number, each in known.items()}
    elements = np.unique(np.concatenate([keys[one], *forms.values()]))
    reads = np.flatnonzero(is_read)
    if len(elements) * len(reads) > MOST:
        return None
    yes, no = rows_of(history.result, True) & returned, rows_of(history.result, False) & returned
    is_add, is_remove = (f == lib.SHL_SET_ADD) & one, (f == lib.SHL_SET_REMOVE) & one
    is_look = (f == lib.SHL_SET_HAS) & one

    def rows(which: npt.NDArray[np.bool_]) -> _Rows:
        at = np.flatnonzero(which)
        return _Rows(np.searchsorted(elements, keys[at]), at)

    found = rows(returned & (is_add | (yes & (is_remove | is_look))))
    missed = rows(returned & (is_remove | (yes & is_add) | (no & is_look)))
    has = np.zeros((len(reads), len(elements)), dtype=np.bool_)
    for at, form in enumerate(history.result.number[reads].tolist()):
        has[at, np.searchsorted(elements, forms[form])] = True
    return _Seen(
        call=history.call.astype(np.int64),
        ret=np.where(returned, history.ret.astype(np.int64), _FOREVER),
        found=_and_reads(found, has, reads),
        missed=_and_reads(missed, ~has, reads),
        adds=rows(is_add & ~no),
        removes=rows(is_remove & ~no),
    )


def _and_reads(rows: _Rows, has: npt.NDArray[np.bool_], reads: Ints) -> _Rows:
    which, element = np.nonzero(has)
    return _Rows(np.concatenate([rows.element, element]), np.concatenate([rows.row, reads[which]]))


def _unexplained(seen: _Seen, one: _Rows, other: _Rows, changes: _Rows) -> tuple[int, int] | None:
    """(first, second), the second one to return as early as can be.

    The first returned before the second was called, and no change of the element can have taken
    effect after the call of the first and before the return of the second. Of those that returned
    before the second was called, the last to be called leaves the least room for a change.
    """
    if not len(one.row) or not len(other.row):
        return None
    befores = _Latest(one.element, _at(seen.ret, one.row), _at(seen.call, one.row))
    changed = _Latest(changes.element, _at(seen.call, changes.row), _at(seen.ret, changes.row))
    has_first, called = befores.until(other.element, _at(seen.call, other.row))
    has_change, until = changed.until(other.element, _at(seen.ret, other.row))
    broken = np.flatnonzero(has_first & ~(has_change & (until > called)))
    if not len(broken):
        return None
    at = int(broken[np.argmin(seen.ret[other.row[broken]])])
    mine = (one.element == other.element[at]) & (_at(seen.call, one.row) == called[at])
    return int(one.row[np.argmax(mine)]), int(other.row[at])


def _at(times: Ints, rows: Ints) -> Ints:
    """The times of some rows; 0 is before all of them, and that of row -1."""
    return np.where(rows < 0, 0, times[np.maximum(rows, 0)] + 1)


class _Latest:
    """Of each element's operations up to a time, the largest other time of one of them."""

    def __init__(self, element: Ints, time: Ints, other: Ints) -> None:
        order = np.argsort(element * _ROOM + time, kind="stable")
        self._keys = (element * _ROOM + time)[order]
        self._most = np.maximum.accumulate((element * _ROOM + other)[order])

    def until(self, element: Ints, time: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
        """(whether the element has one before the time, the largest other time)."""
        at = np.searchsorted(self._keys, element * _ROOM + time) - 1
        if not len(self._keys):
            return np.zeros(len(at), dtype=np.bool_), np.zeros(len(at), dtype=np.int64)
        most = self._most[np.maximum(at, 0)]
        return (at >= 0) & (most // _ROOM == element), most % _ROOM
