"""One key's operations, searched to the end, or in turns with those of other keys.

The general search is fast or takes for ever, and nobody knows which beforehand. So no key is waited
for while another has not had as long: each works for a moment, then each for four moments, and so
on, and goes on where it paused. One that is invalid is found after at most a small multiple of what
it takes alone, times the number of keys that take longer, however hard those are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from shalott.checkers.engine import ffi, lib, new_budget
from shalott.checkers.linearizability.deciding.transitions import Encoded
from shalott.checkers.linearizability.deciding.workers import run_all

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


def search_key(encoded: Encoded, key: int, table: Any, budget: Any) -> Found:
    """One key's operations, by every method."""
    operations = encoded.operations(key)
    if operations.n == 0:
        return Found(key, True, method="nothing to order")
    found = ffi.new(FOUND)
    lib.shl_search(operations, table, lib.SHL_BY_ALL, budget, found)
    return as_found(encoded, key, found)


def as_found(encoded: Encoded, key: int, found: Any) -> Found:
    """The engine's answer about one key."""
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
        table: Any,
        budget: Any,
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

    def __init__(self, operations: Any, table: Any, within: Any) -> None:
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
