"""What the register monitor finds, cannot decide, and says about it."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from shalott.checkers.history.concurrent import Row
from shalott.checkers.monitors.register_monitor import RegisterMonitor
from tests.checkers.monitors.comparison import decide

pytestmark = pytest.mark.unit


def write(value: Hashable, call: int, ret: int | None) -> Row:
    return Row(call, "write", value, None, call, ret)


def read(value: Hashable, call: int, ret: int | None) -> Row:
    return Row(call, "read", None, value, call, ret)


def cas(before: Hashable, after: Hashable, call: int, ret: int | None, type: str = "ok") -> Row:
    return Row(call, "cas", (before, after), None, call, ret, type)


INVALID = {
    "fresh": (
        [write(1, 0, 1), read(2, 2, 3)],
        (1,),
        "the read of 2 found 2, which no operation wrote",
    ),
    "future": (
        [read(1, 0, 1), write(1, 2, 3)],
        (0, 1),
        "the read of 1 returned before the write of 1 was called",
    ),
    "stale": (
        [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
        (0, 1, 1, 2),
        "the read of 1 was called after the write of 2 had returned, and the write of 2 was called"
        " after the write of 1 had returned: 1 was in the register before and after another value"
        " but was written once",
    ),
    "stale, initial": (
        [write(1, 0, 1), read(None, 2, 3)],
        (0, 0, 1),
        "the read of nil was called after the write of 1 had returned, although the initial value"
        " was never written again",
    ),
    "replaced": (
        [write(1, 0, 1), cas(1, 2, 2, 5), cas(1, 3, 3, 4)],
        (1, 2),
        "the compare-and-set from 1 to 2 and the compare-and-set from 1 to 3 both replaced 1,"
        " which was written once",
    ),
    "cycle": (
        [cas(1, 2, 0, 3), cas(2, 1, 1, 2)],
        (0, 1),
        "each of these replaced what another of them wrote, so none was first: the compare-and-set"
        " from 1 to 2, the compare-and-set from 2 to 1",
    ),
    "chain": (
        [write(1, 0, 9), cas(1, 2, 1, 10), read(2, 2, 3), read(1, 4, 5)],
        (2, 3),
        "the read of 1 was called after the read of 2 had returned, although the compare-and-sets"
        " say that what it found came earlier",
    ),
    "held": (
        [write(1, 0, 1), cas(1, 2, 2, 3, "fail"), read(1, 4, 5)],
        (1, 0, 2),
        "the compare-and-set from 1 to 2 failed although the register held 1 before (see the write"
        " of 1) and still did afterwards (see the read of 1)",
    ),
    "held, initial": (
        [cas(None, 2, 0, 1, "fail"), read(None, 2, 3)],
        (0, 1),
        "the compare-and-set from nil to 2 failed although the register held nil initially and"
        " still did afterwards (see the read of nil)",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_violation_is_named_proved_and_put_in_words(name: str) -> None:
    rows, operations, reason = INVALID[name]
    answer = decide(RegisterMonitor(), rows)
    assert answer.valid is False
    assert answer.violation == name.partition(",")[0]
    assert answer.operations == operations
    assert answer.reason == reason


VALID = {
    "nothing": [],
    "a crashed write may take effect late": [
        write(1, 0, None),
        write(2, 1, 2),
        read(2, 3, 4),
        read(1, 5, 6),
    ],
    "or never": [write(1, 0, None), write(2, 1, 2), read(2, 3, 4)],
    "a crashed compare-and-set happened if its value was seen": [
        write(1, 0, 1),
        cas(1, 2, 2, None),
        read(1, 3, 4),
        read(2, 5, 6),
    ],
    "values that nobody reads may repeat": [write(1, 0, 1), write(1, 2, 3), write(1, 4, None)],
    "a failed write may be repeated": [
        write(1, 0, 1)._replace(type="fail"),
        write(1, 2, 3),
        read(1, 4, 5),
    ],
    "a compare-and-set of a value to itself is a read": [
        write(1, 0, 1),
        cas(1, 1, 2, 3),
        cas(1, 2, 4, 5),
    ],
    "one that failed came after its value was replaced": [
        write(1, 0, 1),
        write(2, 2, 3),
        cas(1, 3, 4, 5, "fail"),
    ],
    "or before it was written": [cas(1, 3, 0, 1, "fail"), write(1, 2, 3), read(1, 4, 5)],
    "or a crashed write came between": [
        write(1, 0, 1),
        write(9, 2, None),
        cas(1, 3, 3, 4, "fail"),
    ],
}


@pytest.mark.parametrize("name", VALID)
def test_what_is_linearizable(name: str) -> None:
    assert decide(RegisterMonitor(), VALID[name]).valid is True


UNKNOWN = {
    "value 1 was written twice and was observed": [write(1, 0, 1), write(1, 2, 3), read(1, 4, 5)],
    "value nil is the initial one, was written, and was observed": [
        write(None, 0, 1),
        read(None, 2, 3),
    ],
    "a compare-and-set has no pair of values but [1 2 3]": [
        Row(0, "cas", (1, 2, 3), None, 0, 1),
    ],
    "'enqueue' is not an operation of this object": [Row(0, "enqueue", 1, None, 0, 1)],
    # Two of three have to be before or after; both writes can't be first.
    "the failed compare-and-set from 1 to 9 is an observation that only a search weighs": [
        write(1, 0, 10),
        write(2, 1, 11),
        cas(1, 9, 12, 13, "fail"),
        cas(2, 9, 14, 15, "fail"),
    ],
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_it_can_not_decide_it_says(why: str) -> None:
    answer = decide(RegisterMonitor(), UNKNOWN[why])
    assert (answer.valid, answer.violation) == ("unknown", "")
    assert answer.why == why or answer.why.startswith("the failed compare-and-set")


def test_a_read_of_nil_matches_anything_if_asked_to() -> None:
    rows = [write(1, 0, 1), read(None, 2, 3)]
    assert decide(RegisterMonitor(nil="any"), rows).valid is True
    assert decide(RegisterMonitor(nil="value"), rows).valid is False


def test_failed_compare_and_sets_are_ignored_if_asked_to() -> None:
    rows, _, _ = INVALID["held"]
    assert decide(RegisterMonitor(failed_cas="ignored"), rows).valid is True
    said_no = [rows[0], rows[1]._replace(type="ok", result=False), rows[2]]
    assert decide(RegisterMonitor(failed_cas="ignored"), said_no).valid is False


def test_the_initial_value_is_there_before_everything() -> None:
    assert decide(RegisterMonitor(initial=7), [read(7, 0, 1), write(1, 2, 3)]).valid is True
    assert decide(RegisterMonitor(initial=7), [write(1, 0, 1), read(7, 2, 3)]).valid is False
    assert decide(RegisterMonitor(initial=7), [read(None, 0, 1)]).violation == "fresh"


@pytest.mark.parametrize("values", [(1, True), (1, 1.0), (0, False), ("1", 1), ((1, 2), (2, 1))])
def test_values_of_different_types_are_different(values: tuple[Hashable, Hashable]) -> None:
    one, other = values
    assert decide(RegisterMonitor(), [write(one, 0, 1), read(one, 2, 3)]).valid is True
    assert decide(RegisterMonitor(), [write(one, 0, 1), read(other, 2, 3)]).violation == "fresh"
    swapped = [write(0.5, 0, 1), cas(0.5, one, 2, 3), read(other, 4, 5)]
    assert decide(RegisterMonitor(), swapped).violation == "fresh"
