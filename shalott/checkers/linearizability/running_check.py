"""One check while it runs: keys, monitors, the general search, limits, and who decided what.

Monitors go first, key by key; what they pass over is encoded together and searched. One budget
covers all of it. The first key that is found to be invalid ends the check.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, lib, new_budget, run_all
from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.explanation import CheckInterrupted, Verdict, Violation
from shalott.checkers.linearizability.general_search import (
    Found,
    GeneralSearch,
    Quick,
    quick_search,
)
from shalott.checkers.models import Model, model_name
from shalott.checkers.monitors.monitor import (
    STOPPED_BY,
    Monitor,
    MonitorAnswer,
    PrefixMonitor,
    cut,
    shortest_prefix,
    without_hindsight,
)
from shalott.checkers.monitors.monitor_choice import (
    choose_conditions,
    choose_monitor,
    wants_distinct,
)
from shalott.core.errors import UsageError

By = Literal["auto", "monitor", "general"]

INLINE_OPERATIONS: Final = 2000  # fewer are not worth a thread for a monitor
MANY_KEYS: Final = 16
SMALL_KEY: Final = 256  # operations
BRIEFLY_S: Final = 0.002  # for each of many small keys
PREFIX_S: Final = 2.0  # to look for a shorter prefix; or as long as the verdict took
GIVING_BACK: Final = 0.02  # of a time limit, kept to give back what a long search filled
QUICK_BYTES: Final = 64 * 1024**2  # under a smaller limit no table is kept for the next history


class Limits(NamedTuple):
    time_s: float | None
    memory_bytes: int | None
    threads: int


class Part(NamedTuple):
    key: int  # its code
    rows: npt.NDArray[np.int64] | None  # None: all of them, there is one key

    def of(self, history: ConcurrentHistory) -> ConcurrentHistory:
        return history if self.rows is None else history.take(self.rows)

    def row(self, row: int) -> int:
        """A row of the part as one of the whole."""
        return row if self.rows is None else int(self.rows[row])


def judge(
    history: ConcurrentHistory,
    model: Model,
    limits: Limits,
    *,
    by: By = "auto",
    find_prefix: bool = False,
) -> Verdict:
    """The verdict on a history with the model's own f names.

    Raises UsageError, and CheckInterrupted on Ctrl-C.
    """
    running = RunningCheck(history, model, limits)
    try:
        running.run(by, find_prefix)
    except KeyboardInterrupt:
        running.cause = "cancelled"
        raise CheckInterrupted(running.verdict()) from None
    except MemoryError:
        running.cause = "memory"
    return running.verdict()


@dataclass(slots=True)
class RunningCheck:
    """``run`` it once, then ask for its ``verdict``, which there is also if ``run`` raised."""

    history: ConcurrentHistory  # with the model's own f names
    model: Model
    limits: Limits
    budget: Budget = field(default_factory=new_budget)
    cause: str = ""  # why it is not decided
    started_s: float = field(default_factory=time.monotonic)
    started_cpu_s: float = field(default_factory=time.process_time)
    keys: int = 0
    decided_by: dict[str, int] = field(default_factory=dict)  # who, how many keys
    passed_over: dict[str, None] = field(default_factory=dict)
    violation: Violation | None = None
    furthest: Found | None = None  # where the search stopped, on the key with the most operations
    quick_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, by: By, find_prefix: bool) -> None:
        """Raises UsageError, MemoryError and KeyboardInterrupt."""
        time_s = self.limits.time_s
        self.budget = new_budget(
            time_limit_s=None if time_s is None else time_s * (1 - GIVING_BACK),
            memory_limit_bytes=self.limits.memory_bytes,
        )
        parts = split(self.history)
        self.keys = len(parts)
        monitor = None if by == "general" else choose_monitor(self.model)
        if monitor is not None and by == "auto" and self._passes_over(monitor, parts, find_prefix):
            return
        if monitor is not None and by == "auto" and self._has_many_small(parts):
            parts = self._search(parts, find_prefix, BRIEFLY_S)
        if monitor is not None and parts:
            parts = self._ask_monitor(monitor, parts, find_prefix)
        elif by == "monitor":
            raise UsageError(f"there is no monitor for the model {model_name(self.model)}")
        if parts and by == "auto" and self.violation is None and not self.cause:
            self._ask_conditions(parts, find_prefix)
        if parts and by != "monitor" and self.violation is None and not self.cause:
            self._search(parts, find_prefix)

    # --- monitors -------------------------------------------------------------------------------

    def _ask_monitor(self, monitor: Monitor, parts: list[Part], find_prefix: bool) -> list[Part]:
        """The parts that the monitor passed over."""
        left: list[Part] = []
        invalid: list[tuple[Part, MonitorAnswer]] = []

        def work(number: int) -> bool:
            part = parts[number]
            answer = monitor(part.of(self.history), self.budget)
            with self._lock:
                if answer.valid == "unknown" and answer.why in STOPPED_BY.values():
                    self.cause = self.cause or answer.why
                elif answer.valid == "unknown":
                    left.append(part)
                    self.passed_over[f"{answer.monitor}: {answer.why}"] = None
                else:
                    self._count(answer.monitor)
                if answer.valid is False:
                    invalid.append((part, answer))
            return bool(self.cause or invalid)

        if len(self.history) <= INLINE_OPERATIONS:
            any(work(number) for number in range(len(parts)))
        else:
            run_all(len(parts), work, self.limits.threads, self.budget)
        if invalid:
            self._keep_monitor_violation(monitor, *invalid[0], find_prefix)
        return left

    def _ask_conditions(self, parts: list[Part], find_prefix: bool) -> None:
        conditions = choose_conditions(self.model)
        if conditions is None:
            return
        for part in parts:
            history = part.of(self.history)
            answer = conditions(history, self.budget)
            if answer.valid is False:
                self._count(answer.monitor)
                self._keep_monitor_violation(conditions, part, answer, find_prefix)
                return

    def _keep_monitor_violation(
        self, monitor: Monitor, part: Part, answer: MonitorAnswer, find_prefix: bool
    ) -> None:
        self.cause = ""
        history = part.of(self.history)
        prefix, stuck, is_shortest = None, None, True
        if find_prefix:
            prefix = shortest_prefix(monitor, history, answer, self.budget)
            if not isinstance(monitor, PrefixMonitor):  # those decide every prefix themselves
                prefix, is_shortest = self._prefixes.shorter(monitor, history, prefix)
            prefix, is_shortest = self._prefixes.proved_again(history, prefix, is_shortest)
            stuck = part.row(int(np.flatnonzero(history.ret == prefix)[0]))
        self.violation = Violation(
            key=self.history.key.names[part.key],
            by=answer.monitor,
            reason=answer.reason,
            word=answer.violation,
            operations=tuple(part.row(row) for row in answer.operations),
            stuck=stuck,
            prefix=prefix,
            prefix_is_shortest=is_shortest,
        )

    # --- the general search ---------------------------------------------------------------------

    def _has_many_small(self, parts: list[Part]) -> bool:
        """Then the search decides most of them in less time than their monitor takes to encode
        one."""
        is_small = len(parts) > MANY_KEYS and len(self.history) <= SMALL_KEY * len(parts)
        return is_small and (self.limits.memory_bytes or QUICK_BYTES) >= QUICK_BYTES

    def _search(
        self, parts: list[Part], find_prefix: bool, briefly_s: float | None = None
    ) -> list[Part]:
        """The parts that are not decided; there may be some if each is searched ``briefly_s``."""
        history, rows = self.history, None
        if len(parts) < self.keys:
            rows = np.sort(np.concatenate([part.rows for part in parts if part.rows is not None]))
            history = history.take(rows)
        if briefly_s is None:
            quick = self._quickly(history, [part.key for part in parts], find_prefix)
            if self._hear_quick(quick, history, rows, find_prefix):
                return []
        search = GeneralSearch.of(history, self.model, self.budget)
        try:
            return self._search_long(search, parts, rows, find_prefix, briefly_s)
        finally:
            search.close()

    def _quickly(
        self,
        history: ConcurrentHistory,
        keys: list[int],
        find_prefix: bool,
        only_if_repeated: bool = False,
    ) -> Quick | None:
        if self.limits.memory_bytes is not None and self.limits.memory_bytes < QUICK_BYTES:
            return None
        quick = quick_search(history, self.model, keys, self.limits.time_s, only_if_repeated)
        return quick if quick is None or quick.is_complete or not find_prefix else None

    def _hear_quick(
        self,
        quick: Quick | None,
        history: ConcurrentHistory,
        rows: npt.NDArray[np.int64] | None,
        find_prefix: bool,
    ) -> bool:
        """Whether that decided the check."""
        if quick is None:
            return False
        self.quick_bytes = quick.bytes
        for found in quick.found:
            if self._hear(found):
                self._keep_violation(found, rows, found.stuck, find_prefix)
        return True

    def _passes_over(self, monitor: Monitor, parts: list[Part], find_prefix: bool) -> bool:
        """Whether a small history is decided before its monitor has encoded it.

        If an operation that changes the state occurs twice, a monitor that needs distinct values
        will pass the history over; and the general search is quicker than it takes to say so.
        """
        if len(self.history) > INLINE_OPERATIONS or not wants_distinct(self.model):
            return False
        keys = [part.key for part in parts]
        quick = self._quickly(self.history, keys, find_prefix, only_if_repeated=True)
        if quick is not None:
            self.passed_over[f"{monitor.name}: the same {quick.repeated} occurs twice"] = None
        return self._hear_quick(quick, self.history, None, find_prefix)

    def _search_long(
        self,
        search: GeneralSearch,
        parts: list[Part],
        rows: npt.NDArray[np.int64] | None,
        find_prefix: bool,
        briefly_s: float | None,
    ) -> list[Part]:
        invalid: list[Found] = []
        left: list[Part] = []
        by_key = {part.key: part for part in parts}

        def hear(found: Found) -> bool:
            if found.valid == "unknown" and briefly_s is not None and not self.budget.stopped:
                left.append(by_key[found.key])
            elif self._hear(found):
                invalid.append(found)
                self.budget.cancel = 1  # the others need not go on
            return bool(invalid)

        search.run(list(by_key), self.limits.threads, hear, briefly_s)
        if not invalid:
            return left
        self.cause = ""
        self.budget.cancel = self.budget.stopped = 0
        stuck, is_shortest = invalid[0].stuck, True
        if find_prefix:
            as_long_s = time.monotonic() - self.started_s
            stuck, is_shortest = search.shortest_prefix(invalid[0], max(PREFIX_S, as_long_s))
        self._keep_violation(invalid[0], rows, stuck, find_prefix, is_shortest)
        return []

    @property
    def _prefixes(self) -> Prefixes:
        return Prefixes(self.model, self.limits, self.budget)

    def _count(self, decider: str) -> None:
        self.decided_by[decider] = self.decided_by.get(decider, 0) + 1

    def _hear(self, found: Found) -> bool:
        """Whether it is a violation."""
        with self._lock:
            if found.valid == "unknown":
                self.cause = self.cause or found.cause
                if self.furthest is None or found.returns > self.furthest.returns:
                    self.furthest = found
            else:
                self._count(f"general search ({found.method})")
            return found.valid is False

    def _keep_violation(
        self,
        found: Found,
        rows: npt.NDArray[np.int64] | None,
        stuck: int | None,
        find_prefix: bool,
        is_shortest: bool = True,
    ) -> None:
        whole, prefix = self.history, None
        if stuck is not None and rows is not None:
            stuck = int(rows[stuck])
        if stuck is not None and find_prefix:
            own = whole if self.keys == 1 else whole.take(whole.key.codes == found.key)
            rank = int(whole.ret[stuck])
            prefix = without_hindsight(own, self.model, rank, self._prefixes.is_invalid)
            prefix, is_shortest = self._prefixes.proved_again(own, prefix, is_shortest)
            if prefix != rank:
                stuck = int(np.flatnonzero(whole.ret == prefix)[0])
        self.violation = Violation(
            key=self.history.key.names[found.key],
            by=f"general search ({found.method})",
            reason=self._reason(stuck),
            operations=() if stuck is None else (stuck,),
            stuck=stuck,
            prefix=prefix,
            prefix_is_shortest=is_shortest,
        )

    def _reason(self, stuck: int | None) -> str:
        name = model_name(self.model)
        if stuck is None:
            return f"no order of the operations is one that a {name} allows"
        history = self.history
        operation = history.operation(stuck)
        return (
            f"when {operation.f} of process {history.process[stuck]} "
            f"({history.place_name} {history.place[stuck]}) returned, no order of the operations "
            f"called by then was one that a {name} allows"
        )

    # --- the verdict ----------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        decided = sum(self.decided_by.values())
        valid: bool | str = "unknown"
        if self.violation is not None:
            valid = False
        elif decided == self.keys and not self.cause:
            valid = True
        is_unknown = valid == "unknown"
        peak = int(self.budget.bytes_peak)
        return Verdict(
            valid=valid,
            model=model_name(self.model),
            how=", ".join(self._deciders()),
            passed_over=tuple(self.passed_over),
            cause=(self.cause or "no monitor decided it") if is_unknown else "",
            progress=self._progress(decided) if is_unknown else "",
            violation=self.violation,
            operations=len(self.history),
            keys=self.keys,
            keys_decided=decided,
            threads=self.limits.threads,
            elapsed_s=time.monotonic() - self.started_s,
            cpu_s=time.process_time() - self.started_cpu_s,
            memory_peak_bytes=max(peak, self.quick_bytes),
        )

    def _deciders(self) -> list[str]:
        if len(self.decided_by) < 2:
            return list(self.decided_by)
        most_first = sorted(self.decided_by.items(), key=lambda decided: -decided[1])
        return [f"{name}: {count} keys" for name, count in most_first]

    def _progress(self, decided: int) -> str:
        sentences = []
        if self.keys != 1:
            sentences.append(f"{decided} of {self.keys} keys were decided")
        if self.furthest is not None:
            key = self.history.key.names[self.furthest.key]
            of = f" of key {key}" if key else ""
            sentences.append(
                f"an order was found for {self.furthest.reached} of {self.furthest.returns} "
                f"completed operations{of}"
            )
        return "; ".join(sentences)


def split(history: ConcurrentHistory) -> list[Part]:
    """Its keys, those with the most operations first."""
    codes, names = history.key.codes, history.key.names
    if len(names) == 1 or len(codes) == 0:
        return [Part(0, None)]
    counts = np.bincount(codes, minlength=len(names))
    if counts.max() == len(codes):
        return [Part(int(codes[0]), None)]
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(counts)
    return [
        Part(int(key), order[ends[key] - counts[key] : ends[key]])
        for key in np.argsort(-counts, kind="stable")
        if counts[key]
    ]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Checks of a history's prefixes, within what is left of the time of the check of all of it."""

    model: Model
    limits: Limits
    budget: Budget

    def shorter(
        self, monitor: Monitor, history: ConcurrentHistory, prefix: int
    ) -> tuple[int, bool]:
        """A prefix that ends before the event ``prefix`` if one is invalid and the monitor can't
        tell.

        The general search is asked for that, but not for long: its answer only makes the
        explanation shorter. Also: whether there is certainly no shorter one.
        """
        before = cut(history, prefix - 1)
        if monitor(before, self.budget).valid is True:
            return prefix, True
        search = self._aside(before, find_prefix=True)
        found = None if search is None else search.violation
        if search is None or found is None or found.prefix is None:
            return prefix, search is not None and search.verdict().valid is True
        return found.prefix, found.prefix_is_shortest

    def proved_again(
        self, history: ConcurrentHistory, prefix: int, is_shortest: bool
    ) -> tuple[int, bool]:
        """A prefix is claimed only if a check of it alone finds it invalid, and is called the
        shortest only if the one before it is found valid. What was known when it was found may be
        more than what the prefix tells. The last resort is the whole history."""
        if self.is_invalid(cut(history, prefix), "auto") is not True:
            return int(history.ret[history.ret != NEVER].max()), False
        if not is_shortest:
            return prefix, False
        earlier = history.ret[history.ret < prefix]
        if not len(earlier):
            return prefix, True
        return prefix, self.is_invalid(cut(history, prefix - 1), "auto") is False

    def _aside(
        self, history: ConcurrentHistory, find_prefix: bool, by: By = "general"
    ) -> RunningCheck | None:
        """Another history, within what is left of the time, and not long."""
        left_s = PREFIX_S
        if self.budget.deadline_ns:
            left_s = min(left_s, (self.budget.deadline_ns - lib.shl_now_ns()) / 1e9)
        if left_s <= 0 or self.budget.stopped:
            return None
        search = RunningCheck(history, self.model, self.limits._replace(time_s=left_s))
        try:
            search.run(by, find_prefix)
        except MemoryError:
            return None
        return search

    def is_invalid(self, history: ConcurrentHistory, by: By = "general") -> bool | None:
        search = self._aside(history, find_prefix=False, by=by)
        valid = "unknown" if search is None else search.verdict().valid
        return None if valid == "unknown" else not valid
