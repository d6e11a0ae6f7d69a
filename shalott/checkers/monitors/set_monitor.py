"""Sets: add, remove, contains, decided element by element; reads of the whole where nothing goes.

The monitor is C (engine/monitor_set.c has the theory). Adds and removes may say whether they
changed anything. Decided: any history without removes, reads of the whole set included (Jepsen's
``set`` workload); without such reads, any in which each element that is removed was added at most
once, or was never looked at. Unknown: the rest.

Violations, and the rows that prove them, in order:

- ``fresh``: who found an element that no operation added
- ``again``: two that both added an element which no operation removed, or that both removed one
  that was added once
- ``future``: who found an element; its add, called later
- ``lost``: who missed an element; who had it there before; who had it there afterwards, if anyone
- ``stale``: a remove; who found the element although no operation added it again
- ``different``: two reads, each with an element that the other has not
- ``order``: who returned; who was called later, although what they saw says that it came first
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, column, ffi, lib
from shalott.checkers.history.concurrent import FORM, NEVER, ConcurrentHistory, Values
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.collections import Set
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.monitor_columns import (
    DROPPED,
    Bools,
    Encoded,
    Keys,
    Numbering,
    Reason,
    Undecided,
    answered,
    codes,
    dense,
    distinct,
    encoded,
    integers,
)

_CODES: Final = {
    "add": lib.SHL_SET_ADD,
    "remove": lib.SHL_SET_REMOVE,
    "contains": lib.SHL_SET_HAS,
    "read": lib.SHL_SET_READ,
}
MEANS: Final = {name: _CODES[meaning.f] for name, meaning in Set.meanings.items()}
VIOLATIONS: Final = {
    lib.SHL_SET_FRESH: "fresh",
    lib.SHL_SET_AGAIN: "again",
    lib.SHL_SET_FUTURE: "future",
    lib.SHL_SET_LOST: "lost",
    lib.SHL_SET_STALE: "stale",
    lib.SHL_SET_DIFFERENT: "different",
    lib.SHL_SET_ORDER: "order",
}
# What an operation that returned true, and one that returned false, is to the engine.
_SAID: Final = {
    lib.SHL_SET_ADD: (lib.SHL_SET_ADDED, lib.SHL_SET_HAS),
    lib.SHL_SET_REMOVE: (lib.SHL_SET_REMOVED, lib.SHL_SET_LACKS),
    lib.SHL_SET_HAS: (lib.SHL_SET_HAS, lib.SHL_SET_LACKS),
}


@dataclass(frozen=True, slots=True)
class SetMonitor:
    """A monitor (checkers.linearizability.monitors.base) for models_collections.Set."""

    name: ClassVar[str] = "set monitor"

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        def check(answer: CData) -> None:
            columns, sets, _ = self.encode(history, budget)
            lib.shl_check_set(columns.columns, sets, budget, answer)

        return answered(
            self.name, history, budget, check, VIOLATIONS, _REASONS, _why, operation_in_words
        )

    def encode(self, history: ConcurrentHistory, budget: Budget) -> tuple[Encoded, CData, CData]:
        """(what the engine reads, the sets that were read, what keeps their memory alive)."""
        f = _codes(history)
        is_read = f == lib.SHL_SET_READ
        elements = f < lib.SHL_SET_READ
        read = _read_sets(history.result, is_read) if is_read.any() else _NO_SETS
        numbering = Numbering.over([history.argument.number, *read.integers])
        keys = [numbering.keys(history.argument, elements), *read.keys(numbering)]
        all_keys, present = keys[0], elements
        if read.forms:
            all_keys = np.concatenate(keys)
            present = np.ones(len(all_keys), dtype=np.bool_)
            present[: len(history)] = elements
        ids, values = dense(all_keys, None if present.all() else present, budget)
        a = ids[: len(history)]
        which, starts, members = read.smallest_first(ids[len(history) :], values)
        a[is_read] = which
        sets = ffi.new("shl_read_sets *")
        sets.count = len(starts) - 1
        sets.starts, sets.elements = kept = column(starts), column(members)
        return encoded(history, f, a, None, values, budget), sets, kept


def _codes(history: ConcurrentHistory) -> npt.NDArray[np.uint8]:
    f, result = codes(history, MEANS), history.result
    completed = history.ret != NEVER
    f[~completed & ((f == lib.SHL_SET_HAS) | (f == lib.SHL_SET_READ))] = DROPPED
    asked = f.copy()
    true, false = rows_of(result, True) & completed, rows_of(result, False) & completed
    if ((asked == lib.SHL_SET_HAS) & ~(true | false)).any():
        raise Undecided("a contains returned neither true nor false")
    for means, (said_yes, said_no) in _SAID.items():
        f[true & (asked == means)] = said_yes
        f[false & (asked == means)] = said_no
    return f


def rows_of(values: Values, form: bool) -> Bools:
    rows = np.zeros(len(values), dtype=np.bool_)
    for at, known in enumerate(values.forms):
        if known is form:
            rows |= (values.kind == FORM) & (values.number == at)
    return rows


@dataclass(frozen=True, slots=True)
class _ReadSets:
    """The distinct results of reads, as they were written."""

    forms: list[tuple[Hashable, ...]]
    integers: list[Keys]  # those of their elements that are integers
    place: npt.NDArray[np.int64]  # of each read, which form

    def keys(self, numbering: Numbering) -> list[Keys]:
        return [
            numbers if len(numbers) == len(form) else numbering.keys_of(form)
            for form, numbers in zip(self.forms, self.integers, strict=True)
        ]

    def smallest_first(
        self, ids: npt.NDArray[np.int32], values: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """(which set each read returned, where each set starts, the sets, each element once)."""
        ends = np.cumsum([0, *map(len, self.forms)])
        sets = [distinct(ids[ends[at] : ends[at + 1]], values)[0] for at in range(len(self.forms))]
        order = sorted(range(len(sets)), key=lambda at: len(sets[at]))
        rank = np.empty(len(sets), dtype=np.int64)
        rank[order] = np.arange(len(sets))
        starts = np.cumsum([0, *(len(sets[at]) for at in order)], dtype=np.int64)
        members: list[Keys] = [np.empty(0, dtype=np.int64), *(sets[at] for at in order)]
        return rank[self.place], starts, np.concatenate(members).astype(np.int32)


_NO_SETS: Final = _ReadSets([], [], np.empty(0, dtype=np.int64))


def _read_sets(result: Values, is_read: Bools) -> _ReadSets:
    if (result.kind[is_read] != FORM).any():
        raise Undecided("a read did not return a set")
    used, place = distinct(result.number[is_read], len(result.forms))
    forms = [result.forms[number] for number in used.tolist()]
    if not all(isinstance(form, tuple | frozenset) for form in forms):
        raise Undecided("a read did not return a set")
    sets = [tuple(form) for form in forms]
    return _ReadSets(sets, [integers(elements) for elements in sets], place)


# --- what is said about it ------------------------------------------------------------------------


def operation_in_words(history: ConcurrentHistory, row: int) -> str:
    means = MEANS[history.f.names[history.f.codes[row]]]
    if means == lib.SHL_SET_READ:
        elements = history.result.get(row)
        count = len(set(elements)) if isinstance(elements, tuple | frozenset) else 0
        return f"read of {count} elements"
    f = {lib.SHL_SET_ADD: "add", lib.SHL_SET_REMOVE: "remove"}.get(means, "contains")
    said = history.result.get(row) if history.ret[row] != NEVER else None
    answer = f" -> {str(said).lower()}" if isinstance(said, bool) else ""
    return f"{f}({value_text(history.argument.get(row))}){answer}"


def _why(history: ConcurrentHistory, violation: int, rows: tuple[int, ...]) -> str:
    element = history.argument.get(rows[0])
    if violation == lib.SHL_SET_WHOLE:
        return f"element {value_text(element)} was removed, and the whole set was read"
    return f"element {value_text(element)} was added twice, and removed"


def _fresh(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    if MEANS[history.f.names[history.f.codes[rows[0]]]] == lib.SHL_SET_READ:
        return f"the {operation_in_words(history, rows[0])} has an element that no operation added"
    return f"{operation_in_words(history, rows[0])} found an element that no operation added"


def _lost(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    missed, before = operation_in_words(history, rows[0]), operation_in_words(history, rows[1])
    reason = f"{missed} did not find the element, which was there before: see {before}"
    if len(rows) == 3:
        return f"{reason}; and afterwards: see {operation_in_words(history, rows[2])}"
    return f"{reason}, and no operation is known to have removed it by then"


_REASONS: Final[dict[str, Reason]] = {
    "fresh": _fresh,
    "again": "{0} and {1}: the same change was made twice, and not undone between",
    "future": "{0} returned before {1} was called, although no operation added the element before",
    "lost": _lost,
    "stale": "{1} was called after {0} had returned, and no operation added the element again",
    "different": "two reads of the set each have an element that the other has not",
    "order": "the {1} was called after the {0} had returned, although what was seen says that it"
    " came first",
}
