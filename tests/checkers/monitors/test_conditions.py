"""Rules looked at before a search: right whenever they refute, and quick where it counts."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Final

import pytest

from shalott.checkers.engine import new_budget
from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.models import make_model
from shalott.checkers.monitors.monitor import Monitor
from shalott.checkers.monitors.monitor_choice import choose_conditions
from tests.checkers.oracle import is_linearizable
from tests.checkers.random_histories import mutated, random_history

HISTORIES: Final = int(os.environ.get("SHALOTT_ORACLE_HISTORIES", "3000"))
QUEUES: Final = ("fifo-queue", "unordered-queue", "stack", "priority-queue")


def conditions_of(model: str) -> Monitor:
    found = choose_conditions(make_model(model))
    assert found is not None
    return found


def refuted(model: str, rows: Sequence[Row]) -> str:
    """The rule that is broken; "": none is."""
    return conditions_of(model)(from_rows(rows), new_budget()).violation


@pytest.mark.parametrize(
    ("specification", "rules"),
    [
        ("fifo-queue", {"counts", "empty", "lost"}),
        ("unordered-queue", {"counts", "empty"}),
        ("stack", {"counts", "empty", "turn"}),
        ("priority-queue", {"counts", "empty", "turn"}),
        ("priority-queue:first=lowest", {"counts", "empty", "turn"}),
        ("priority-queue:ties=fifo", {"counts", "empty", "turn"}),
        ("set", {"vanished", "appeared"}),
    ],
)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(100, marks=pytest.mark.unit, id="some"),
        pytest.param(
            HISTORIES, marks=[pytest.mark.explore, pytest.mark.timeout(24 * 3600)], id="many"
        ),
    ],
)
def test_what_is_refuted_has_no_order(specification: str, rules: set[str], count: int) -> None:
    rng, model = random.Random(specification), make_model(specification)
    conditions = conditions_of(specification)
    seen: Counter[str] = Counter()
    for number in range(count):
        rows = random_history(
            specification.partition(":")[0], rng, operations=rng.choice([5, 7, 8])
        )
        rows = mutated(rows, rng) if number % 4 else rows
        answer = conditions(from_rows(rows), new_budget())
        seen[answer.violation] += 1
        if answer.valid is False:
            assert answer.reason and all(0 <= row < len(rows) for row in answer.operations)
            assert not is_linearizable(rows, model), (answer, rows)
    assert rules <= set(seen) or count < 1000, seen
    assert seen.total() - seen[""] > count // 20


def burst(count: int, taken: Sequence[Hashable], values: Sequence[Hashable] = (7,)) -> list[Row]:
    """Enqueues all at once, then dequeues one after the other."""
    rows = [
        Row(at, "enqueue", values[at % len(values)], None, at, 10_000 + at) for at in range(count)
    ]
    return rows + [
        Row(count + at, "dequeue", None, value, 20_000 + 2 * at, 20_001 + 2 * at)
        for at, value in enumerate(taken)
    ]


@pytest.mark.unit
@pytest.mark.parametrize("model", QUEUES)
@pytest.mark.parametrize(
    ("rows", "valid"),
    [
        (burst(30, [7] * 30 + [None]), True),
        (burst(30, [7] * 31), False),
        (burst(30, [7] * 29 + [None]), False),
        (burst(30, [7] * 16 + [8] * 14, [7, 8]), False),
        (burst(30, [7] * 15 + [8] * 15 + [8], [7, 8]), False),
        (burst(30, [8] * 15 + [7] * 14 + [None], [7, 8]), False),
        (burst(400, [7] * 200 + [8] * 200 + [None, 8], [7, 8]), False),
    ],
    ids=["all", "one-more", "one-less", "other", "two-values", "one-of-two-less", "many"],
)
def test_bursts_of_equal_enqueues_are_decided_at_once(
    model: str, rows: list[Row], valid: bool
) -> None:
    began = time.process_time()
    assert check(from_rows(rows), model, time_limit_s=20).valid is valid
    assert time.process_time() - began < 2


def crashed(f: str, argument: Hashable, at: int) -> Row:
    return Row(90, f, argument, None, at, None, "info")


@pytest.mark.unit
@pytest.mark.parametrize("model", QUEUES)
def test_crashed_operations_may_have_been_done(model: str) -> None:
    twice = burst(3, [7, 7, 7, 7])
    assert refuted(model, twice) == "counts"
    assert refuted(model, [*twice, crashed("enqueue", 7, 50)]) == ""
    assert refuted(model, [*twice, crashed("enqueue", 8, 50)]) == "counts"
    early = burst(3, [7, 7, None])
    assert refuted(model, early) == "empty"
    assert refuted(model, [*early, crashed("dequeue", None, 50)]) == ""
    assert refuted(model, [*early, crashed("dequeue", None, 90_000)]) == "empty"


@pytest.mark.unit
def test_an_enqueue_that_failed_counts_for_nothing() -> None:
    rows = burst(3, [7, 7, 7])
    rows[0] = rows[0]._replace(type="fail")
    assert refuted("fifo-queue", rows) == "counts"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("model", "order", "broken"),
    [
        ("stack", [3, 2, 1], ""), ("stack", [1, 3, 2], "turn"), ("stack", [2, 3, 1], "turn"),
        ("priority-queue", [3, 2, 1], ""), ("priority-queue", [2, 3, 1], "turn"),
        ("priority-queue:first=lowest", [1, 2, 3], ""),
        ("priority-queue:first=lowest", [1, 3, 2], "turn"),
    ],
)  # fmt: skip
def test_whose_turn_it_is(model: str, order: list[int], broken: str) -> None:
    rows = [Row(0, "enqueue", at, None, 2 * at, 2 * at + 1) for at in (1, 2, 3)]
    rows += [Row(0, "dequeue", None, v, 20 + 2 * at, 21 + 2 * at) for at, v in enumerate(order)]
    assert refuted(model, rows) == broken
    assert is_linearizable(rows, make_model(model)) is not bool(broken)
    lost = [*rows[:-2], crashed("dequeue", None, 19)]  # it may have taken who is missing
    assert refuted(model, lost) == "" or is_linearizable(lost, make_model(model)) is False


def whole_set(reads: Sequence[tuple[int, ...]], removed: int, elements: int) -> list[Row]:
    rows = [Row(at, "add", at, None, at, 10_000 + at) for at in range(elements)]
    rows += [Row(0, "remove", at, None, 20_000 + 2 * at, 20_001 + 2 * at) for at in range(removed)]
    return rows + [
        Row(1, "read", None, read, 30_000 + 2 * at, 30_001 + 2 * at)
        for at, read in enumerate(reads)
    ]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("reads", "valid"),
    [
        ([tuple(range(3, 60)), tuple(range(3, 60))], True),
        ([tuple(range(4, 60)), tuple(range(4, 60))], False),
        ([tuple(range(2, 60)), tuple(range(3, 60))], False),
        ([tuple(range(3, 61))], False),
        ([tuple(range(3, 60)), tuple(range(3, 59))], False),
    ],
    ids=["right", "lost", "not-removed", "never-added", "lost-later"],
)
def test_elements_that_vanish_or_appear(reads: list[tuple[int, ...]], valid: bool) -> None:
    rows = whole_set(reads, removed=3, elements=60)
    began = time.process_time()
    verdict = check(from_rows(rows), "set", time_limit_s=20)
    assert verdict.valid is valid
    assert refuted("set", rows) == "" if valid else refuted("set", rows) in ("vanished", "appeared")
    assert time.process_time() - began < 2


@pytest.mark.unit
def test_a_search_without_end_is_not_begun() -> None:
    """Many values, each enqueued twice by clients at once, and one that was lost."""
    rng = random.Random(3)
    rows = []
    for block in range(40):
        at = 1000 * block
        values = [10 * block + number for number in range(10)] * 2
        rng.shuffle(values)
        rows += [
            Row(number, "enqueue", value, None, at + number, at + 100 + number)
            for number, value in enumerate(values)
        ]
        rng.shuffle(values)
        values[0] = values[1] if block == 30 else values[0]
        rows += [
            Row(number, "dequeue", None, value, at + 200 + number, at + 300 + number)
            for number, value in enumerate(values)
        ]
    began = time.process_time()
    verdict = check(from_rows(rows), "fifo-queue", time_limit_s=20)
    assert verdict.valid is False
    assert verdict.violation is not None and verdict.violation.by == "rules of FIFO queues"
    assert verdict.violation.word == "counts"
    assert time.process_time() - began < 2


@pytest.mark.unit
def test_what_is_none_of_a_queues_is_left_alone() -> None:
    odd: list[Any] = [Row(0, "enqueue", None, None, 0, 1), Row(0, "dequeue", None, 3, 2, 3)]
    assert refuted("fifo-queue", odd) == ""
