"""The register monitor against the definition: every order of small histories, true properties.

SHALOTT_ORACLE_HISTORIES says how many random histories of each kind are compared.
"""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.checkers.history.concurrent import Row
from shalott.checkers.monitors.register_monitor import RegisterMonitor
from tests.checkers.monitors.comparison import (
    TIMEOUT_S,
    Subject,
    agrees_with_every_order,
    more_freedom_keeps_it_linearizable,
    names_of_values_do_not_matter,
    only_the_order_of_events_matters,
    prefixes_stay_linearizable,
    values,
)
from tests.checkers.random_histories import ARegister, Values

pytestmark = pytest.mark.explore


def plain(rng: random.Random) -> ARegister:
    return ARegister(values(rng), compares=False)


def comparing(rng: random.Random) -> ARegister:
    return ARegister(values(rng), compares=True)


def from_seven(rng: random.Random) -> ARegister:
    return ARegister(Values(rng, distinct=True), compares=True, held=7)


SUBJECTS = {
    "register": Subject(RegisterMonitor(), "register", "register", plain),
    "register, nil is anything": Subject(
        RegisterMonitor(nil="any"), "register:nil=any", "register", plain
    ),
    "cas-register": Subject(RegisterMonitor(), "cas-register", "cas-register", comparing),
    "cas-register, failed ones ignored": Subject(
        RegisterMonitor(failed_cas="ignored"),
        "cas-register:failed_cas=ignored",
        "cas-register",
        comparing,
    ),
    "cas-register, initially 7": Subject(
        RegisterMonitor(initial=7), "cas-register:initial=7", "cas-register", from_seven
    ),
}
PLAIN = {"fresh", "future", "stale"}
COMPARING = {*PLAIN, "chain"}
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_monitor_agrees_with_every_order_of_small_histories(name: str) -> None:
    violations = COMPARING if name == "cas-register" else PLAIN
    agrees_with_every_order(SUBJECTS[name], violations, unknown=0.2)


@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, cut_at=st.integers(0, 60))
def test_every_prefix_of_a_linearizable_history_is_linearizable(
    name: str, seed: int, cut_at: int
) -> None:
    prefixes_stay_linearizable(SUBJECTS[name], seed, cut_at)


@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, gap=st.integers(1, 1000))
def test_only_the_order_of_events_matters(name: str, seed: int, gap: int) -> None:
    only_the_order_of_events_matters(SUBJECTS[name], seed, gap)


@pytest.mark.parametrize("name", ["register", "cas-register"])
@settings(max_examples=40)
@given(seed=seeds)
def test_names_of_values_do_not_matter(name: str, seed: int) -> None:
    def renamed(row: Row, names: dict[Hashable, Hashable]) -> Row:
        argument: Hashable = names.get(row.argument, row.argument)
        if isinstance(row.argument, tuple):
            argument = tuple(names.get(value, value) for value in row.argument)
        return row._replace(argument=argument, result=names.get(row.result, row.result))

    names_of_values_do_not_matter(SUBJECTS[name], seed, renamed)


@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds)
def test_more_freedom_keeps_a_history_linearizable(name: str, seed: int) -> None:
    more_freedom_keeps_it_linearizable(SUBJECTS[name], seed)
