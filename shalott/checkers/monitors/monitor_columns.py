"""From a history's columns to what the engine's monitors read: codes of f, dense ids of values.

A value is an int64 key first (integers are themselves; nil and what is no integer get keys above
all of them), then a dense id, in C. Python looks at distinct forms only, never at every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, column, ffi, lib
from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import FAIL, FORM, INTEGER, ConcurrentHistory, Values
from shalott.checkers.monitors.monitor import STOPPED_BY, MonitorAnswer, close_ranks

Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]
Keys = npt.NDArray[np.int64]

DROPPED: Final = 255  # the code of a row that does not count: no monitor knows it


NO_CODES: Final[Mapping[int, int]] = {}


class Undecided(Exception):
    """The monitor can't decide this history; the message is a clause that says why."""


def codes(
    history: ConcurrentHistory,
    code_of: Mapping[str, int],
    when_failed: Mapping[int, int] = NO_CODES,
) -> npt.NDArray[np.uint8]:
    """Each row's f as the monitor's code. What failed is DROPPED, or ``when_failed``."""
    names = history.f.names
    by_name = np.array([code_of.get(name, DROPPED) for name in names], dtype=np.uint8)
    found = by_name.take(history.f.codes)
    for name in names:
        if name not in code_of and history.f.equal(name).any():
            raise Undecided(f"{name!r} is not an operation of this object")
    failed = history.type == FAIL
    if failed.any():
        asked = found[failed]
        found[failed] = DROPPED
        for code, counts_as in when_failed.items():
            found[failed] = np.where(asked == code, counts_as, found[failed])
    return found


@dataclass(slots=True)
class Numbering:
    """Keys of values: two values have one key if and only if they are one
    (checkers.history.exact).
    """

    above: int  # from here on there is no integer that is asked about, for a long stretch
    strangers: dict[Hashable, int] = field(default_factory=dict)

    @staticmethod
    def over(columns: Sequence[Keys]) -> Numbering:
        """For all integers in these columns (and forms' numbers, which do no harm)."""
        highest = max([int(each.max()) for each in columns if len(each)], default=0)
        if highest < 2**62:
            return Numbering(max(highest, 0) + 1)
        bounds = np.array([-(2**63), 2**63 - 1], dtype=np.int64)
        known = np.unique(np.concatenate([bounds, *columns]))
        gaps = known[1:].view(np.uint64) - known[:-1].view(np.uint64)
        return Numbering(int(known[np.argmax(gaps)]) + 1)

    def key(self, value: Hashable) -> int:
        if value is None:
            return self.above
        if isinstance(value, int) and not isinstance(value, bool) and _fits(value):
            return value
        return self.above + 1 + self.strangers.setdefault(exact(value), len(self.strangers))

    def keys(self, values: Values, rows: Bools | None = None) -> Keys:
        """Keys of a column; only those of ``rows`` mean anything."""
        integer = values.kind == INTEGER
        if integer.all():
            return values.number
        found = np.where(integer, values.number, self.above)
        forms = values.kind == FORM
        if rows is not None:
            forms &= rows
        if forms.any():
            used, place = distinct(values.number[forms], len(values.forms))
            found[forms] = self.keys_of([values.forms[number] for number in used.tolist()])[place]
        return found

    def keys_of(self, values: Collection[Hashable]) -> Keys:
        if set(map(type, values)) == {int}:
            numbers = integers(values)
            if len(numbers) == len(values):
                return numbers
        return np.array([self.key(value) for value in values], dtype=np.int64)


def distinct(
    numbers: npt.NDArray[np.integer], below: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(the different ones, ascending; which of them each is). All are in [0, below)."""
    if 8 * len(numbers) < below:
        different, place = np.unique(numbers, return_inverse=True)
        return different.astype(np.int64), place
    there = np.zeros(below, dtype=np.bool_)
    there[numbers] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


def _fits(value: int) -> bool:
    return -(2**63) <= value < 2**63


def integers(values: Collection[Hashable]) -> Keys:
    """Those of the values that are integers of 64 bits, in their order."""
    if set(map(type, values)) == {int}:
        every = cast("Collection[int]", values)
        if _fits(min(every)) and _fits(max(every)):
            return np.fromiter(every, dtype=np.int64, count=len(every))
    found = [value for value in values if type(value) is int and _fits(value)]
    return np.array(found, dtype=np.int64)


def dense(keys: Keys, present: Bools | None, budget: Budget) -> tuple[Ids, int]:
    """(ids, how many): equal keys get one id; rows that are not present get SHL_NONE.

    Keys that lie close together are ids already, once the lowest is 0.
    """
    if present is None and len(keys):
        low, high = int(keys.min()), int(keys.max())
        if high - low < 2 * len(keys):
            return (keys - low).astype(np.int32), high - low + 1
    ids, first = np.empty(len(keys), dtype=np.int32), np.empty(len(keys), dtype=np.int32)
    mask = ffi.NULL if present is None else column(present.view(np.uint8))
    count = lib.shl_dense(len(keys), column(keys), mask, column(ids), column(first), budget)
    if count < 0:
        raise MemoryError
    return ids, count


def ids_of_two(
    first: Values, second: Values, pick: npt.NDArray[np.uint8], picked: int, asked: int | None
) -> tuple[Ids, int, int] | None:
    """(ids, how many, the id of ``asked``) of the second column where it is picked, else the first.

    In one pass over both. The id is SHL_NONE if no row has the value. None: there are forms, or
    integers that lie far apart, and it takes a Numbering.
    """
    if asked is not None and not _fits(asked):
        return None
    ids, its_id = np.empty(len(pick), dtype=np.int32), ffi.new("int32_t *")
    kept = [column(each) for both in (first, second) for each in (both.kind, both.number)]
    kept += [ffi.new("uint8_t[]", [asked is not None]), ffi.new("int64_t[]", [asked or 0])]
    one, other, third = (
        ffi.new("shl_values *", {"kind": kept[i], "number": kept[i + 1]}) for i in (0, 2, 4)
    )
    count = lib.shl_ids_of_two(
        len(pick), one, other, column(pick), picked, third, column(ids), its_id
    )
    return None if count < 0 else (ids, int(count), int(its_id[0]))


@dataclass(frozen=True, slots=True)
class Encoded:
    """A history as a monitor reads it, and what keeps the memory behind it alive."""

    columns: CData  # shl_history *
    kept: tuple[CData, ...]


def encoded(
    history: ConcurrentHistory,
    f: npt.NDArray[np.uint8],
    a: Ids | None,
    b: Ids | None,
    values: int,
    budget: Budget,
) -> Encoded:
    call, ret, ranks = close_ranks(history, budget)
    columns = ffi.new("shl_history *")
    columns.n, columns.ranks, columns.values = len(history), ranks, values
    columns.call = kept_call = column(np.ascontiguousarray(call))
    columns.ret = kept_ret = column(np.ascontiguousarray(ret))
    columns.f = kept_f = column(f)
    columns.a = kept_a = ffi.NULL if a is None else column(a)
    columns.b = kept_b = ffi.NULL if b is None else column(b)
    return Encoded(columns, (kept_call, kept_ret, kept_f, kept_a, kept_b))


def stopped(monitor: str, cause: int) -> MonitorAnswer:
    """The budget was spent before there was an answer."""
    return MonitorAnswer(monitor, "unknown", why=STOPPED_BY.get(cause, "memory"))


# A sentence on the operations that prove a violation: {0} is the first one in words.
Reason = str | Callable[[ConcurrentHistory, tuple[int, ...]], str]


def answered(
    monitor: str,
    history: ConcurrentHistory,
    budget: Budget,
    check: Callable[[CData], None],
    violations: Mapping[int, str],
    reasons: Mapping[str, Reason],
    why: Callable[[ConcurrentHistory, int, tuple[int, ...]], str],
    words: Callable[[ConcurrentHistory, int], str],
) -> MonitorAnswer:
    """What a check in C found, as a monitor's answer. ``check`` fills a ``shl_answer *``.

    ``words``: an operation as the sentences of ``reasons`` name it.
    """
    answer = ffi.new("shl_answer *")
    try:
        check(answer)
    except Undecided as undecided:
        return MonitorAnswer(monitor, "unknown", why=str(undecided))
    except MemoryError:
        return stopped(monitor, budget.stopped)
    if answer.verdict == lib.SHL_VALID:
        return MonitorAnswer(monitor, True)
    rows = tuple(int(row) for row in answer.ops if row != lib.SHL_NONE)
    if answer.verdict == lib.SHL_INVALID:
        violation = violations[answer.violation]
        reason = reasons[violation]
        if isinstance(reason, str):
            sentence = reason.format(*(words(history, row) for row in rows))
        else:
            sentence = reason(history, rows)
        return MonitorAnswer(monitor, False, "", violation, rows, sentence)
    if answer.cause == lib.SHL_NOT_THIS_MONITOR:
        return MonitorAnswer(monitor, "unknown", why=why(history, answer.violation, rows))
    return stopped(monitor, answer.cause)
