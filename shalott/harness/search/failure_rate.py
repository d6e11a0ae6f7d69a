"""How often a plan fails, and when that is clear enough to stop running it.

On real nodes a plan that failed may pass the next time. So it is run again, and fails k of n times;
the runs are stopped as soon as k and n say clearly whether it fails *often enough*: in at least
``least_rate`` of its runs. How sure one may be is told by the posterior of the rate under a uniform
prior, Beta(k + 1, n - k + 1). Its tail is a binomial sum, since for whole a and b

    P(Beta(a, b) <= x)  =  P(Binomial(a + b - 1, x) >= a)

(Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.24). A posterior means the same
whenever one looks at it, so looking after each run spoils nothing. The interval that people read is
Wilson's (Wilson, "Probable inference, the law of succession, and statistical inference", JASA
1927), which stays within 0 and 1 and means something for few runs.

A run that proves nothing (the harness failed or was starved, too little was acknowledged) is
neither a failure nor a success: it is counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from shalott.core.errors import UsageError
from shalott.harness.store.intervals import wilson

VOID_MOST = 4  # a plan is given up when so many more runs proved nothing than did


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one plan. ``void``: those that proved nothing, which ``ran`` does not count."""

    failed: int = 0
    ran: int = 0
    void: int = 0

    def and_one(self, failed: bool | None) -> Trials:
        """With one run more; None: it proved nothing."""
        if failed is None:
            return msgspec.structs.replace(self, void=self.void + 1)
        return msgspec.structs.replace(self, failed=self.failed + failed, ran=self.ran + 1)

    @property
    def interval(self) -> tuple[float, float]:
        """Of the rate, by Wilson with 95 %."""
        return wilson(self.failed, self.ran)

    def __str__(self) -> str:
        low, high = self.interval
        void = f", {self.void} proved nothing" if self.void else ""
        return f"{self.failed} of {self.ran} ({low:.2f} to {high:.2f}{void})"


def trials_of(outcomes: Iterable[bool | None]) -> Trials:
    """Of the runs' outcomes, as ``Trials.and_one`` takes them."""
    trials = Trials()
    for failed in outcomes:
        trials = trials.and_one(failed)
    return trials


@dataclass(frozen=True, slots=True)
class Rule:
    """When a plan's runs may be stopped.

    ``least_rate``: it fails often enough if it fails in so large a share of its runs. ``sure``: how
    probable that, or its contrary, must be. ``most``: runs, after which it is left unclear.
    """

    least_rate: float = 0.5
    sure: float = 0.9
    most: int = 8

    def check(self) -> None:
        """Raises UsageError."""
        if not 0 < self.least_rate < 1:
            raise UsageError(f"--rate {self.least_rate:g}: give a share of runs between 0 and 1")
        if not 0.5 < self.sure < 1:
            raise UsageError(f"--sure {self.sure:g}: give a probability between 0.5 and 1")
        if self.most < 1:
            raise UsageError(f"--repeat {self.most}: give 1 or more")

    def verdict(self, trials: Trials) -> bool | None:
        """Whether it fails often enough; None: that is not clear yet."""
        often = chance_of_at_least(self.least_rate, trials.failed, trials.ran)
        if often >= self.sure:
            return True
        return False if 1 - often >= self.sure else None

    def is_over(self, trials: Trials) -> bool:
        """Whether nothing is gained by another run, or no more are allowed."""
        if trials.ran >= self.most or trials.void >= trials.ran + VOID_MOST:
            return True
        return self.verdict(trials) is not None


def chance_of_at_least(rate: float, failed: int, ran: int) -> float:
    """The probability that a plan fails in at least ``rate`` of its runs, after these."""
    tries = ran + 1
    return sum(
        math.comb(tries, count) * rate**count * (1 - rate) ** (tries - count)
        for count in range(failed + 1)
    )
