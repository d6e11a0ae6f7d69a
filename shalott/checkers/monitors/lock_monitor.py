"""Locks and semaphores, with and without owners: decided in (near-)linear time.

The monitors are C (engine/monitor_lock.c has the theory). No values are needed to be distinct, and
crashed acquires and releases are counted exactly. What they can't decide: for locks with owners, a
process that had two operations open at once, or went on after one crashed; a semaphore whose
operations ask for different numbers of permits.

Violations, and the rows that prove them, in order:

- ``held`` (mutex, semaphore): an acquire that can't have been possible; the last one before it
- ``free`` (mutex, semaphore): a release that can't have been possible; the last one before it, if
  any
- ``overlap``: two acquires that held the lock at once; the release of the first, if there is one
- ``token``: two acquires; the second got a token that is not greater
- ``reentered``: an acquire by who held it (as often as may be); the one that began the hold
- ``not-owned``: a release by a process that did not hold the lock
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, column, ffi, lib
from shalott.checkers.history.concurrent import FORM, INTEGER, NOTHING, ConcurrentHistory
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.locks import LOCK, token_of
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.monitor_columns import (
    DROPPED,
    Encoded,
    Reason,
    Undecided,
    answered,
    codes,
    dense,
    encoded,
)

_CODES: Final = {"acquire": lib.SHL_LOCK_ACQUIRE, "release": lib.SHL_LOCK_RELEASE}
MEANS: Final = {name: _CODES[meaning.f] for name, meaning in LOCK.items()}
VIOLATIONS: Final = {
    lib.SHL_LOCK_HELD: "held",
    lib.SHL_LOCK_FREE: "free",
    lib.SHL_LOCK_OVERLAP: "overlap",
    lib.SHL_LOCK_TOKEN: "token",
    lib.SHL_LOCK_REENTERED: "reentered",
    lib.SHL_LOCK_NOT_OWNED: "not-owned",
}


@dataclass(frozen=True, slots=True)
class MutexMonitor:
    """A monitor (checkers.linearizability.monitors.base) for models_locks.Mutex: anyone may release
    it.
    """

    name: ClassVar[str] = "mutex monitor"

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        def check(answer: CData) -> None:
            f = codes(history, MEANS)
            columns = encoded(history, f, None, None, 0, budget)
            lib.shl_check_anonymous_lock(columns.columns, 1, budget, answer)

        return answered(self.name, history, budget, check, VIOLATIONS, _REASONS, _why, _who)


@dataclass(frozen=True, slots=True)
class SemaphoreMonitor:
    """A monitor for models_locks.Semaphore, if all ask for the same number of permits."""

    name: ClassVar[str] = "semaphore monitor"

    permits: int = 1

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        def check(answer: CData) -> None:
            f = codes(history, {name: MEANS[name] for name in ("acquire", "release")})
            permits = self.permits // _amount(history, f != DROPPED)
            columns = encoded(history, f, None, None, 0, budget)
            lib.shl_check_anonymous_lock(columns.columns, permits, budget, answer)

        return answered(self.name, history, budget, check, VIOLATIONS, _REASONS, _why, _who)


def _amount(history: ConcurrentHistory, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> int:
    """How many permits every operation asks for."""
    kind, number = history.argument.kind[rows], history.argument.number[rows]
    if (kind == FORM).any():
        raise Undecided("an operation asks for something else than a number of permits")
    amounts = np.unique(np.where(kind == NOTHING, 1, number)).tolist()
    if len(amounts) > 1:
        raise Undecided("operations ask for different numbers of permits")
    if amounts and amounts[0] < 1:
        raise Undecided("an operation asks for no permits")
    return amounts[0] if amounts else 1


@dataclass(frozen=True, slots=True)
class OwnedLockMonitor:
    """A monitor for models_locks.OwnerLock (limit 1), ReentrantLock, and FencedLock (fenced)."""

    name: str
    limit: int = 1  # how often its owner may hold it at once; 0: any number of times
    fenced: bool = False

    def __call__(self, history: ConcurrentHistory, budget: Budget) -> MonitorAnswer:
        def check(answer: CData) -> None:
            columns, tokens, known = self.encode(history, budget)
            lib.shl_check_owned_lock(columns.columns, self.limit, tokens, known, budget, answer)

        return answered(self.name, history, budget, check, VIOLATIONS, _REASONS, _why, _who)

    def encode(self, history: ConcurrentHistory, budget: Budget) -> tuple[Encoded, CData, CData]:
        f = codes(history, MEANS)
        processes, count = dense(history.process.astype(np.int64), None, budget)
        columns = encoded(history, f, processes, None, count, budget)
        if not self.fenced:
            return columns, ffi.NULL, ffi.NULL
        result, known = history.result, history.result.kind == INTEGER
        numbers, is_form = result.number, (f == lib.SHL_LOCK_ACQUIRE) & (result.kind == FORM)
        if is_form.any():
            tokens = [_fitting(token_of(form)) for form in result.forms]
            used = np.unique(numbers[is_form]).tolist()
            if None in [tokens[at] for at in used]:
                raise Undecided("an acquire returned a token that is not an integer")
            by_form = np.array([token or 0 for token in tokens], dtype=np.int64)
            numbers, known = numbers.copy(), known | is_form
            numbers[is_form] = by_form[numbers[is_form]]
        return columns, column(numbers), column(known.view(np.uint8))


def _fitting(token: int | None) -> int | None:
    return token if token is not None and -(2**63) <= token < 2**63 else None


OWNER_LOCK: Final = OwnedLockMonitor("owner lock monitor")
FENCED_LOCK: Final = OwnedLockMonitor("fenced lock monitor", fenced=True)


def reentrant_lock(limit: int) -> OwnedLockMonitor:
    return OwnedLockMonitor("reentrant lock monitor", limit)


# --- what is said about it ------------------------------------------------------------------------


def _who(history: ConcurrentHistory, row: int) -> str:
    return f"process {history.process[row]}"


def _why(history: ConcurrentHistory, violation: int, rows: tuple[int, ...]) -> str:
    return f"{_who(history, rows[0])} had two operations open, or went on after one crashed"


def _held(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    acquire = f"{_who(history, rows[0])} acquired"
    if len(rows) == 1:
        return f"{acquire} although there was nothing to acquire"
    return (
        f"{acquire} although nothing was free: {_who(history, rows[1])} had acquired last,"
        " and no release that was called by then is left to have come between"
    )


def _free(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    release = f"{_who(history, rows[0])} released"
    if len(rows) == 1:
        return f"{release} although no acquire that was called by then is left to have come before"
    return (
        f"{release} although nothing was held: {_who(history, rows[1])} had released last,"
        " and no acquire that was called by then is left to have come between"
    )


def _overlap(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    first, second = _who(history, rows[0]), _who(history, rows[1])
    until = "never called release" if len(rows) == 2 else "had not called release yet"
    return (
        f"{first} and {second} held the lock at once: {second}'s acquire returned when {first}'s"
        f" had and {first} {until}"
    )


def _token(history: ConcurrentHistory, rows: tuple[int, ...]) -> str:
    before, after = (value_text(history.result.get(row)) for row in rows)
    return (
        f"{_who(history, rows[1])} acquired the lock with token {after} after"
        f" {_who(history, rows[0])} had held it with token {before}"
    )


_REASONS: Final[dict[str, Reason]] = {
    "held": _held,
    "free": _free,
    "overlap": _overlap,
    "token": _token,
    "reentered": "{0} acquired the lock although it held it already",
    "not-owned": "{0} released the lock although it did not hold it",
}
