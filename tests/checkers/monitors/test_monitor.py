"""The shortest invalid prefix for any monitor: what it means, and how few prefixes are asked
about."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.checkers.engine import new_budget
from shalott.checkers.history.concurrent import INFO, NEVER, ConcurrentHistory, Row, from_rows
from shalott.checkers.monitors.monitor import (
    MonitorAnswer,
    close_ranks,
    cut,
    first_true,
    shortest_prefix,
)
from shalott.checkers.monitors.queue_monitor import BAG, FIFO, QueueMonitor
from tests.checkers.monitors.queue_rows import prefix, queue_history

pytestmark = pytest.mark.unit


@given(count=st.integers(1, 300), data=st.data())
def test_the_first_true_place_is_found_from_any_guess(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, count - 1))
    guess = data.draw(st.integers(-5, count + 5))
    asked: list[int] = []

    def is_true(at: int) -> bool:
        asked.append(at)
        return at >= first

    assert first_true(count, guess, is_true) == first
    assert len(set(asked)) == len(asked)
    assert all(0 <= at < count for at in asked)
    distance = abs(min(max(guess, 0), count - 1) - first)
    assert len(asked) <= 2 * (distance + 1).bit_length() + 2


def test_what_is_not_known_ends_the_search_at_the_best_known() -> None:
    assert first_true(100, 60, lambda at: None if at < 50 else True) in range(50, 60)
    assert first_true(100, 60, lambda at: None) == 99


def test_a_prefix_knows_nothing_of_what_comes_later() -> None:
    rows = [
        Row(0, "enqueue", 1, None, 0, 3),
        Row(1, "enqueue", 2, None, 1, 6, "fail"),
        Row(2, "dequeue", None, 1, 2, 4),
        Row(3, "enqueue", 3, None, 5, 7),
    ]
    history = cut(from_rows(rows), 3)
    assert history.argument.number.tolist() == [1, 0]
    assert history.ret.tolist() == [3, NEVER]
    assert history.type.tolist() == [0, INFO]
    assert history.ret.dtype == from_rows(rows).ret.dtype
    assert history.type.dtype == from_rows(rows).type.dtype
    assert len(cut(from_rows(rows), 7)) == 4
    assert len(cut(from_rows(rows), -1)) == 0


@dataclass(frozen=True, slots=True)
class Plain:
    """A queue monitor that has only what every monitor has."""

    inner: QueueMonitor
    asked: list[int]

    @property
    def name(self) -> str:
        return self.inner.name

    def __call__(self, history: ConcurrentHistory, budget: Any) -> MonitorAnswer:
        self.asked.append(len(history))
        return self.inner(history, budget)


@pytest.mark.explore
@pytest.mark.parametrize("monitor", [FIFO, BAG], ids=["fifo", "bag"])
def test_any_monitor_and_one_that_can_tell_find_the_same_prefix(monitor: QueueMonitor) -> None:
    rng, found = random.Random(3), 0
    while found < 200:
        rows = queue_history("fifo-queue", rng, operations=40)
        history = from_rows(rows)
        answer = monitor(history, new_budget())
        if answer.valid is not False:
            continue
        found += 1
        rank = shortest_prefix(Plain(monitor, []), history, answer, new_budget())
        assert rank == shortest_prefix(monitor, history, answer, new_budget())
        assert monitor(from_rows(prefix(rows, rank)), new_budget()).valid is False
        assert monitor(from_rows(prefix(rows, rank - 1)), new_budget()).valid is True


def test_a_spent_budget_gives_the_shortest_prefix_that_is_known() -> None:
    rows = [Row(0, "enqueue", 1, None, 0, 1), Row(0, "dequeue", None, 2, 2, 3)]
    history = from_rows([*rows, Row(0, "dequeue", None, 1, 4, 5)])
    answer = FIFO(history, new_budget())
    spent = new_budget()
    spent.cancel = 1
    assert shortest_prefix(Plain(FIFO, []), history, answer, new_budget()) == 3
    assert shortest_prefix(Plain(FIFO, []), history, answer, spent) == 5
    assert shortest_prefix(FIFO, history, answer, spent) == 3  # where the proof ends


def test_close_ranks_keep_the_order_and_close_wide_gaps() -> None:
    rows = [Row(0, "enqueue", 1, None, 0, 5), Row(1, "enqueue", 2, None, 2, 3)]
    rows.append(Row(2, "enqueue", 3, None, 4, None))
    history = from_rows(rows)
    call, ret, ranks = close_ranks(history, new_budget())
    assert call is history.call
    assert ret is history.ret
    assert ranks == 5
    history.call[:] *= 1000
    history.ret[:2] *= 1000
    call, ret, ranks = close_ranks(history, new_budget())
    assert (call.tolist(), ret.tolist(), ranks) == ([0, 1, 3], [4, 2, NEVER], 5)
    with pytest.raises(MemoryError):
        close_ranks(history, new_budget(memory_limit_bytes=1))
