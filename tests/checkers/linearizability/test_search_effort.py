"""How much work the general search does, in steps and questions, which no busy machine changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable

import pytest

from benchmarks.histories import Load, make
from shalott.checkers.engine import new_budget
from shalott.checkers.history.concurrent import ConcurrentHistory, Operation, Row, from_rows
from shalott.checkers.linearizability import running_check
from shalott.checkers.linearizability.checking import check, explain
from shalott.checkers.linearizability.general_search import Found, GeneralSearch
from shalott.checkers.models import CasRegister
from shalott.checkers.monitors.monitor import cut

pytestmark = pytest.mark.explore


def steps_to_refute(history: ConcurrentHistory) -> int:
    """Of the general search, which a window ends."""
    budget = new_budget(time_limit_s=60)
    search = GeneralSearch.of(history, CasRegister(), budget)
    found: list[Found] = []
    try:
        search.run([0], 1, lambda each: bool(found.append(each)))
    finally:
        search.close()
    assert [(each.valid, each.method) for each in found] == [(False, "window")]
    return int(budget.steps)


def test_a_window_begins_near_where_the_search_is_stuck_and_reaches_back_if_it_must() -> None:
    """Windows that were about an earlier place, or had too few steps, made it 2,100,000 steps."""
    history = make("cas-register", Load(2000, 50, violation="stale"))
    assert steps_to_refute(history) < 500_000


def test_a_crashed_operation_does_not_go_before_a_weaker_one() -> None:
    """Writes that went where a compare-and-set would have done made it 31,600,000 steps."""
    history = make("cas-register", Load(30_000, 10, 0.01, "exhausted"))
    assert steps_to_refute(history) < 10_000_000


def steps_to_order(history: ConcurrentHistory) -> int:
    """Of the general search, depth first."""
    budget = new_budget(time_limit_s=60)
    search = GeneralSearch.of(history, CasRegister(), budget)
    found: list[Found] = []
    try:
        search.run([0], 1, lambda each: bool(found.append(each)))
    finally:
        search.close()
    assert [each.valid for each in found] == [True]
    return int(budget.steps)


def test_what_is_possible_in_few_states_is_used_up_first() -> None:
    """Exponential durations: the order of the returns alone made it 61,000,000 steps."""
    loads = [Load(10_000, 50, seed=seed, durations="exponential") for seed in range(1, 5)]
    assert sum(steps_to_order(make("cas-register", load)) for load in loads) < 10_000_000


def test_a_model_is_asked_each_question_once_whatever_histories_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table of a built-in model is kept, and grows with every history."""
    asked: Counter[tuple[Hashable, Operation]] = Counter()
    step = CasRegister.step

    def counted(self: CasRegister, state: Hashable, op: Operation) -> Hashable:
        asked[state, op] += 1
        return step(self, state, op)

    monkeypatch.setattr(CasRegister, "step", counted)
    for last in range(1, 60):
        rows = [Row(0, "write", value % 7, None, 3 * value, 3 * value + 2) for value in range(20)]
        rows += [Row(1, "write", last, None, 1, 100), Row(2, "cas", (3, last), (3, last), 4, 101)]
        check(from_rows(rows), "cas-register:initial=-77")
    assert len(asked) > 100
    assert asked.most_common(1)[0][1] == 1


def test_the_shortest_prefix_may_take_longer_than_the_verdict_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here the verdict takes 20 ms, and to prove the prefix before it to be valid takes minutes."""
    history = make("cas-register", Load(10_000, 10, 0.01, "exhausted"))
    plain = check(history, "cas-register")
    assert plain.valid is False
    assert plain.violation is not None and plain.violation.prefix is None
    monkeypatch.setattr(running_check, "PREFIX_S", 0.3)
    begun = time.monotonic()
    with_prefix = check(history, "cas-register", find_prefix=True)
    assert time.monotonic() - begun < 30
    found = with_prefix.violation
    assert with_prefix.valid is False
    assert found is not None and found.prefix is not None
    assert not found.prefix_is_shortest
    assert check(cut(history, found.prefix), "cas-register").valid is False
    explanation = explain(history, with_prefix, "cas-register")
    assert not explanation.is_proof
    assert "no order of the operations called by then" in explanation.reason
    assert explanation.stuck is not None
    assert explanation.operations[explanation.stuck].place == history.place[found.stuck or 0]
