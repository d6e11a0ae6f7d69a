"""Counters that are raised only, or lowered only, by one amount: decided in O(n log n).

The monitor is C (engine/monitor_counter.c has the theory). Crashed operations are counted exactly.
What it can't decide: a counter that is raised and lowered, or by different amounts; whether some of
many amounts add up to what was read is a hard question (subset sum).

Violations, and the rows that prove them, in order:

- ``never``: a read of what no number of these operations leads to
- ``ahead``: a read of less than the counter had reached; what showed that before, if anything did
- ``behind``: a read of more than the counter can have reached
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, ffi, lib
from shalott.checkers.history.concurrent import (
    FORM,
    INTEGER,
    NEVER,
    NOTHING,
    ConcurrentHistory,
)
from shalott.checkers.models.collections import Counter
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.monitor_columns import (
    DROPPED,
    Undecided,
    codes,
    encoded,
    stopped,
)

_CODES: Final = {
    name: lib.SHL_COUNTER_READ if meaning.f == "read" else lib.SHL_COUNTER_RAISE
    for name, meaning in Counter.meanings.items()
}
_FALLS: Final = {name for name, meaning in Counter.meanings.items() if meaning.f == "dec"}
LARGE: Final = 2**31  # amounts beyond it are for others


@dataclass(frozen=True, slots=True)
class CounterMonitor:
    """A monitor (checkers.linearizability.monitors.base) for models.collections.Counter."""

    name: ClassVar[str] = "counter monitor"

    initial: int = 0

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        try:
            f = codes(history, _CODES)
            f[(f == lib.SHL_COUNTER_READ) & (history.ret == NEVER)] = DROPPED
            amount = _amount(history, f == lib.SHL_COUNTER_RAISE)
            told = self._told(history, f == lib.SHL_COUNTER_READ, amount)
            columns = encoded(history, f, told, None, 0, budget)
        except Undecided as undecided:
            return MonitorAnswer(self.name, "unknown", why=str(undecided))
        except MemoryError:
            return stopped(self.name, budget.stopped)
        answer, reached = ffi.new("shl_answer *"), ffi.new("int32_t *")
        lib.shl_check_counter(columns.columns, reached, budget, answer)
        if answer.verdict == lib.SHL_UNKNOWN:
            return stopped(self.name, answer.cause)
        if answer.verdict == lib.SHL_VALID:
            return MonitorAnswer(self.name, True)
        return self._invalid(history, answer, amount, self.initial + int(reached[0]) * amount)

    def _told(
        self, history: ConcurrentHistory, reads: npt.NDArray[np.bool_], amount: int
    ) -> npt.NDArray[np.int32]:
        """How many operations each read tells of; -1: no number of them gives that."""
        result = history.result
        told = np.full(len(history), -1, dtype=np.int64)
        known = reads & (result.kind == INTEGER) & (np.abs(result.number) < LARGE)
        above = result.number[known] - self.initial
        times = above // amount
        told[known] = np.where((times * amount == above) & (times >= 0), times, -1)
        return np.minimum(told, len(history) + 1).astype(np.int32)

    def _invalid(
        self, history: ConcurrentHistory, answer: CData, amount: int, reached: int
    ) -> MonitorAnswer:
        rows = tuple(int(row) for row in answer.ops if row != lib.SHL_NONE)
        read = f"process {history.process[rows[0]]} read {_shown(history.result.get(rows[0]))}"
        less, more = ("less", "more") if amount > 0 else ("more", "less")
        if answer.violation == lib.SHL_COUNTER_BEHIND:
            word = "behind"
            reason = f"{read} when the counter can't have been {more} than {reached}"
        elif self._is_told(history, rows[0], amount):
            word = "ahead"
            reason = (
                f"{read} when the counter can't have been {less} than {reached} any more:"
                f" {_shower(history, rows[1])}"
            )
        else:
            word, rows = "never", rows[:1]
            reason = (
                f"{read}, to which no number of steps of {abs(amount)} leads from {self.initial}"
            )
        return MonitorAnswer(self.name, False, "", word, rows, reason)

    def _is_told(self, history: ConcurrentHistory, row: int, amount: int) -> bool:
        only = np.arange(len(history)) == row
        return bool(self._told(history, only, amount)[row] >= 0)


def _amount(history: ConcurrentHistory, raises: npt.NDArray[np.bool_]) -> int:
    """By how much every operation changes it; 1 if none does. Raises Undecided."""
    kind, number = history.argument.kind[raises], history.argument.number[raises]
    if (kind == FORM).any():
        raise Undecided("an operation adds something else than an integer")
    falls = np.array([name in _FALLS for name in history.f.names], dtype=np.bool_)
    falls = falls[history.f.codes[raises]]
    amounts = np.unique(np.where(kind == NOTHING, 1, number) * np.where(falls, -1, 1)).tolist()
    if len(amounts) > 1:
        raise Undecided("it was changed by different amounts")
    if amounts and (amounts[0] == 0 or abs(amounts[0]) >= LARGE):
        raise Undecided("it was changed by 0, or by a very large number")
    return amounts[0] if amounts else 1


def _shown(value: object) -> str:
    return "nil" if value is None else repr(value)


def _shower(history: ConcurrentHistory, row: int) -> str:
    """What raised it last."""
    f = history.f.names[history.f.codes[row]]
    process = f"process {history.process[row]}"
    if _CODES[f] == lib.SHL_COUNTER_READ:
        return f"{process} had read {_shown(history.result.get(row))} before"
    return f"the {f} of {process} had returned before, as the last of them"
