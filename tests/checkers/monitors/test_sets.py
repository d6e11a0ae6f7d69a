"""What the set monitor finds, cannot decide, and says about it."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.checkers.history.concurrent import Row
from shalott.checkers.monitors.set_monitor import SetMonitor
from tests.checkers.monitors.comparison import (
    TIMEOUT_S,
    Subject,
    agrees_with_every_order,
    decide,
    more_freedom_keeps_it_linearizable,
    names_of_values_do_not_matter,
    only_the_order_of_events_matters,
    prefixes_stay_linearizable,
    values,
)
from tests.checkers.random_histories import ASet

pytestmark = pytest.mark.unit


def op(f: str, element: Hashable, call: int, ret: int | None, said: bool | None = None) -> Row:
    return Row(call, f, element, said, call, ret)


def read(elements: Hashable, call: int, ret: int | None) -> Row:
    return Row(call, "read", None, elements, call, ret)


INVALID = {
    "fresh": (
        [op("contains", 1, 0, 1, True)],
        (0,),
        "contains(1) -> true found an element that no operation added",
    ),
    "fresh, in a read": (
        [op("add", 1, 0, 1), read((1, 2), 2, 3)],
        (1,),
        "the read of 2 elements has an element that no operation added",
    ),
    "again": (
        [op("add", 1, 0, 1, True), op("add", 1, 2, 3, True)],
        (0, 1),
        "add(1) -> true and add(1) -> true: the same change was made twice, and not undone between",
    ),
    "again, removed": (
        [op("add", 1, 0, 1), op("remove", 1, 2, 3, True), op("remove", 1, 4, 5, True)],
        (1, 2),
        "remove(1) -> true and remove(1) -> true: the same change was made twice, and not undone"
        " between",
    ),
    "future": (
        [op("contains", 1, 0, 1, True), op("add", 1, 2, 3)],
        (0, 1),
        "contains(1) -> true returned before add(1) was called, although no operation added the"
        " element before",
    ),
    "lost": (
        [op("add", 1, 0, 1), op("contains", 1, 2, 3, False)],
        (1, 0),
        "contains(1) -> false did not find the element, which was there before: see add(1), and"
        " no operation is known to have removed it by then",
    ),
    "lost, for a while": (
        [op("add", 1, 0, 1), op("contains", 1, 2, 3, False), op("contains", 1, 4, 5, True),
         op("remove", 1, 6, 7)],
        (1, 0, 2),
        "contains(1) -> false did not find the element, which was there before: see add(1); and"
        " afterwards: see contains(1) -> true",
    ),
    "stale": (
        [op("add", 1, 0, 1), op("remove", 1, 2, 3), op("contains", 1, 4, 5, True)],
        (1, 2),
        "contains(1) -> true was called after remove(1) had returned, and no operation added the"
        " element again",
    ),
    "different": (
        [op("add", 1, 0, 9), op("add", 2, 1, 10), read((1,), 2, 3), read(frozenset({2}), 4, 5)],
        (2, 3),
        "two reads of the set each have an element that the other has not",
    ),
    "order": (
        [op("add", 1, 0, 1), op("add", 2, 2, 3), read((2,), 4, 5)],
        (0, 2),
        "the read of 1 elements was called after the add(1) had returned, although what was seen"
        " says that it came first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_a_violation_is_named_proved_and_put_in_words(name: str) -> None:
    rows, operations, reason = INVALID[name]
    answer = decide(SetMonitor(), rows)
    assert answer.valid is False
    assert answer.violation == name.partition(",")[0]
    assert answer.operations == operations
    assert answer.reason == reason


VALID = {
    "nothing": [],
    "nothing to see": [read((), 0, 1), read(frozenset(), 2, 3)],
    "a crashed add may take effect late": [
        op("add", 1, 0, None),
        read((), 1, 2),
        read((1,), 3, 4),
    ],
    "or never": [op("add", 1, 0, None), op("contains", 1, 1, 2, False)],
    "a crashed remove as well": [
        op("add", 1, 0, 1),
        op("remove", 1, 2, None),
        op("contains", 1, 3, 4, True),
        op("contains", 1, 5, 6, False),
    ],
    "what is never removed may be added often": [
        op("add", 1, 0, 1),
        op("add", 1, 2, 3, False),
        read((1, 1), 4, 5),
    ],
    "what nobody looks at may come and go": [
        op("add", 1, 0, 1),
        op("remove", 1, 2, 3),
        op("add", 1, 4, 5),
    ],
}


@pytest.mark.parametrize("name", VALID)
def test_what_is_linearizable(name: str) -> None:
    assert decide(SetMonitor(), VALID[name]).valid is True


UNKNOWN = {
    "element 1 was added twice, and removed": [
        op("add", 1, 0, 1),
        op("remove", 1, 2, 3),
        op("add", 1, 4, 5),
        op("contains", 1, 6, 7, True),
    ],
    "element 1 was removed, and the whole set was read": [
        op("add", 1, 0, 1),
        op("remove", 1, 2, 3),
        read((), 4, 5),
    ],
    "a contains returned neither true nor false": [op("contains", 1, 0, 1)],
    "a read did not return a set": [read("elements", 0, 1)],
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_it_can_not_decide_it_says(why: str) -> None:
    answer = decide(SetMonitor(), UNKNOWN[why])
    assert (answer.valid, answer.violation, answer.why) == ("unknown", "", why)


# --- against the definition -----------------------------------------------------------------------


def mostly_silent(rows: list[Row], rng: random.Random) -> list[Row]:
    """Adds and removes that do not say if they changed anything."""
    says = rng.random()
    return [
        row._replace(result=None) if row.f in ("add", "remove") and rng.random() > says else row
        for row in rows
    ]


def growing(rows: list[Row], rng: random.Random) -> list[Row]:
    return mostly_silent([row for row in rows if row.f != "remove"], rng)


def element_by_element(rows: list[Row], rng: random.Random) -> list[Row]:
    return mostly_silent([row for row in rows if row.f != "read"], rng)


SUBJECTS = {
    "growing": (
        Subject(SetMonitor(), "set", "set", lambda rng: ASet(values(rng), True), growing),
        {"fresh", "again", "future", "lost", "different", "order"},
        0.0,
    ),
    "element by element": (
        Subject(
            SetMonitor(), "set", "set", lambda rng: ASet(values(rng), False), element_by_element
        ),
        {"fresh", "again", "future", "lost", "stale"},
        0.15,
    ),
    "any": (
        Subject(SetMonitor(), "set", "set", lambda rng: ASet(values(rng), rng.random() < 0.5)),
        {"fresh", "again", "future", "lost", "order"},
        0.5,
    ),
}
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.explore
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_monitor_agrees_with_every_order_of_small_histories(name: str) -> None:
    subject, violations, unknown = SUBJECTS[name]
    agrees_with_every_order(subject, violations, unknown)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, cut_at=st.integers(0, 60))
def test_every_prefix_of_a_linearizable_history_is_linearizable(
    name: str, seed: int, cut_at: int
) -> None:
    prefixes_stay_linearizable(SUBJECTS[name][0], seed, cut_at)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds, gap=st.integers(1, 1000))
def test_only_the_order_of_events_matters(name: str, seed: int, gap: int) -> None:
    only_the_order_of_events_matters(SUBJECTS[name][0], seed, gap)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds)
def test_names_of_values_do_not_matter(name: str, seed: int) -> None:
    def renamed(row: Row, names: dict[Hashable, Hashable]) -> Row:
        result = row.result
        if isinstance(result, tuple):
            result = tuple(names.get(element, element) for element in result)
        return row._replace(argument=names.get(row.argument, row.argument), result=result)

    names_of_values_do_not_matter(SUBJECTS[name][0], seed, renamed)


@pytest.mark.explore
@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=40)
@given(seed=seeds)
def test_more_freedom_keeps_a_history_linearizable(name: str, seed: int) -> None:
    more_freedom_keeps_it_linearizable(SUBJECTS[name][0], seed)
