"""The stopping rule, by numbers that were worked out by hand."""

from __future__ import annotations

import pytest

from shalott.core.errors import UsageError
from shalott.harness.search.failure_rate import (
    Rule,
    Trials,
    chance_of_at_least,
    trials_of,
    wilson,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("rate", "failed", "ran", "chance"),
    [
        (0.5, 0, 0, 1 / 2),  # nothing is known: a half of all rates is a half or more
        (0.5, 1, 1, 3 / 4),  # 1 - x^2 at a half
        (0.5, 2, 2, 7 / 8),
        (0.5, 3, 3, 15 / 16),
        (0.5, 0, 3, 1 / 16),  # (1 - x)^4
        (0.5, 1, 2, 1 / 2),  # as likely above as below
        (0.5, 2, 3, 11 / 16),  # (1 + 4 + 6) / 16
        (0.25, 1, 1, 15 / 16),  # 1 - (1/4)^2
        (0.25, 0, 8, 0.75**9),
        (0.1, 1, 4, 0.9**5 + 5 * 0.1 * 0.9**4),
    ],
)
def test_the_chance_is_the_betas_tail(rate: float, failed: int, ran: int, chance: float) -> None:
    assert chance_of_at_least(rate, failed, ran) == pytest.approx(chance, abs=1e-12)


def test_the_chance_is_what_numbers_drawn_from_the_posterior_say() -> None:
    import numpy as np

    drawn = np.random.default_rng(7).beta(5 + 1, 3 + 1, 400_000)  # 5 of 8
    assert chance_of_at_least(0.5, 5, 8) == pytest.approx((drawn >= 0.5).mean(), abs=0.003)


@pytest.mark.parametrize(
    ("failed", "ran", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        # z^2 = 3.8415. At 0 of 10 the interval is 0 to z^2 / (10 + z^2); at 10 of 10 its mirror.
        (0, 10, 0.0, 3.8415 / 13.8415),
        (10, 10, 10 / 13.8415, 1.0),
        # 5 of 10: 1/2 -+ z / (2 sqrt(10 + z^2)) = 1/2 -+ 1.96 / 7.4408
        (5, 10, 0.2366, 0.7634),
        # Newcombe, Statistics in Medicine 17 (1998), p. 861, method 3: 81 of 263, 15 of 148.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
    ],
)
def test_wilsons_interval(failed: int, ran: int, low: float, high: float) -> None:
    assert wilson(failed, ran) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize(
    ("failed", "ran", "verdict"),
    [
        (0, 0, None),
        (1, 1, None),  # 0.75
        (2, 2, None),  # 0.875
        (3, 3, True),  # 0.9375
        (0, 2, None),
        (0, 3, False),  # 0.0625
        (2, 3, None),
        (3, 4, None),  # 26 / 32 = 0.8125
        (4, 5, None),  # 57 / 64 = 0.8906
        (5, 6, True),  # 120 / 128 = 0.9375
        (1, 6, False),  # 8 / 128
    ],
)
def test_the_rule_with_nine_to_one(failed: int, ran: int, verdict: bool | None) -> None:
    assert Rule().verdict(Trials(failed=failed, ran=ran)) is verdict


def test_runs_stop_when_it_is_clear_or_no_more_are_allowed() -> None:
    rule = Rule(most=4)
    assert not rule.is_over(Trials(failed=2, ran=2))
    assert rule.is_over(Trials(failed=3, ran=3))
    assert rule.is_over(Trials(failed=2, ran=4))  # unclear, and that is said
    assert rule.verdict(Trials(failed=2, ran=4)) is None


def test_runs_that_prove_nothing_are_counted_apart_and_end_at_last() -> None:
    trials = trials_of([True, None, False, None, True])
    assert trials == Trials(failed=2, ran=3, void=2)
    assert str(trials) == "2 of 3 (0.21 to 0.94, 2 proved nothing)"
    assert not Rule().is_over(Trials(void=3))
    assert Rule().is_over(Trials(void=4))
    assert not Rule().is_over(Trials(failed=1, ran=2, void=5))


def test_a_rare_failure_needs_a_lower_rate() -> None:
    rule = Rule(least_rate=0.25)
    assert rule.verdict(Trials(failed=1, ran=1)) is True
    assert rule.verdict(Trials(failed=0, ran=7)) is None  # 0.75^8 = 0.1001
    assert rule.verdict(Trials(failed=0, ran=8)) is False  # 0.0751


@pytest.mark.parametrize("rule", [Rule(least_rate=0), Rule(sure=0.5), Rule(most=0)])
def test_a_rule_that_can_not_be_is_refused(rule: Rule) -> None:
    with pytest.raises(UsageError, match="give"):
        rule.check()
