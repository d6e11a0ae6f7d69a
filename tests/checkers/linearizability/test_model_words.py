"""Long texts are cut where they differ, on a page and in a sentence."""

from __future__ import annotations

import random

import pytest

from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.explain import explain
from shalott.checkers.linearizability.model_words import cut_apart
from shalott.checkers.models import make_model

pytestmark = pytest.mark.unit


def test_what_is_short_stays_as_it_is() -> None:
    assert cut_apart(["a", "b" * 12], 12) == ["a", "b" * 12]


def test_a_long_text_alone_keeps_its_beginning() -> None:
    assert cut_apart(["x" * 500], 20) == ["x" * 19 + "…"]


def test_texts_that_differ_late_are_cut_where_they_do() -> None:
    one, other = (f"{'x' * 300}{digit}{'y' * 300}" for digit in "12")
    assert cut_apart([one, other], 40) == [
        "xxxxxxxxxx…xxxxxxxxxxxxxx1yyyyyyyyyyyyy…",
        "xxxxxxxxxx…xxxxxxxxxxxxxx2yyyyyyyyyyyyy…",
    ]
    assert cut_apart([one], 40, also=[other])[0] == "xxxxxxxxxx…xxxxxxxxxxxxxx1yyyyyyyyyyyyy…"
    assert cut_apart(["x" * 300 + "1", "x" * 300 + "2"], 24) == [
        "xxxxxx…xxxxxxxxxxxxxxxx1",
        "xxxxxx…xxxxxxxxxxxxxxxx2",
    ]


def test_no_two_become_the_same_and_none_is_too_long() -> None:
    rng = random.Random(7)
    for _ in range(500):
        stem = "".join(rng.choices("ab", k=rng.randint(0, 200)))
        texts = list({stem + "".join(rng.choices("abc", k=rng.randint(0, 30))) for _ in range(2)})
        cut = cut_apart(texts, 40)
        assert len(set(cut)) == len(texts), texts
        assert all(len(text) <= 40 for text in cut)


def test_an_explanation_tells_long_values_apart() -> None:
    stem = "x" * 400
    shown = explain(
        from_rows(
            [
                Row(0, "write", f"{stem}1", None, 0, 1),
                Row(1, "write", f"{stem}2", None, 2, 3),
                Row(2, "read", None, f"{stem}1", 4, 5),
            ]
        ),
        make_model("register"),
    )
    assert [each.text[-2:] for each in shown.operations] == ['1"', '2"', '1"']
    assert all(len(each.text) <= 200 for each in shown.operations)
    assert 'xxx1" of process 2 returned' in shown.reason and 'xxx2": ' in shown.reason
    assert len(shown.reason) < 400
    states = [step.state for step in shown.linearizations[0].steps]
    assert [state[-2:] for state in states] == ['1"', '2"']
    (blocked,) = shown.linearizations[0].blocked
    assert blocked.why.index('xxx1", but') < blocked.why.index("xxx2")
