"""The general search on histories: any model, one answer for each key.

A small history is searched where it stands, with a table of its model that is kept from one history
to the next: nothing is asked twice, no thread is started. What takes longer than a moment is
searched again with tables and threads of its own, under the caller's limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from shalott.checkers.engine import Budget, CData, ffi, lib, new_budget, run_all
from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.transitions import OPERATIONS, Encoded, Transitions
from shalott.checkers.models import BUILT_IN_MODELS, Model, model_name, own_name
from shalott.checkers.monitors.monitor import first_true
from shalott.core.errors import UsageError

QUICK_OPERATIONS: Final = 2000
QUICK_S: Final = 0.005
KEPT_MODELS: Final = 16
KEPT_BYTES: Final = 16 * 1024**2  # of a table that is kept, at most


class Quick(NamedTuple):
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
    budget: Budget

    @classmethod
    def of(cls, history: ConcurrentHistory, model: Model, budget: Budget) -> GeneralSearch:
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

        With ``briefly_s`` no key is searched for longer; else they take turns.
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
    f, place = history.f.names[history.f.codes[row]], f"{history.place_name} {history.place[row]}"
    if own_name(transitions.model) and isinstance(raised, ValueError):
        raise UsageError(f"model {name} can't read {f}, {place}: {raised}") from raised
    is_unhashable = isinstance(raised, TypeError) and "unhashable" in str(raised)
    remedy = ": a state must be hashable, such as a tuple or a frozenset" if is_unhashable else ""
    raise UsageError(
        f"model {name} failed on {f}, {place}: {type(raised).__name__}: {raised}{remedy}"
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


# One key's operations, searched to the end, or in turns with those of other keys.
#
# The general search is fast or takes for ever, and it is not known which beforehand. So no key is
# waited for while another has not had as long: each works for a moment, then each for four
# moments, and so on, and goes on where it paused. One that is invalid is found after at most a
# small multiple of what it takes alone, times the number of keys that take longer, however hard
# those are.

CAUSES: Final = {
    lib.SHL_TIME: "time",
    lib.SHL_MEMORY: "memory",
    lib.SHL_CANCELLED: "cancelled",
    lib.SHL_MODEL_FAILED: "model",
    lib.SHL_NOT_THIS_MONITOR: "too wide",
}
METHODS: Final = {
    lib.SHL_BY_DEPTH: "depth first",
    lib.SHL_BY_WINDOW: "window",
    lib.SHL_BY_LAYERS: "layers",
}
FOUND: Final = ffi.typeof("shl_found *")

FIRST_TURN_NS: Final = 4_000_000
LONGER: Final = 4  # times; each turn than the one before


class Found(NamedTuple):
    """What the search found about one key's operations."""

    key: int  # its code
    valid: bool | str
    cause: str = ""  # of "unknown"
    method: str = ""
    stuck: int | None = None  # the row at whose return no configuration was left
    is_first: bool = False  # no earlier return has that property
    reached: int = 0  # returns that some order explained
    returns: int = 0


def search_key(encoded: Encoded, key: int, table: CData, budget: Budget) -> Found:
    """One key's operations, by every method."""
    operations = encoded.operations(key)
    if operations.n == 0:
        return Found(key, True, method="nothing to order")
    found = ffi.new(FOUND)
    lib.shl_search(operations, table, lib.SHL_BY_ALL, budget, found)
    return as_found(encoded, key, found)


def as_found(encoded: Encoded, key: int, found: CData) -> Found:
    if found.verdict == lib.SHL_VALID:
        return Found(key, True, method=METHODS.get(found.method, ""))
    unknown = found.verdict == lib.SHL_UNKNOWN
    stuck = None
    if found.stuck != lib.SHL_NONE:
        stuck = encoded.row(key, found.stuck)
    return Found(
        key,
        "unknown" if unknown else False,
        cause=CAUSES.get(found.cause, "") if unknown else "",
        method=METHODS.get(found.method, ""),
        stuck=stuck,
        is_first=bool(found.first),
        reached=found.reached,
        returns=found.returns,
    )


class Turns:
    """Keys that are searched in turns, on threads, under one budget.

    A key that the memory limit stops gives back what it holds, and is searched again when no other
    key holds anything.
    """

    def __init__(
        self,
        encoded: Encoded,
        table: CData,
        budget: Budget,
        threads: int,
        hear: Callable[[Found], bool],
    ) -> None:
        self._encoded, self._table, self._budget = encoded, table, budget
        self._threads, self._hear = threads, hear
        self._searches: dict[int, _Search] = {}
        self._refused: list[int] = []  # for lack of memory
        self._is_over = False

    def take(self, keys: Sequence[int]) -> None:
        """``hear`` is told of each; True ends it. Raises KeyboardInterrupt, and MemoryError."""
        pending, turn_ns = list(keys), FIRST_TURN_NS
        try:
            while pending and not self._is_over:
                limited = len(pending) > self._threads
                self._round(pending, turn_ns if limited else 0, may_retry=len(keys) > 1)
                pending = [key for key in pending if key in self._searches]
                turn_ns *= LONGER
            for key in self._refused:
                if not self._is_over:
                    self._round([key], 0, may_retry=False)
        finally:
            for search in self._searches.values():
                search.close()
            self._searches.clear()

    def _round(self, keys: Sequence[int], turn_ns: int, may_retry: bool) -> None:
        def work(number: int) -> bool:
            key = keys[number]
            search = self._searches.get(key) or self._opened(key)
            if search is None:
                found = Found(key, True, method="nothing to order")
            elif search.has_ended(turn_ns):
                found = as_found(self._encoded, key, search.found)
                del self._searches[key]
                search.close()
            else:
                return False
            if found.cause == CAUSES[lib.SHL_MEMORY] and may_retry and not self._budget.stopped:
                self._refused.append(key)
                return False
            if self._hear(found):
                self._is_over = True
            return self._is_over

        run_all(len(keys), work, self._threads, self._budget)

    def _opened(self, key: int) -> _Search | None:
        """None: the key has no operation that matters."""
        operations = self._encoded.operations(key)
        if operations.n == 0:
            return None
        search = self._searches[key] = _Search(operations, self._table, self._budget)
        return search


class _Search:
    """A search that can pause. ``close`` it."""

    def __init__(self, operations: CData, table: CData, within: CData) -> None:
        self._budget = new_budget()
        self._budget.within = within
        self._borrowed = (operations, table, within)  # they must outlive it
        self._handle = lib.shl_search_begin(operations, table, lib.SHL_BY_ALL, self._budget)
        self.found = ffi.new(FOUND)
        self.found.verdict, self.found.stuck = lib.SHL_UNKNOWN, lib.SHL_NONE
        self.found.cause = lib.SHL_DECIDED if self._handle else lib.SHL_MEMORY

    def has_ended(self, turn_ns: int) -> bool:
        """Works for so long, or a little longer; 0: until it ends."""
        if not self._handle:
            return True
        until_ns = lib.shl_now_ns() + turn_ns if turn_ns else 0
        return bool(lib.shl_search_go(self._handle, until_ns, self.found))

    def close(self) -> None:
        within = self._borrowed[-1]
        within.steps += self._budget.steps
        lib.shl_search_end(self._handle, self._budget)
        self._handle = ffi.NULL
