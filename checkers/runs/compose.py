"""All checkers of a run, put together: one verdict, and a crashed checker never makes a run valid.

After jepsen.checker/compose and check-safe: each checker judges alone, the verdicts merge by
``merge_valid``, and a checker that raises is "unknown" with its traceback in the notes.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import msgspec

from shalott.checkers.base import Checker, Result, merge_valid
from shalott.checkers.mastership.mastership import Mastership
from shalott.checkers.queues.habits import CAREFUL, Habits
from shalott.checkers.queues.total_queue import TotalQueue
from shalott.checkers.runs.availability import Availability
from shalott.checkers.runs.convergence import Convergence
from shalott.checkers.runs.crashes import Crashes
from shalott.checkers.runs.liveness import Liveness
from shalott.checkers.runs.stats import Stats
from shalott.harness.core.history import History


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run's. ``results`` are in the checkers' order."""

    valid: bool | str  # True, False or "unknown"
    results: tuple[Result, ...]

    def of(self, checker: str) -> Result:
        """One checker's result. Raises KeyError if it did not run."""
        for result in self.results:
            if result.checker == checker:
                return result
        raise KeyError(checker)


def standard_checkers(
    *,
    delivery: str = "at-least-once",
    min_acked: int = 50,
    max_rto_ms: int | None = None,
    strict: bool = False,
    tolerance_ms: int = 100,
    poll_round_ms: int = 500,
    habits: Habits = CAREFUL,
    must_settle: bool = False,
    must_not_crash: bool = False,
    crash_text: str = "",
    must_converge: bool = False,
) -> tuple[Checker, ...]:
    """What every run of the queue workload is judged by; the last three only where it is asked."""
    return (
        TotalQueue(delivery=delivery, habits=habits),
        *common_checkers(
            min_acked=min_acked,
            max_rto_ms=max_rto_ms,
            strict=strict,
            tolerance_ms=tolerance_ms,
            poll_round_ms=poll_round_ms,
            must_settle=must_settle,
            must_not_crash=must_not_crash,
            crash_text=crash_text,
            must_converge=must_converge,
        ),
    )


def common_checkers(
    *,
    min_acked: int = 50,
    max_rto_ms: int | None = None,
    strict: bool = False,
    tolerance_ms: int = 100,
    poll_round_ms: int = 500,
    must_settle: bool = False,
    must_not_crash: bool = False,
    crash_text: str = "",
    must_converge: bool = False,
) -> tuple[Checker, ...]:
    """What a run of any workload is judged by besides its own checkers."""
    gated: tuple[tuple[bool, Checker], ...] = (
        (must_settle, Liveness()),
        (must_not_crash, Crashes(crash_text)),
        (must_converge, Convergence()),
    )
    return (
        Mastership(strict=strict, tolerance_ms=tolerance_ms, poll_round_ms=poll_round_ms),
        Availability(max_rto_ms=max_rto_ms),
        Stats(min_acked=min_acked),
        *(checker for wanted, checker in gated if wanted),
    )


def check_all(checkers: Sequence[Checker], history: History) -> Verdict:
    """Run every checker and merge."""
    results = tuple(check_safely(checker, history) for checker in checkers)
    return Verdict(valid=merge_valid(result.valid for result in results), results=results)


def check_safely(checker: Checker, history: History) -> Result:
    """A checker's result, or "unknown" if it crashed."""
    try:
        return checker.check(history)
    except Exception as error:
        return Result(
            checker=checker.name,
            valid="unknown",
            notes=(
                f"The checker {checker.name} crashed: {type(error).__name__}: {error}",
                traceback.format_exc(),
            ),
        )
