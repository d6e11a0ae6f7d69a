"""Append-only logs with contiguous offsets: append(v) -> offset, read(offset) -> v or end, tail.

The monitor is C (engine/monitor_log.c has the theory). Values may repeat. What it can't decide: an
append that returned without an offset, or appended nil (a read can't tell it from the end); an
offset that was read, and that only one of several crashed appends of its value explains.

Violations, and the rows that prove them, in order:

- ``fresh``: a read of a value that no operation appended
- ``twice``: two appends that got one offset
- ``differs``: a read; the append at that offset, or another read of it
- ``elsewhere``: a read; the append of its value at another offset, or a read of it there
- ``gap``: who shows that the log was so long that an offset below was filled by no append
- ``order``: who returned, and needs an offset to be filled; who was called later, and needs it, or
  one before it, not to be filled yet
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from shalott.checkers.engine import Budget, CData, lib
from shalott.checkers.history.concurrent import INTEGER, NEVER, NOTHING, ConcurrentHistory, Values
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.collections import Log
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.monitor_columns import (
    DROPPED,
    Bools,
    Encoded,
    Ids,
    Numbering,
    Reason,
    Undecided,
    answered,
    codes,
    dense,
    encoded,
)

_CODES: Final = {"append": lib.SHL_LOG_APPEND, "read": lib.SHL_LOG_READ, "tail": lib.SHL_LOG_TAIL}
MEANS: Final = {name: _CODES[meaning.f] for name, meaning in Log.meanings.items()}
VIOLATIONS: Final = {
    lib.SHL_LOG_FRESH: "fresh",
    lib.SHL_LOG_TWICE: "twice",
    lib.SHL_LOG_DIFFERS: "differs",
    lib.SHL_LOG_ELSEWHERE: "elsewhere",
    lib.SHL_LOG_GAP: "gap",
    lib.SHL_LOG_ORDER: "order",
}


@dataclass(frozen=True, slots=True)
class LogMonitor:
    """A monitor (checkers.linearizability.monitors.base) for models_collections.Log."""

    name: ClassVar[str] = "log monitor"

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        def check(answer: CData) -> None:
            read = self.encode(history, budget)
            lib.shl_check_log(read.columns, budget, answer)

        return answered(self.name, history, budget, check, VIOLATIONS, _REASONS, _why, _what)

    def encode(self, history: ConcurrentHistory, budget: Budget) -> Encoded:
        f, n = codes(history, MEANS), len(history)
        completed = history.ret != NEVER
        argument, result = history.argument, history.result
        is_append, is_read = f == lib.SHL_LOG_APPEND, f == lib.SHL_LOG_READ
        is_tail = f == lib.SHL_LOG_TAIL
        _refuse(is_append & (argument.kind == NOTHING), "nil was appended")
        placed, told = is_append & completed, is_tail & completed
        _refuse(placed & (result.kind == NOTHING), "an append did not say at which offset")
        _refuse(placed & (result.kind != INTEGER), "an append returned what is no offset")
        _refuse(is_read & (argument.kind != INTEGER), "a read asked for what is no offset")
        _refuse(told & (result.kind != INTEGER), "a tail returned what is no number")
        offsets = np.where(is_read, argument.number, np.where(placed | told, result.number, 0))
        _refuse((offsets < 0) & (f != DROPPED), "an offset is negative")
        f[is_read & (result.kind == NOTHING)] = lib.SHL_LOG_END
        f[(is_read | is_tail) & ~completed] = DROPPED
        a, values = _values(argument, result, is_append, is_read, budget)
        return encoded(history, f, a, np.minimum(offsets, n).astype(np.int32), values, budget)


def _refuse(rows: Bools, why: str) -> None:
    if rows.any():
        raise Undecided(why)


def _values(
    argument: Values, result: Values, is_append: Bools, is_read: Bools, budget: Budget
) -> tuple[Ids, int]:
    numbering = Numbering.over([argument.number, result.number])
    appended, read = numbering.keys(argument, is_append), numbering.keys(result, is_read)
    return dense(np.where(is_append, appended, np.where(is_read, read, 0)), None, budget)


# --- what is said about it ------------------------------------------------------------------------


def _what(history: ConcurrentHistory, row: int) -> str:
    means = MEANS[history.f.names[history.f.codes[row]]]
    argument, result = history.argument.get(row), history.result.get(row)
    if means == lib.SHL_LOG_APPEND:
        where = "" if history.ret[row] == NEVER else f" at offset {result}"
        return f"append of {value_text(argument)}{where}"
    if means == lib.SHL_LOG_TAIL:
        return f"tail that counted {result}"
    found = "the end" if result is None else value_text(result)
    return f"read of offset {argument} that found {found}"


def _why(history: ConcurrentHistory, violation: int, rows: tuple[int, ...]) -> str:
    value, offset = value_text(history.result.get(rows[1])), history.argument.get(rows[1])
    return (
        f"value {value} was read at offset {offset}, and several crashed appends may have"
        " appended it"
    )


def _twice(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    one, other = (value_text(history.argument.get(row)) for row in rows)
    return f"offset {history.result.get(rows[0])} was given to {one} and to {other}"


_REASONS: Final[dict[str, Reason]] = {
    "fresh": "the {0} found what no operation appended",
    "twice": _twice,
    "differs": "one offset holds two values: see the {0}, and the {1}",
    "elsewhere": "one append is at two offsets: see the {0}, and the {1}",
    "gap": "there are too few appends to fill every offset below the {0}",
    "order": "the {1} was called after the {0} had returned, although what they saw says that it"
    " came first",
}
