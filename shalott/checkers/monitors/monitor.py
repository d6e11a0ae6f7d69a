"""What every monitor is: a checker for one kind of object that answers in (near-)linear time.

A monitor is given the history of one object (one key) and either decides it or says in a clause why
it can't; it never guesses. An invalid answer names the operations that prove it. The shortest
prefix that is not linearizable is found here for any monitor, by asking it about prefixes:
linearizability is prefix-closed (Herlihy & Wing 1990), so prefixes are valid up to some event and
invalid from there on. The search starts at the last event of the proof and gallops away from it,
since the earliest proof is mostly near: few prefixes are checked, and none much longer than needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, column, lib, ranks
from shalott.checkers.history.concurrent import FAIL, INFO, NEVER, OK, ConcurrentHistory
from shalott.checkers.models import Model, meanings_of

# Why the engine stopped, as ``MonitorAnswer.why`` says it.
STOPPED_BY: Final = {lib.SHL_TIME: "time", lib.SHL_MEMORY: "memory", lib.SHL_CANCELLED: "cancelled"}


@dataclass(frozen=True, slots=True)
class MonitorAnswer:
    monitor: str  # the name that is reported: "FIFO queue monitor"
    valid: bool | str  # True, False or "unknown"
    why: str = ""  # unknown: one clause ("value 7 was enqueued twice"), or time, memory, cancelled
    violation: str = (
        ""  # invalid: a word (order, lost, repeated, fresh, empty, stale, overlap, ...)
    )
    operations: tuple[int, ...] = ()  # invalid: the rows that prove it; the violation says in order
    reason: str = ""  # invalid: one sentence in the domain's words


class Monitor(Protocol):
    """Checks the history of one object. ``fail`` rows are still in it; the monitor drops them.

    ``budget`` is an engine ``shl_budget *`` (checkers.engine.new_budget).
    """

    @property
    def name(self) -> str: ...

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer: ...


@runtime_checkable
class PrefixMonitor(Monitor, Protocol):
    """A monitor that finds the shortest invalid prefix faster than by being asked about many.

    It decides every prefix of a history that it found to be invalid.
    """

    def shortest_prefix(
        self, history: ConcurrentHistory, answer: MonitorAnswer, budget: Budget
    ) -> int: ...


def cut(history: ConcurrentHistory, rank: int) -> ConcurrentHistory:
    """The history up to and including the event ``rank``; ranks are unchanged.

    What was called later is gone; what had not completed by then counts as crashed. An operation
    that failed later is gone too: it had no effect, and was not observed to fail yet.
    """
    kept = history.take(slice(int(np.searchsorted(history.call, rank, side="right"))))
    late = kept.ret > rank
    gone = late & (kept.type == FAIL)
    if gone.any():
        kept, late = kept.take(~gone), late[~gone]
    return replace(
        kept,
        type=np.where(late, np.uint8(INFO), kept.type),
        ret=np.where(late, np.int32(NEVER), kept.ret),
    )


def close_ranks(
    history: ConcurrentHistory, budget: Budget
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """(call, ret, how many ranks): the history's own, or without the gaps if they are wide.

    One key's operations among many have few of the ranks, and monitors keep arrays over all of
    them. Raises MemoryError if the budget's limit is reached.
    """
    if not len(history):
        return history.call, history.ret, 0
    last = max(int(history.call[-1]), lib.shl_last_return(len(history), column(history.ret)))
    if last < 4 * len(history) + 64:
        return history.call, history.ret, last + 1
    never = np.iinfo(np.int64).max
    complete = np.where(history.ret == NEVER, never, history.ret.astype(np.int64))
    return ranks(history.call.astype(np.int64), complete, budget)


def shortest_prefix(
    monitor: Monitor, history: ConcurrentHistory, answer: MonitorAnswer, budget: Budget
) -> int:
    """The smallest rank such that ``cut(history, rank)`` is invalid, given an invalid ``answer``.

    It is the rank of a completion. If the budget runs out, the smallest rank that is known to do.
    """
    if isinstance(monitor, PrefixMonitor):
        return monitor.shortest_prefix(history, answer, budget)
    completions = np.sort(history.ret[history.ret != NEVER])
    proof = history.ret[list(answer.operations)]
    guess = int(np.searchsorted(completions, proof[proof != NEVER].max(initial=0)))
    found = first_true(
        len(completions),
        guess,
        lambda at: _is_invalid(monitor(cut(history, int(completions[at])), budget)),
    )
    return int(completions[found])


def _is_invalid(answer: MonitorAnswer) -> bool | None:
    """A prefix that the monitor can't decide is taken for valid: another one is known not to be."""
    if answer.valid == "unknown":
        return None if answer.why in STOPPED_BY.values() else False
    return not answer.valid


def first_true(count: int, guess: int, ask: Callable[[int], bool | None]) -> int:
    """The first of ``count`` places where ``ask`` is true; it stays true, and is true at the last.

    Gallops away from ``guess``, then bisects. None (not known) ends it: the first known to be true.
    """
    low, high = -1, count - 1  # false (or before the first) at low, true at high
    at, step = guess, 1
    was_true = was_false = False
    while high - low > 1:
        at = min(max(at, low + 1), high - 1)
        answer = ask(at)
        if answer is None:
            break
        if answer:
            high, was_true = at, True
        else:
            low, was_false = at, True
        if was_true and was_false:
            return bisected(low, high, ask)
        at = high - step if answer else low + step
        step *= 2
    return high


def bisected(low: int, high: int, ask: Callable[[int], bool | None]) -> int:
    """The first place above ``low`` where ``ask`` is true; it is not at low, and is at ``high``."""
    while high - low > 1:
        at = (low + high) // 2
        answer = ask(at)
        if answer is None:
            break
        low, high = (low, at) if answer else (at, high)
    return high


# The shortest prefix that is not linearizable, without hindsight.
#
# The general search gets stuck at a return. It knows then what the operations under way will
# return later, and a prefix does not: there an append may still get any offset. So the prefix
# that ends with that return may have an order that hindsight excludes, and the shortest without
# one be longer. A monitor judges prefixes as such, but can't decide each. Both are put right
# here, by checking prefixes.

Decide = Callable[[ConcurrentHistory], bool | None]  # is it not linearizable? None: not known


def without_hindsight(
    history: ConcurrentHistory, model: Model, rank: int, is_invalid: Decide
) -> int:
    """The first event, from ``rank`` on, whose prefix is invalid; ``rank`` if that is not known.

    ``history`` is of one object and invalid; no prefix that ends before ``rank`` is.
    """
    if not _settles_later(history, model, rank):
        return rank
    completions = np.sort(history.ret[history.ret != NEVER])
    first = int(np.searchsorted(completions, rank))
    known = [True]

    def ask(at: int) -> bool | None:
        answer = is_invalid(cut(history, int(completions[first + at])))
        known[0] = known[0] and answer is not None
        return answer

    found = first_true(len(completions) - first, 0, ask)
    return int(completions[first + found]) if known[0] else rank


def _settles_later(history: ConcurrentHistory, model: Model, rank: int) -> bool:
    """Whether something under way at ``rank`` returned later what narrows down what it did."""
    meanings = meanings_of(model)
    if meanings is not None and not any(
        meanings[name].settles for name in history.f.names if name in meanings
    ):
        return False
    later = (history.call < rank) & (history.ret > rank)
    later &= (history.ret != NEVER) & (history.type == OK)
    if meanings is None:
        return bool(later.any())
    names = {history.f.names[code] for code in history.f.codes[later].tolist()}
    return any(meanings[name].settles for name in names)
