"""What is true of linearizability whatever the object, on histories that Hypothesis draws."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.checking import check
from tests.checkers.random_histories import MODELS, mutated, random_history

pytestmark = pytest.mark.explore

EXAMPLES: Final = 150


@st.composite
def histories(draw: Any, good: bool) -> tuple[str, list[Row]]:
    """(the model's name, rows)."""
    model = draw(st.sampled_from(MODELS))
    rng = random.Random(draw(st.integers(0, 2**32)))
    rows = random_history(
        model,
        rng,
        operations=draw(st.integers(1, 30)),
        processes=draw(st.integers(1, 6)),
        crash=draw(st.sampled_from([0.0, 0.1, 0.3])),
    )
    return model, rows if good else mutated(rows, rng)


def is_valid(model: str, rows: list[Row], **options: Any) -> bool:
    verdict = check(from_rows(rows), model, time_limit_s=60, **options)
    assert verdict.valid != "unknown", verdict
    return verdict.valid is True


def spread(rows: list[Row]) -> list[Row]:
    """The same, with room between events."""
    return [
        row._replace(call=row.call * 10, ret=None if row.ret is None else row.ret * 10)
        for row in rows
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(good=True))
def test_what_an_object_did_is_linearizable(drawn: tuple[str, list[Row]]) -> None:
    model, rows = drawn
    assert is_valid(model, rows)
    assert is_valid(model, rows, by="general")


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(good=False))
def test_monitors_and_search_agree(drawn: tuple[str, list[Row]]) -> None:
    model, rows = drawn
    assert is_valid(model, rows) == is_valid(model, rows, by="general")


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(good=False), st.randoms(use_true_random=False))
def test_a_later_return_never_makes_it_invalid(drawn: tuple[str, list[Row]], rng: Any) -> None:
    """More operations are concurrent then: every order that was possible still is."""
    model, rows = drawn
    completed = [at for at, row in enumerate(rows) if row.ret is not None and row.type == "ok"]
    if not completed or not is_valid(model, rows):
        return
    wider = spread(rows)
    at = rng.choice(completed)
    wider[at] = wider[at]._replace(ret=wider[at].ret + rng.randrange(200) * 10 + 5)
    assert is_valid(model, wider)


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(good=False), st.randoms(use_true_random=False))
def test_prefixes_of_what_is_valid_are_valid(drawn: tuple[str, list[Row]], rng: Any) -> None:
    model, rows = drawn
    if not rows or not is_valid(model, rows):
        return
    until = rng.randrange(max(max(row.call, row.ret or 0) for row in rows) + 1)
    prefix = []
    for row in rows:
        if row.call > until:
            continue
        if row.ret is None or row.ret <= until:
            prefix.append(row)
        elif row.type == "ok":
            prefix.append(row._replace(ret=None, type="info"))
    assert is_valid(model, prefix)


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(good=False))
def test_the_window_ends_where_it_became_invalid(drawn: tuple[str, list[Row]]) -> None:
    """What was called after the violation's prefix has nothing to do with it."""
    model, rows = drawn
    history = from_rows(rows)
    verdict = check(history, model, time_limit_s=60, find_prefix=True)
    if verdict.valid is True:
        return
    assert verdict.violation is not None
    prefix, stuck = verdict.violation.prefix, verdict.violation.stuck
    assert prefix is not None
    assert stuck is not None
    assert int(history.ret[stuck]) == prefix
    ordered = sorted(rows, key=lambda row: row.call)
    kept = [row for row, call in zip(ordered, history.call, strict=True) if call < prefix]
    assert not is_valid(model, kept)


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(good=False), histories(good=False))
def test_objects_are_independent(one: tuple[str, list[Row]], other: tuple[str, list[Row]]) -> None:
    model = one[0]
    both = [row._replace(key="a") for row in spread(one[1])]
    if other[0] == model:
        both += [
            row._replace(call=row.call + 3, ret=None if row.ret is None else row.ret + 3, key="b")
            for row in spread(other[1])
        ]
    expected = is_valid(model, one[1]) and (other[0] != model or is_valid(model, other[1]))
    assert is_valid(model, both) == expected
