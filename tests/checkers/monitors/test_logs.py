"""What the log monitor finds, cannot decide, and says about it."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.checkers.history.concurrent import Row
from shalott.checkers.monitors.log_monitor import LogMonitor
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
from tests.checkers.random_histories import ALog

pytestmark = pytest.mark.unit


def append(value: Hashable, offset: int | None, call: int, ret: int | None) -> Row:
    return Row(call, "append", value, offset, call, ret)


def read(offset: Hashable, value: Hashable, call: int, ret: int | None) -> Row:
    return Row(call, "read", offset, value, call, ret)


def tail(count: int, call: int, ret: int | None) -> Row:
    return Row(call, "tail", None, count, call, ret)


INVALID = {
    "fresh": (
        [append("a", 0, 0, 1), read(1, "b", 2, 3)],
        (1,),
        'the read of offset 1 that found "b" found what no operation appended',
    ),
    "twice": (
        [append("a", 0, 0, 1), append("b", 0, 2, 3)],
        (0, 1),
        'offset 0 was given to "a" and to "b"',
    ),
    "differs": (
        [append("a", 0, 0, 1), read(0, "b", 2, 3)],
        (1, 0),
        'one offset holds two values: see the read of offset 0 that found "b", and the append of'
        ' "a" at offset 0',
    ),
    "elsewhere": (
        [append("a", 0, 0, 1), append("b", 1, 2, 3), read(2, "a", 4, 5)],
        (2, 0),
        'one append is at two offsets: see the read of offset 2 that found "a", and the append of'
        ' "a" at offset 0',
    ),
    "elsewhere, crashed": (
        [append("a", None, 0, None), read(0, "a", 1, 2), read(1, "a", 3, 4)],
        (2, 1),
        'one append is at two offsets: see the read of offset 1 that found "a", and the read of'
        ' offset 0 that found "a"',
    ),
    "gap": (
        [append("a", 0, 0, 1), append("c", 2, 2, 3)],
        (1,),
        'there are too few appends to fill every offset below the append of "c" at offset 2',
    ),
    "gap, far": (
        [tail(10**15, 0, 1)],
        (0,),
        f"there are too few appends to fill every offset below the tail that counted {10**15}",
    ),
    "order": (
        [append("b", 1, 0, 1), append("a", 0, 2, 3)],
        (0, 1),
        'the append of "a" at offset 0 was called after the append of "b" at offset 1 had returned,'
        " although what they saw says that it came first",
    ),
    "order, end": (
        [append("a", 0, 0, 1), read(0, None, 2, 3)],
        (0, 1),
        'the read of offset 0 that found the end was called after the append of "a" at offset 0 had'
        " returned, although what they saw says that it came first",
    ),
    "order, future": (
        [read(0, "a", 0, 1), append("a", None, 2, None)],
        (0, 1),
        'the append of "a" was called after the read of offset 0 that found "a" had returned,'
        " although what they saw says that it came first",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_violation_is_named_proved_and_put_in_words(name: str) -> None:
    rows, operations, reason = INVALID[name]
    answer = decide(LogMonitor(), rows)
    assert answer.valid is False
    assert answer.violation == name.partition(",")[0]
    assert answer.operations == operations
    assert answer.reason == reason


VALID = {
    "a crashed append may be anywhere": [
        append("a", None, 0, None),
        append("b", 1, 1, 2),
        read(0, "a", 3, 4),
    ],
    "even where nobody read": [append("a", None, 0, None), append("b", 1, 1, 2), tail(2, 3, 4)],
    "or nowhere": [append("a", None, 0, None), append("b", 0, 1, 2), tail(1, 3, 4)],
    "values may repeat": [append("a", 0, 0, 1), append("a", 1, 2, 3), read(1, "a", 4, 5)],
    "the end may be far": [read(10**15, None, 0, 1)],
}


@pytest.mark.parametrize("name", VALID)
def test_what_is_linearizable(name: str) -> None:
    assert decide(LogMonitor(), VALID[name]).valid is True


UNKNOWN = {
    'value "a" was read at offset 0, and several crashed appends may have appended it': [
        append("a", None, 0, None),
        append("a", None, 1, None),
        read(0, "a", 2, 3),
    ],
    "nil was appended": [append(None, 0, 0, 1)],
    "an append did not say at which offset": [append("a", None, 0, 1)],
    "an append returned what is no offset": [append("a", None, 0, 1)._replace(result="0")],
    "a read asked for what is no offset": [read("0", None, 0, 1)],
    "a tail returned what is no number": [tail(1, 0, 1)._replace(result=None)],
    "an offset is negative": [read(-1, None, 0, 1)],
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_it_can_not_decide_it_says(why: str) -> None:
    answer = decide(LogMonitor(), UNKNOWN[why])
    assert (answer.valid, answer.violation, answer.why) == ("unknown", "", why)


# --- against the definition -----------------------------------------------------------------------

SUBJECT = Subject(LogMonitor(), "log", "log", lambda rng: ALog(values(rng)))
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.timeout(TIMEOUT_S)
def test_the_monitor_agrees_with_every_order_of_small_histories() -> None:
    violations = {"fresh", "twice", "differs", "elsewhere", "gap", "order"}
    agrees_with_every_order(SUBJECT, violations, unknown=0.1)


@settings(max_examples=40)
@given(seed=seeds, cut_at=st.integers(0, 60))
def test_every_prefix_of_a_linearizable_history_is_linearizable(seed: int, cut_at: int) -> None:
    prefixes_stay_linearizable(SUBJECT, seed, cut_at)


@settings(max_examples=40)
@given(seed=seeds, gap=st.integers(1, 1000))
def test_only_the_order_of_events_matters(seed: int, gap: int) -> None:
    only_the_order_of_events_matters(SUBJECT, seed, gap)


@settings(max_examples=40)
@given(seed=seeds)
def test_names_of_values_do_not_matter(seed: int) -> None:
    def renamed(row: Row, names: dict[Hashable, Hashable]) -> Row:
        if row.f == "append":
            return row._replace(argument=names.get(row.argument, row.argument))
        if row.f == "read":
            return row._replace(result=names.get(row.result, row.result))
        return row

    names_of_values_do_not_matter(SUBJECT, seed, renamed)


@settings(max_examples=40)
@given(seed=seeds)
def test_more_freedom_keeps_a_history_linearizable(seed: int) -> None:
    more_freedom_keeps_it_linearizable(SUBJECT, seed)


@settings(max_examples=40)
@given(seed=seeds, draw=st.randoms(use_true_random=False))
def test_reads_and_tails_can_be_left_out(seed: int, draw: random.Random) -> None:
    rows = SUBJECT.rows(random.Random(seed), operations=30)
    if decide(LogMonitor(), rows).valid is True:
        fewer = [row for row in rows if row.f == "append" or draw.random() < 0.5]
        assert decide(LogMonitor(), fewer).valid is True
