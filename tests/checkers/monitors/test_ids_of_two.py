"""One column out of two, numbered in one pass: the same as numbering values one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.checkers.engine import lib
from shalott.checkers.history.concurrent import FORM, INTEGER, NOTHING, Values
from shalott.checkers.monitors.monitor_columns import ids_of_two

pytestmark = pytest.mark.unit

SOMETHING = st.none() | st.integers(-3, 6)
ROWS = st.lists(st.tuples(SOMETHING, SOMETHING, st.booleans()), min_size=1, max_size=30)


def values(column: list[int | None]) -> Values:
    kinds = [NOTHING if each is None else INTEGER for each in column]
    numbers = [each or 0 for each in column]
    return Values(np.array(kinds, dtype=np.uint8), np.array(numbers, dtype=np.int64))


@pytest.mark.explore
@given(ROWS, SOMETHING)
def test_equal_values_and_only_they_have_one_id(
    rows: list[tuple[int | None, int | None, bool]], asked: int | None
) -> None:
    first, second, picks = map(list, zip(*rows, strict=True))
    chosen = [b if pick else a for a, b, pick in rows]
    found = ids_of_two(
        values(first), values(second), np.array(picks, dtype=np.uint8), 1, asked
    )  # fmt: skip
    integers = [each for each in chosen if each is not None]
    if not integers or max(integers) - min(integers) >= 2 * len(chosen):
        assert found is None
        return
    assert found is not None
    ids, count, place = found
    pairs = dict(zip(chosen, ids.tolist(), strict=True))
    assert [pairs[each] for each in chosen] == ids.tolist()
    assert len(set(pairs.values())) == len(pairs)
    assert all(0 <= each < count for each in ids.tolist())
    assert place == pairs.get(asked, lib.SHL_NONE)


@pytest.mark.parametrize(
    ("kinds", "numbers"),
    [
        ([FORM, INTEGER], [0, 5]),
        ([NOTHING, NOTHING], [0, 0]),
        ([INTEGER, INTEGER], [-(2**63), 2**63 - 1]),
        ([INTEGER, INTEGER], [0, 4]),
    ],
    ids=["a form", "no integer", "as far apart as can be", "too far for two rows"],
)
def test_what_takes_a_numbering_is_left_to_it(kinds: list[int], numbers: list[int]) -> None:
    column = Values(np.array(kinds, dtype=np.uint8), np.array(numbers, dtype=np.int64))
    assert ids_of_two(column, column, np.zeros(2, dtype=np.uint8), 1, None) is None
