"""True, 1, 1.0 and 1M are four values, wherever they stand."""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.checkers.history.column_values import exact, exact_all, original
from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.linearizability.checking import check, explain, read_history
from shalott.checkers.linearizability.running_check import By

pytestmark = pytest.mark.unit

ONES: tuple[Hashable, ...] = (1, True, 1.0, Decimal(1))
ALIKE: list[tuple[Hashable, Hashable]] = [
    pair
    for shape in (
        lambda one: one,
        lambda one: (one,),
        lambda one: (0, (one, "a")),
        lambda one: frozenset({one}),
        lambda one: frozenset({("key", one)}),
    )
    for pair in combinations([shape(one) for one in ONES], 2)
]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just(Decimal(1))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_python_takes_for_equal_differs(one: Hashable, other: Hashable) -> None:
    assert one == other
    assert exact(one) != exact(other)
    assert len({exact(one), exact(other)}) == 2
    assert len(set(exact_all((one, other)))) == 2


@given(VALUES)
def test_it_is_kept(value: Hashable) -> None:
    assert type(original(exact(value))) is type(value)
    assert exact(original(exact(value))) == exact(value)


@pytest.mark.explore
@given(st.lists(VALUES, max_size=5))
def test_all_at_once_is_each(values: list[Hashable]) -> None:
    assert list(exact_all(values)) == [exact(value) for value in values]


def test_every_nan_is_one_value() -> None:
    assert exact(float("nan")) == exact(float("nan"))
    assert exact((1, float("nan"))) == exact((1, float("nan")))
    assert exact(float("nan")) != exact(("float", "nan"))


@pytest.mark.explore
@pytest.mark.parametrize("by", ["monitor", "general"])
@pytest.mark.parametrize(
    ("model", "write", "read"),
    [
        ("register", "write", "read"),
        ("cas-register", "write", "read"),
        ("key-value", "put", "get"),
        ("fifo-queue", "enqueue", "dequeue"),
        ("unordered-queue", "enqueue", "dequeue"),
        ("log", "append", "read"),
        ("set", "add", "read"),
    ],
)
def test_a_value_is_not_taken_for_another(model: str, write: str, read: str, by: By) -> None:
    for written, seen in [pair for a, b in ALIKE for pair in ((a, b), (b, a), (a, a))]:
        offset = 0 if model == "log" else None
        rows = [
            Row(0, write, written, offset, 0, 1),
            Row(1, read, offset, (seen,) if model == "set" else seen, 2, 3),
        ]
        history = from_rows(rows)
        verdict = check(history, model, by=by)
        assert verdict.valid is (written is seen), f"written {written!r}, seen {seen!r}"
        if verdict.valid is False:
            assert explain(history, verdict, model).reason


def test_both_in_one_history_are_two_kinds() -> None:
    rows = [
        Row(0, "write", (1,), None, 0, 1),
        Row(0, "write", (True,), None, 2, 3),
        Row(1, "read", None, (1,), 4, 5),
    ]
    for by in ("auto", "monitor", "general"):
        verdict = check(from_rows(rows), "register", by=by)
        assert verdict.valid is False
        assert explain(from_rows(rows), verdict, "register").reason


@pytest.mark.parametrize("seen", [True, 1.0, Decimal(1), 1])
def test_a_number_is_an_integer(seen: Hashable) -> None:
    counter = [Row(0, "inc", None, None, 0, 1), Row(1, "read", None, seen, 2, 3)]
    tail = [Row(0, "append", 5, 0, 0, 1), Row(1, "tail", None, seen, 2, 3)]
    second = [Row(0, "append", 5, 0, 0, 1), Row(1, "append", 6, seen, 2, 3)]
    for rows, model in ((counter, "counter"), (tail, "log"), (second, "log")):
        assert check(from_rows(rows), model).valid is (type(seen) is int)


def test_a_table_that_is_kept_does_not_mix_them(tmp_path: Path) -> None:
    """The second history is searched with what the model said of the first."""
    for number, seen in enumerate(("[1]", "[true]", "[1.0]", "[1]")):
        path = tmp_path / f"{number}.edn"
        path.write_text(
            "{:process 0, :type :invoke, :f :write, :value [1]}\n"
            "{:process 0, :type :ok, :f :write, :value [1]}\n"
            "{:process 0, :type :invoke, :f :read, :value nil}\n"
            f"{{:process 0, :type :ok, :f :read, :value {seen}}}\n"
        )
        verdict = check(read_history(path), "register", by="general")
        assert verdict.valid is (seen == "[1]")
