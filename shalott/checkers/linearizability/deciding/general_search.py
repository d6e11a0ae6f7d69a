"""The general search on histories: any model, one answer for each key.

A small history is searched where it stands, with a table of its model that is kept from one history
to the next: nothing is asked twice, no thread is started. Whatever takes longer than a moment is
searched again with tables and threads of its own, under the caller's limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from shalott.checkers.engine import ffi, lib, new_budget
from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.deciding.key_search import FOUND, Found, Turns, search_key
from shalott.checkers.linearizability.deciding.transitions import OPERATIONS, Encoded, Transitions
from shalott.checkers.linearizability.deciding.workers import run_all
from shalott.checkers.linearizability.monitors.base import first_true
from shalott.checkers.models import BUILT_IN_MODELS, Model, model_name
from shalott.core.errors import UsageError

QUICK_OPERATIONS: Final = 2000
QUICK_S: Final = 0.005
KEPT_MODELS: Final = 16
KEPT_BYTES: Final = 16 * 1024**2  # of a table that is kept, at most


class Quick(NamedTuple):
    """Every key's answer, up to the first violation."""

    found: list[Found]
    bytes: int
    repeated: str = ""  # the f of an operation that occurs more than once, if it was asked for

    @property
    def is_complete(self) -> bool:
        """Whether a violation's shortest prefix is known."""
        return all(found.valid is True or found.is_first for found in self.found)


def quick_search(
    history: ConcurrentHistory,
    model: Model,
    keys: list[int],
    time_limit_s: float | None,
    only_if_repeated: bool = False,
) -> Quick | None:
    """A small history's answers; None: it takes longer, or is not small.

    ``only_if_repeated``: and None if no operation that changes the state occurs more than once.
    """
    if len(history) > QUICK_OPERATIONS:
        return None
    repeated = ""
    limit_s = QUICK_S if time_limit_s is None else min(QUICK_S, time_limit_s)
    transitions = None
    try:
        transitions = _take_kept(model)
        budget = new_budget(time_limit_s=limit_s, memory_limit_bytes=KEPT_BYTES)
        encoded = transitions.encode(history, budget)
        if only_if_repeated and not (repeated := transitions.repeated(encoded, budget)):
            return None
        table = transitions.table()
        answers = []
        for key in keys:
            answers.append(search_key(encoded, key, table, budget))
            if answers[-1].valid == "unknown":
                _raise_failure(transitions, encoded, history)
                return None
            if answers[-1].valid is False:
                break
        return Quick(answers, int(budget.bytes_peak + transitions.budget.bytes), repeated)
    except MemoryError:
        return None
    finally:
        if transitions is not None:
            _keep(transitions)


@dataclass(slots=True)
class GeneralSearch:
    """A history that takes longer: encoded once, its keys searched on threads. ``close`` it."""

    history: ConcurrentHistory
    encoded: Encoded
    transitions: Transitions
    budget: Any

    @classmethod
    def of(cls, history: ConcurrentHistory, model: Model, budget: Any) -> GeneralSearch:
        """Raises UsageError (the history does not fit the model) and MemoryError (the limit)."""
        transitions = Transitions(model, budget)
        try:
            encoded = transitions.encode(history, budget)
            transitions.table()
        except BaseException:
            transitions.close()
            raise
        return cls(history, encoded, transitions, budget)

    def close(self) -> None:
        self.transitions.close()
        lib.shl_charge(self.budget, -self.encoded.bytes)

    def run(
        self,
        keys: list[int],
        threads: int,
        hear: Callable[[Found], bool],
        briefly_s: float | None = None,
    ) -> None:
        """``hear`` is told what is found, key by key; True ends it. ``keys`` are their codes.

        With ``briefly_s`` no key is searched for longer; else they take turns (key_search.py).
        Raises UsageError if the model raised; KeyboardInterrupt.
        """
        table = self.transitions.table()
        if briefly_s is None:
            Turns(self.encoded, table, self.budget, threads, hear).take(keys)
            _raise_failure(self.transitions, self.encoded, self.history)
            return

        def work(number: int) -> bool:
            budget = self.budget
            if not lib.shl_check_budget(budget):
                budget = new_budget(time_limit_s=briefly_s, memory_limit_bytes=KEPT_BYTES)
            return hear(search_key(self.encoded, keys[number], table, budget))

        run_all(len(keys), work, threads, self.budget)
        _raise_failure(self.transitions, self.encoded, self.history)

    def shortest_prefix(self, found: Found, limit_s: float) -> tuple[int | None, bool]:
        """The row with whose return the key of ``found`` became invalid; whether no earlier one is.

        If the stuck operation is not known to be the first, shorter prefixes are searched, too, for
        at most so long; the shortest that is known then will do.
        """
        rows: list[int | None] = [None]

        def work(number: int) -> bool:
            rows[0] = found.stuck if found.is_first else _first_stuck(self, found)
            return True

        budget, deadline_ns = self.budget, self.budget.deadline_ns
        limit_ns = lib.shl_now_ns() + int(limit_s * 1e9)
        budget.deadline_ns = min(deadline_ns or limit_ns, limit_ns)
        run_all(1, work, 1, budget)
        is_shortest = not budget.stopped
        budget.deadline_ns = deadline_ns
        if budget.stopped == lib.SHL_TIME and (not deadline_ns or lib.shl_now_ns() < deadline_ns):
            budget.stopped = 0
        return rows[0], is_shortest


def _first_stuck(search: GeneralSearch, found: Found) -> int | None:
    """The row whose return ends the shortest prefix of a key that is invalid.

    In a prefix what was not called yet is gone, and what had not returned crashed.
    """
    encoded, table = search.encoded, search.transitions.table()
    row, call, ret = encoded.columns(found.key)
    returns = np.sort(ret[ret != NEVER])
    last = len(returns) - 1
    if found.stuck is not None:
        last = int(np.searchsorted(returns, ret[np.flatnonzero(row == found.stuck)[0]]))
    whole, operations = encoded.operations(found.key), ffi.new(OPERATIONS)
    answer = ffi.new(FOUND)
    operations.call, operations.kind = whole.call, whole.kind

    def is_invalid(at: int) -> bool | None:
        rank = int(returns[at])
        cut = np.where(ret > rank, np.int32(NEVER), ret)
        operations.n, operations.ranks = int(np.searchsorted(call, rank)), rank + 1
        operations.ret = borrowed = ffi.from_buffer("int32_t[]", cut)
        lib.shl_search(operations, table, lib.SHL_BY_ALL, search.budget, answer)
        del borrowed
        unknown = answer.verdict == lib.SHL_UNKNOWN
        return None if unknown else bool(answer.verdict == lib.SHL_INVALID)

    first = first_true(last + 1, max(last - 1, 0), is_invalid)
    return int(row[np.flatnonzero(ret == returns[first])[0]])


def _raise_failure(transitions: Transitions, encoded: Encoded, history: ConcurrentHistory) -> None:
    """Raises what the model raised, with the operation that it was asked about."""
    if transitions.failure is None:
        return
    kind, raised = transitions.failure
    if isinstance(raised, KeyboardInterrupt):
        raise raised
    row = encoded.row_of_kind(kind)
    name = model_name(transitions.model)
    is_unhashable = isinstance(raised, TypeError) and "unhashable" in str(raised)
    remedy = ": a state must be hashable, such as a tuple or a frozenset" if is_unhashable else ""
    raise UsageError(
        f"model {name} failed on {history.f.names[history.f.codes[row]]}, "
        f"{history.place_name} {history.place[row]}: {type(raised).__name__}: {raised}{remedy}"
    ) from raised


_BUILT_IN: Final = frozenset(BUILT_IN_MODELS)
# Tables that are not in use, by what the model prints as; who was used last stands last.
_KEPT: Final[dict[str, Transitions]] = {}


def _take_kept(model: Model) -> Transitions:
    """A built-in model's table as the last small history left it; a new one for any other."""
    name = repr(model) if type(model) in _BUILT_IN else ""
    transitions = _KEPT.pop(name, None)
    return transitions or Transitions(model, new_budget(memory_limit_bytes=KEPT_BYTES), name)


def _keep(transitions: Transitions) -> None:
    """For the next history.

    One that failed or became large is not kept, and of too many the one that was not used for the
    longest time. dict.pop, list(dict) and assignment are atomic, so a table is never used twice at
    once.
    """
    name, budget = transitions.name, transitions.budget
    is_sound = transitions.failure is None and not budget.stopped
    is_small = budget.bytes < KEPT_BYTES // 4
    if name and is_sound and is_small and name not in _KEPT:
        _KEPT[name] = transitions
        if len(_KEPT) > KEPT_MODELS:
            for oldest in list(_KEPT)[:-KEPT_MODELS]:
                if (left := _KEPT.pop(oldest, None)) is not None:
                    left.close()
    else:
        transitions.close()
