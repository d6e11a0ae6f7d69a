"""The orders that an explanation shows are parts of orders of everything before, says an oracle."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.explain import explain
from shalott.checkers.linearizability.explanation import (
    CONTEXT,
    Explanation,
    PartialLinearization,
)
from shalott.checkers.linearizability.legal_orders import Before
from shalott.checkers.linearizability.order_search import Part, step_of
from shalott.checkers.linearizability.window import Window, parts_of
from shalott.checkers.models import make_model
from shalott.checkers.monitors.monitor import cut
from tests.checkers.linearizability.test_explain import bad_histories
from tests.checkers.random_histories import MODELS

pytestmark = pytest.mark.explore

HISTORIES = 60


def is_legal(
    name: str, history: ConcurrentHistory, shown: Explanation, order: PartialLinearization
) -> bool:
    """Every order of what was called before the stuck return is tried, with the shown steps in
    theirs, and without what is shown but is no step."""
    assert shown.stuck is not None and shown.prefix is not None
    end = shown.operations[shown.stuck].ret
    assert end is not None
    model = make_model(name)
    prefix = cut(history, shown.prefix)
    parts = [part for part in parts_of(prefix, model) if part.call < end]
    place = {shown.operations[step.operation].call: k for k, step in enumerate(order.steps)}
    before = {shown.operations[op].call for op in order.before}
    idle = {each.call for each in shown.operations if each.role != CONTEXT} - place.keys() - before
    free = [part for part in parts if part.call not in idle or returned(part, end)]
    must = {part.call for part in free if returned(part, end) or part.call in place}
    step = step_of(model)

    def go(state: Any, done: frozenset[int], taken: int) -> bool:
        if must <= done:
            return True
        waited = min((part.ret for part in free if part.call not in done), default=NEVER)
        for part in free:
            turn = place.get(part.call, 0 if part.call in before else taken)
            if part.call in done or part.call > waited or turn != taken:
                continue
            for after in step(state, part.operation):
                if go(after, done | {part.call}, taken + (part.call in place)):
                    return True
        return False

    return go(model.init, frozenset(), 0)


def returned(part: Part, end: int) -> bool:
    return part.ret < end


@pytest.mark.parametrize("name", MODELS)
def test_only_legal_orders_are_shown(name: str) -> None:
    for history, stuck in bad_histories(name, HISTORIES):
        shown = explain(history, make_model(name), stuck=stuck)
        assert shown.linearizations
        for order in shown.linearizations:
            assert is_legal(name, history, shown, order), shown


def test_orders_of_the_window_alone_would_not_all_be_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out forbids some: a read that any state allows, a state that nothing led to."""

    def as_it_is(before: Before, window: Window) -> tuple[Window, int]:
        return window, 0

    monkeypatch.setattr(Before, "legal", as_it_is)
    with pytest.raises(AssertionError):
        for name in ("multi-register", "key-value", "fenced-lock", "counter"):
            test_only_legal_orders_are_shown(name)


def test_orders_that_nobody_had_time_to_try_are_said_to_be_so() -> None:
    history, stuck = next(iter(bad_histories("counter", HISTORIES)))
    shown = explain(history, make_model("counter"), stuck=stuck, time_limit_s=-1.0)
    assert not shown.linearizations or "not found out in time" in shown.notes[-1]
