"""Stacks and priority queues with distinct values, decided in O(n log n).

The monitors are C (engine/monitor_stack.c and engine/monitor_priority.c have the theory, after Lee
& Mathur, OOPSLA 2025, and Abdulla et al., PLDI 2025). What they can't decide: a value that was put
in twice, and some histories in which a pop or dequeue crashed that may have taken one of several
values. For priority queues with ``ties=fifo``: two elements of one priority.

Violations, and the rows that prove them, in order:

- ``fresh``, ``repeated``, ``empty``: as of any queue (queue_monitor.py)
- ``turn``: a dequeue; one to three enqueues whose elements were there meanwhile and come first
- ``nested``: the pushes and pops of values of which none can have been the lowest
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, column, ffi, lib
from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import (
    FAIL,
    FORM,
    INTEGER,
    NEVER,
    NOTHING,
    ConcurrentHistory,
)
from shalott.checkers.models.collections import priority_of
from shalott.checkers.monitors.monitor import STOPPED_BY, MonitorAnswer
from shalott.checkers.monitors.queue_monitor import (
    MEANS,
    REASONS,
    VIOLATIONS,
    encode,
    failed_enqueue,
    why,
)

Ints = npt.NDArray[np.int32]
SHRINKS: Final = 400  # smaller proofs that are tried


@dataclass(frozen=True, slots=True)
class PriorityMonitor:
    """A monitor (checkers.linearizability.monitors.base) for models.collections.PriorityQueue."""

    name: ClassVar[str] = "priority queue monitor"

    first: str = "highest"
    ties: str = "any"

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        try:
            turn, turns = _turns(history, self.first)
        except ValueError:
            return MonitorAnswer(self.name, "unknown", why="an element has no priority")
        if self.ties == "fifo" and _share_a_turn(history, turn):
            return MonitorAnswer(self.name, "unknown", why="two elements have one priority")
        try:
            encoded = encode(history, budget)
        except MemoryError:
            return MonitorAnswer(self.name, "unknown", why=STOPPED_BY[budget.stopped])
        answer = ffi.new("shl_answer *")
        lib.shl_check_priority(encoded.columns, column(turn), turns, budget, answer)
        return _answered(self.name, history, answer)


@dataclass(frozen=True, slots=True)
class StackMonitor:
    """A monitor for models.collections.Stack."""

    name: ClassVar[str] = "stack monitor"

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        answer, core = self._decide(history, budget)
        if answer is None:
            return MonitorAnswer(self.name, "unknown", why=STOPPED_BY[budget.stopped])
        if answer.verdict == lib.SHL_INVALID and answer.violation == lib.SHL_QUEUE_NESTED:
            rows = self._smallest(history, core, budget)
            return MonitorAnswer(self.name, False, "", "nested", rows, _nested(history, rows))
        return _answered(self.name, history, answer)

    def _decide(self, history: ConcurrentHistory, budget: Budget) -> tuple[CData | None, Ints]:
        core = np.zeros(len(history), dtype=np.int32)
        try:
            encoded = encode(history, budget)
        except MemoryError:
            return None, core
        answer = ffi.new("shl_answer *")
        lib.shl_check_stack(encoded.columns, column(core), budget, answer)
        return answer, core[: answer.ops[0]] if answer.verdict == lib.SHL_INVALID else core

    def _smallest(self, history: ConcurrentHistory, core: Ints, budget: Budget) -> tuple[int, ...]:
        """The pushes and pops of as few of these values as still have no order (Zeller &
        Hildebrandt, 2002: parts are left out, ever smaller ones)."""
        popped = _pops_by_push(history)
        crashed = _crashed_pops(history)
        pushes, chunk = core.tolist(), max(1, len(core) // 2)
        for _ in range(SHRINKS):
            for start in range(0, len(pushes), chunk):
                fewer = pushes[:start] + pushes[start + chunk :]
                rows = np.array(_with_pops(fewer, popped) + crashed, dtype=np.int64)
                found, _ = self._decide(history.take(np.sort(rows)), budget)
                if found is not None and found.verdict == lib.SHL_INVALID:
                    pushes = fewer
                    break
            else:
                if chunk == 1:
                    break
                chunk //= 2
        return tuple(_with_pops(pushes, popped))


STACK: Final = StackMonitor()


def _answered(name: str, history: ConcurrentHistory, answer: CData) -> MonitorAnswer:
    if answer.verdict == lib.SHL_VALID:
        return MonitorAnswer(name, True)
    if answer.verdict == lib.SHL_UNKNOWN:
        return MonitorAnswer(name, "unknown", why=why(history, answer))
    rows = tuple(int(row) for row in answer.ops if row != lib.SHL_NONE)
    if answer.violation == lib.SHL_QUEUE_TURN:
        return MonitorAnswer(name, False, "", "turn", rows, _turn(history, rows))
    violation = VIOLATIONS[answer.violation]
    if violation == "fresh" and len(rows) == 1:
        rows += failed_enqueue(history, rows[0])
    return MonitorAnswer(name, False, "", violation, rows, REASONS[violation](history, rows))


# --- priorities -----------------------------------------------------------------------------------


def _turns(history: ConcurrentHistory, first: str) -> tuple[Ints, int]:
    """(the turn of what each row puts in, how many there are). Raises ValueError: it has none."""
    argument, turn = history.argument, np.zeros(len(history), dtype=np.int32)
    puts = _means(history, lib.SHL_ENQUEUE)
    forms = np.flatnonzero(puts & (argument.kind == FORM))
    whole = np.flatnonzero(puts & (argument.kind == INTEGER))
    by_form = {
        number: priority_of(argument.forms[number])
        for number in np.unique(argument.number[forms]).tolist()
    }
    known, place = np.unique(argument.number[whole], return_inverse=True)
    every = sorted({*known.tolist(), *by_form.values()}, reverse=first == "highest")
    turn_of = {priority: at for at, priority in enumerate(every)}
    turn[whole] = np.array([turn_of[each] for each in known.tolist()], dtype=np.int32)[place]
    turn[forms] = [turn_of[by_form[number]] for number in argument.number[forms].tolist()]
    return turn, max(1, len(every))


def _share_a_turn(history: ConcurrentHistory, turn: Ints) -> bool:
    put = turn[_means(history, lib.SHL_ENQUEUE)]
    return len(np.unique(put)) < len(put)


def _means(history: ConcurrentHistory, code: int) -> npt.NDArray[np.bool_]:
    """The rows that put something in, or take it out, and did not fail."""
    names = [MEANS.get(name, lib.SHL_OTHER_F) == code for name in history.f.names]
    means = np.array(names, dtype=np.bool_)[history.f.codes]
    found: npt.NDArray[np.bool_] = means & (history.type != FAIL)
    return found


def _turn(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    taken = repr(history.result.get(rows[0]))
    others = [repr(history.argument.get(row)) for row in rows[1:]]
    if len(others) == 1:
        return (
            f"message {taken} was dequeued although message {others[0]}, whose turn came first,"
            " was there"
        )
    return (
        f"message {taken} was dequeued although at every moment of its dequeue a message was there"
        f" whose turn came first: {', then '.join(others)}"
    )


# --- stacks ---------------------------------------------------------------------------------------


def _pops_by_push(history: ConcurrentHistory) -> dict[int, int]:
    known = (history.ret != NEVER) & (history.result.kind != NOTHING)
    pops = np.flatnonzero(_means(history, lib.SHL_DEQUEUE) & known)
    by_value = {exact(history.result.get(row)): row for row in pops.tolist()}
    pushes = np.flatnonzero(_means(history, lib.SHL_ENQUEUE)).tolist()
    values = ((row, exact(history.argument.get(row))) for row in pushes)
    return {row: by_value[value] for row, value in values if value in by_value}


def _crashed_pops(history: ConcurrentHistory) -> list[int]:
    rows = _means(history, lib.SHL_DEQUEUE) & (history.ret == NEVER)
    return np.flatnonzero(rows).tolist()


def _with_pops(pushes: list[int], popped: dict[int, int]) -> list[int]:
    return [*pushes, *(popped[push] for push in pushes if push in popped)]


def _nested(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    """Why none of these values can have been the lowest: each has another below it, or above."""
    popped = _pops_by_push(history)
    pushes = [row for row in rows if _means(history, lib.SHL_ENQUEUE)[row]]
    facts = [_not_lowest(history, push, pushes, popped) for push in pushes]
    values = [repr(history.argument.get(push)) for push in pushes]
    return (
        f"the stack can't have been empty while messages {', '.join(values[:-1])} and {values[-1]}"
        f" were on it, so one of them was pushed first and popped last; but {'; '.join(facts)}"
    )


def _not_lowest(
    history: ConcurrentHistory, push: int, pushes: list[int], popped: dict[int, int]
) -> str:
    value = repr(history.argument.get(push))
    for other in pushes:
        if history.ret[other] < history.call[push]:
            return f"{value} was pushed after {history.argument.get(other)!r}"
    for other in pushes:
        if push in popped and other not in popped and other != push:
            return f"{value} was popped, and {history.argument.get(other)!r} never was"
        if push not in popped or other not in popped:
            continue
        if history.ret[popped[push]] < history.call[popped[other]]:
            return f"{value} was popped before {history.argument.get(other)!r}"
    return f"{value} was not"
