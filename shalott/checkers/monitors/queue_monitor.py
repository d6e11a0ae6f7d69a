"""FIFO and unordered queues with distinct values, decided in linear time with crashed operations.

The monitors are C (engine/monitor_queues.c has the theory); they read the history's columns as they
are. What they can't decide: a value enqueued twice, an enqueue of nothing, an f that is no queue's.

Violations, and the rows that prove them, in order:

- ``fresh``: a dequeue; the enqueue of its value, if there was one, called too late or failed
- ``repeated``: the first dequeue, the second, the enqueue
- ``order`` (FIFO): enqueue a, dequeue a, enqueue b, dequeue b: b overtook a
- ``lost`` (FIFO): enqueue a, enqueue b, dequeue b: b overtook a, which none is known to have got
- ``empty``: a dequeue that found nothing; one to three enqueues whose values were there meanwhile
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, column, ffi, lib
from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import FAIL, FORM, NEVER, ConcurrentHistory, Values
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.collections import QUEUE, PriorityQueue, Stack
from shalott.checkers.monitors.monitor import (
    STOPPED_BY,
    MonitorAnswer,
    bisected,
    close_ranks,
    first_true,
)

MEANS: Final = {
    name: lib.SHL_ENQUEUE if meaning.f in ("enqueue", "push") else lib.SHL_DEQUEUE
    for name, meaning in {**Stack.meanings, **PriorityQueue.meanings, **QUEUE}.items()
}
VIOLATIONS: Final = {
    lib.SHL_QUEUE_FRESH: "fresh",
    lib.SHL_QUEUE_REPEATED: "repeated",
    lib.SHL_QUEUE_ORDER: "order",
    lib.SHL_QUEUE_LOST: "lost",
    lib.SHL_QUEUE_EMPTY: "empty",
}


@dataclass(frozen=True, slots=True)
class QueueMonitor:
    name: str
    check: Callable[[CData, int, Budget, CData], None]  # of the engine

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        try:
            encoded = encode(history, budget)
        except MemoryError:
            return MonitorAnswer(self.name, "unknown", why=STOPPED_BY[budget.stopped])
        answer = ffi.new("shl_answer *")
        self.check(encoded.columns, NEVER, budget, answer)
        if answer.verdict == lib.SHL_VALID:
            return MonitorAnswer(self.name, True)
        if answer.verdict == lib.SHL_UNKNOWN:
            return MonitorAnswer(self.name, "unknown", why=why(history, answer))
        violation = VIOLATIONS[answer.violation]
        rows = tuple(row for row in answer.ops if row != lib.SHL_NONE)
        if violation == "fresh" and len(rows) == 1:
            rows += failed_enqueue(history, rows[0])
        reason = REASONS[violation](history, rows)
        return MonitorAnswer(self.name, False, "", violation, rows, reason)

    def shortest_prefix(
        self, history: ConcurrentHistory, answer: MonitorAnswer, budget: Budget
    ) -> int:
        """The rank of its last event; see checkers.linearizability.monitors.base. Encodes once,
        then only asks.
        """
        encoded = encode(history, budget)
        found = ffi.new("shl_answer *")

        def is_invalid(rank: int) -> bool | None:
            self.check(encoded.columns, rank, budget, found)
            unknown = found.verdict == lib.SHL_UNKNOWN
            return None if unknown else bool(found.verdict == lib.SHL_INVALID)

        proof = encoded.ret[list(answer.operations)]
        last = int(proof[proof != NEVER].max(initial=0))
        # Dequeues under way at the proof's end may yet explain a message that is missing there.
        if answer.violation == "lost" and is_invalid(last - 1) is False:
            rank = bisected(last - 1, _settled(history, encoded.ret, last), is_invalid)
        elif answer.violation in ("lost", "empty"):
            rank = first_true(encoded.columns.ranks, last, is_invalid)
        else:
            rank = first_true(last + 1, last - 1, is_invalid)
        return int(history.ret[np.flatnonzero(encoded.ret == rank)[0]])


FIFO: Final = QueueMonitor("FIFO queue monitor", lib.shl_check_fifo)
BAG: Final = QueueMonitor("unordered queue monitor", lib.shl_check_bag)


@dataclass(frozen=True, slots=True)
class Encoded:
    """What the engine reads, and what keeps the memory behind it alive."""

    columns: CData  # shl_queue_history *
    ret: npt.NDArray[np.int32]  # in close ranks
    kept: tuple[CData, ...]


def encode(history: ConcurrentHistory, budget: Budget) -> Encoded:
    """Points the engine at the history's own columns: nothing is copied that is in shape."""
    call, ret, ranks = close_ranks(history, budget)
    result, forms = _results_like_arguments(history.argument, history.result)
    columns = ffi.new("shl_queue_history *")
    means = bytes(MEANS.get(name, lib.SHL_OTHER_F) for name in history.f.names) or b"\0"
    columns.n, columns.ranks, columns.forms = len(history), ranks, forms
    columns.call = kept_call = column(call)
    columns.ret = kept_ret = column(ret)
    columns.type = kept_type = column(history.type)
    columns.f = kept_f = column(history.f.codes)
    columns.means = kept_means = ffi.from_buffer("uint8_t[]", means)
    columns.argument_kind = kept_argument_kind = column(history.argument.kind)
    columns.argument = kept_argument = column(history.argument.number)
    columns.result_kind = kept_result_kind = column(history.result.kind)
    columns.result = kept_result = column(result)
    kept = (kept_call, kept_ret, kept_type, kept_f, kept_means, kept_argument_kind)
    return Encoded(columns, ret, (*kept, kept_argument, kept_result_kind, kept_result))


def _results_like_arguments(argument: Values, result: Values) -> tuple[npt.NDArray[np.int64], int]:
    """The results' numbers with the forms numbered as the arguments', and how many forms."""
    if result.forms is argument.forms or not result.forms:
        return result.number, len(argument.forms)
    is_form = result.kind == FORM
    used, place = np.unique(result.number[is_form], return_inverse=True)
    number_of = {
        exact(argument.forms[number]): number
        for number in np.unique(argument.number[argument.kind == FORM]).tolist()
    }
    count = len(argument.forms)
    renumbered = np.empty(len(used), dtype=np.int64)
    for at, number in enumerate(used.tolist()):
        renumbered[at] = number_of.get(exact(result.forms[number]), count + at)
    numbers = result.number.copy()
    numbers[is_form] = renumbered[place]
    return numbers, count


def _settled(history: ConcurrentHistory, ret: npt.NDArray[np.int32], rank: int) -> int:
    """The rank by which all dequeues that were called before the event ``rank`` have returned.

    A message that is lost in the whole history is lost then: dequeues that crashed are the only
    ones left that may have taken it before that event.
    """
    called = ret[: int(np.count_nonzero(history.call <= history.ret[ret == rank][0]))]
    return int(called[called != NEVER].max())


# --- what is said about it ------------------------------------------------------------------------


def why(history: ConcurrentHistory, answer: CData) -> str:
    if answer.cause != lib.SHL_NOT_THIS_MONITOR:
        return STOPPED_BY[answer.cause]
    row = answer.ops[0]
    if answer.violation == lib.SHL_QUEUE_TWICE:
        return f"value {value_text(history.argument.get(row))} was enqueued twice"
    if answer.violation == lib.SHL_QUEUE_NOTHING:
        return "an enqueue had no value"
    if answer.violation == lib.SHL_QUEUE_CRASHED:
        return "a dequeue with an unknown result may have taken one of several values"
    return f"{history.f.names[history.f.codes[row]]!r} is not an operation of a queue"


def failed_enqueue(history: ConcurrentHistory, dequeue: int) -> tuple[int, ...]:
    """The enqueue of what a dequeue returned, if there is one and it failed."""
    value = exact(history.result.get(dequeue))
    means = np.array([MEANS.get(name) == lib.SHL_ENQUEUE for name in history.f.names])
    for row in np.flatnonzero((history.type == FAIL) & means[history.f.codes]).tolist():
        if exact(history.argument.get(row)) == value:
            return (row,)
    return ()


def _fresh(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    value = history.result.get(rows[0])
    if len(rows) == 1:
        return f"message {value_text(value)} was dequeued but never enqueued"
    if history.type[rows[1]] == FAIL:
        return f"message {value_text(value)} was dequeued although its enqueue failed"
    return f"message {value_text(value)} was dequeued before its enqueue was called"


def _repeated(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    return f"message {value_text(history.result.get(rows[0]))} was dequeued twice but enqueued once"


def _order(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    a, b = (value_text(history.argument.get(row)) for row in (rows[0], rows[2]))
    return (
        f"message {b} was dequeued before message {a} although {a} was enqueued first"
        " and had not been dequeued"
    )


def _lost(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    a, b = (value_text(history.argument.get(row)) for row in rows[:2])
    reason = (
        f"message {b} was dequeued although message {a} was enqueued first"
        " and had not been dequeued"
    )
    means = np.array([MEANS.get(name) == lib.SHL_DEQUEUE for name in history.f.names])
    unknown = (history.ret == NEVER) & (history.type != FAIL) & means[history.f.codes]
    if unknown.any():
        reason += "; no dequeue with an unknown result is left to have taken it in time"
    return reason


def _empty(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    values = [value_text(history.argument.get(row)) for row in rows[1:]]
    if len(values) == 1:
        return f"a dequeue found the queue empty although message {values[0]} was in it"
    there = ", then ".join(values)
    return f"a dequeue found the queue empty although there was a message in it: {there}"


REASONS: Final = {
    "fresh": _fresh,
    "repeated": _repeated,
    "order": _order,
    "lost": _lost,
    "empty": _empty,
}
