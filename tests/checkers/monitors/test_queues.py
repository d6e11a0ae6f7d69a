"""One smallest history for each thing that a queue can do wrong, and for what a crash excuses."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from shalott.checkers.engine import new_budget
from shalott.checkers.history.concurrent import Row, from_rows
from shalott.checkers.history.value_text import value_text
from shalott.checkers.monitors.monitor import MonitorAnswer
from shalott.checkers.monitors.queue_monitor import BAG, FIFO, QueueMonitor

pytestmark = pytest.mark.unit

BOTH = pytest.mark.parametrize("monitor", [FIFO, BAG], ids=["fifo", "bag"])


def enq(value: Hashable, call: int, ret: int | None, type: str = "ok") -> Row:  # noqa: A002
    return Row(call, "enqueue", value, None, call, ret, type if ret is not None else "info")


def deq(value: Hashable, call: int, ret: int | None) -> Row:
    return Row(call, "dequeue", None, value, call, ret, "ok" if ret is not None else "info")


def crashed_deq(call: int) -> Row:
    return deq(None, call, None)


def check(monitor: QueueMonitor, *rows: Row) -> MonitorAnswer:
    return monitor(from_rows(rows), new_budget())


@BOTH
def test_no_operations_are_fine(monitor: QueueMonitor) -> None:
    assert check(monitor) == MonitorAnswer(monitor.name, True)


@BOTH
def test_a_message_from_nowhere(monitor: QueueMonitor) -> None:
    answer = check(monitor, enq(1, 0, 1), deq(7, 2, 3))
    assert (answer.valid, answer.violation, answer.operations) == (False, "fresh", (1,))
    assert answer.reason == "message 7 was dequeued but never enqueued"


@BOTH
def test_a_message_from_the_future(monitor: QueueMonitor) -> None:
    answer = check(monitor, deq("a", 0, 1), enq("a", 2, 3))
    assert (answer.violation, answer.operations) == ("fresh", (0, 1))
    assert answer.reason == 'message "a" was dequeued before its enqueue was called'


@BOTH
def test_a_message_whose_enqueue_failed(monitor: QueueMonitor) -> None:
    answer = check(monitor, enq(3, 0, 1, "fail"), deq(3, 2, 3))
    assert (answer.violation, answer.operations) == ("fresh", (1, 0))
    assert answer.reason == "message 3 was dequeued although its enqueue failed"


@BOTH
def test_a_failed_enqueue_may_be_tried_again(monitor: QueueMonitor) -> None:
    assert check(monitor, enq(3, 0, 1, "fail"), enq(3, 2, 3), deq(3, 4, 5)).valid is True


@BOTH
def test_a_message_that_comes_twice(monitor: QueueMonitor) -> None:
    answer = check(monitor, enq(3, 0, 1), deq(3, 2, 5), deq(3, 3, 4))
    assert (answer.violation, answer.operations) == ("repeated", (1, 2, 0))
    assert answer.reason == "message 3 was dequeued twice but enqueued once"


def test_order() -> None:
    rows = (enq(16, 0, 1), enq(17, 2, 3), deq(17, 4, 5), deq(16, 6, 7))
    answer = check(FIFO, *rows)
    assert (answer.violation, answer.operations) == ("order", (0, 3, 1, 2))
    assert answer.reason == (
        "message 17 was dequeued before message 16 although 16 was enqueued first"
        " and had not been dequeued"
    )
    assert check(BAG, *rows).valid is True


@pytest.mark.parametrize(
    "rows",
    [
        (enq(16, 0, 3), enq(17, 2, 5), deq(17, 6, 7), deq(16, 8, 9)),
        (enq(16, 0, 1), enq(17, 2, 3), deq(17, 4, 7), deq(16, 6, 9)),
        (enq(16, 0, None), enq(17, 2, 3), deq(17, 4, 5), deq(16, 6, 7)),
    ],
    ids=["enqueues-overlap", "dequeues-overlap", "the-first-enqueue-crashed"],
)
def test_what_overlaps_has_no_order(rows: tuple[Row, ...]) -> None:
    assert check(FIFO, *rows).valid is True


def test_a_crashed_enqueue_had_happened_when_its_message_was_seen() -> None:
    rows = (enq(1, 0, None), crashed_deq(1), deq(2, 3, 9), deq(1, 4, 5), enq(2, 6, 7))
    assert check(FIFO, *rows).valid is True
    empty = deq(None, 10, 11)
    assert check(FIFO, *rows, empty).valid is True
    assert check(FIFO, enq(1, 0, None), deq(None, 2, 5), deq(1, 6, 7)).valid is True


def test_a_message_that_was_overtaken_and_never_came() -> None:
    rows = (enq(16, 0, 1), enq(17, 2, 3), deq(17, 4, 5))
    answer = check(FIFO, *rows)
    assert (answer.violation, answer.operations) == ("lost", (0, 1, 2))
    assert answer.reason == (
        "message 17 was dequeued although message 16 was enqueued first and had not been dequeued"
    )
    assert check(BAG, *rows).valid is True


def test_a_crashed_dequeue_may_have_taken_one() -> None:
    two = (enq(15, 0, 1), enq(16, 2, 3), enq(17, 4, 5), deq(17, 6, 8))
    assert check(FIFO, *two, crashed_deq(7)).violation == "lost"
    assert check(FIFO, *two, crashed_deq(7), crashed_deq(9)).violation == "lost"
    assert check(FIFO, *two, crashed_deq(7), crashed_deq(-1)).valid is True
    answer = check(FIFO, *two, crashed_deq(7))
    assert answer.operations == (1, 2, 3)
    assert answer.reason == (
        "message 17 was dequeued although message 16 was enqueued first and had not been dequeued;"
        " no dequeue with an unknown result is left to have taken it in time"
    )


@BOTH
def test_a_crashed_enqueue_that_nobody_saw_did_not_happen(monitor: QueueMonitor) -> None:
    rows = (enq(16, 0, None), enq(17, 2, 3), deq(17, 4, 5), deq(None, 6, 7))
    assert check(monitor, *rows).valid is True


@BOTH
def test_empty_while_a_message_was_there(monitor: QueueMonitor) -> None:
    rows = (enq(5, 0, 1), deq(None, 2, 3), deq(5, 4, 5))
    answer = check(monitor, *rows)
    assert (answer.violation, answer.operations) == ("empty", (1, 0))
    assert answer.reason == "a dequeue found the queue empty although message 5 was in it"
    assert check(monitor, *rows[:2]).operations == (1, 0)


@BOTH
def test_empty_while_one_message_after_another_was_there(monitor: QueueMonitor) -> None:
    rows = (enq(5, 0, 1), deq(None, 2, 12), enq(6, 3, 4), deq(5, 5, 6), enq(7, 7, 8))
    answer = check(monitor, *rows, deq(6, 9, 10), deq(7, 13, 14))
    assert (answer.violation, answer.operations) == ("empty", (1, 0, 2, 4))
    assert answer.reason == (
        "a dequeue found the queue empty although there was a message in it: 5, then 6, then 7"
    )


@BOTH
def test_empty_in_the_moment_between_two_messages(monitor: QueueMonitor) -> None:
    rows = (enq(5, 0, 1), deq(None, 2, 12), deq(5, 3, 4), enq(6, 5, 6), deq(6, 13, 14))
    assert check(monitor, *rows).valid is True
    assert check(monitor, rows[0], deq(None, 2, 12), deq(5, 11, 15)).valid is True


@BOTH
def test_crashed_dequeues_may_have_emptied_the_queue(monitor: QueueMonitor) -> None:
    two = (enq(5, 0, 1), enq(6, 2, 3), deq(None, 6, 8))
    assert check(monitor, *two, crashed_deq(5), crashed_deq(7)).valid is True
    answer = check(monitor, *two, crashed_deq(5), crashed_deq(9))
    assert (answer.violation, answer.operations) == ("empty", (3, 1))


@BOTH
@pytest.mark.parametrize(
    ("row", "why"),
    [
        (enq(1, 8, 9), "value 1 was enqueued twice"),
        (enq(1, 8, None), "value 1 was enqueued twice"),
        (enq(None, 8, 9), "an enqueue had no value"),
        (Row(9, "peek", None, 1, 8, 9), "'peek' is not an operation of a queue"),
    ],
)
def test_what_it_cannot_decide(monitor: QueueMonitor, row: Row, why: str) -> None:
    answer = check(monitor, enq(1, 0, 1), deq(1, 2, 3), row)
    assert (answer.valid, answer.why) == ("unknown", why)


@BOTH
def test_other_names_of_the_operations(monitor: QueueMonitor) -> None:
    rows = (
        Row(0, "offer", 1, None, 0, 1),
        Row(1, "add", 2, None, 2, 3),
        Row(2, "poll", 9, 1, 4, 5),
    )
    assert check(monitor, *rows, Row(3, "remove", None, 2, 6, 7)).valid is True
    assert check(monitor, *rows, Row(3, "remove", None, 1, 6, 7)).violation == "repeated"


@BOTH
def test_values_of_all_kinds_are_told_apart(monitor: QueueMonitor) -> None:
    values: list[Hashable] = [1, "1", True, 1.0, (1,), -(2**63), 2**63 - 1, 0, "", False]
    into = [enq(value, 2 * at, 2 * at + 1) for at, value in enumerate(values)]
    out = [deq(value, 100 + 2 * at, 101 + 2 * at) for at, value in enumerate(values)]
    assert check(monitor, *into, *out).valid is True
    for missing in range(len(values)):
        answer = check(monitor, *into[:missing], *into[missing + 1 :], *out)
        assert answer.operations == (len(values) - 1 + missing,)
        assert (
            answer.reason
            == f"message {value_text(values[missing])} was dequeued but never enqueued"
        )


@BOTH
def test_a_form_that_was_never_enqueued_is_not_another_one(monitor: QueueMonitor) -> None:
    assert check(monitor, enq("a", 0, 1), deq("b", 2, 3)).violation == "fresh"
    assert (
        check(monitor, enq("a", 0, 1), enq("b", 2, 3), deq("a", 4, 5), deq("b", 6, 7)).valid is True
    )
    assert check(monitor, enq(0, 0, 1), deq("b", 2, 3)).violation == "fresh"


def in_a_row(count: int, step: int = 1) -> list[Row]:
    """``count`` messages go in, then come out in order; step: between their values."""
    into = [enq(at * step, 2 * at, 2 * at + 1) for at in range(count)]
    return into + [deq(at * step, 2 * (count + at), 2 * (count + at) + 1) for at in range(count)]


@BOTH
@pytest.mark.parametrize("step", [1, 2**40 + 1])
def test_many_values_near_and_far(monitor: QueueMonitor, step: int) -> None:
    rows = in_a_row(1000, step)
    assert check(monitor, *rows).valid is True
    rows[1500] = rows[1500]._replace(result=step // 2 + 5 * step + 1)
    assert check(monitor, *rows).violation == ("fresh" if step > 1 else "repeated")


@BOTH
def test_limits_are_obeyed(monitor: QueueMonitor) -> None:
    history = from_rows(in_a_row(1000))
    for limit in range(0, 40_000, 1000):
        budget = new_budget(memory_limit_bytes=limit)
        answer = monitor(history, budget)
        assert (answer.valid, answer.why) in ((True, ""), ("unknown", "memory"))
        assert answer.valid is True or limit < 32_000
        assert answer.valid == "unknown" or limit >= 12_000
        assert budget.bytes == 0
        assert budget.bytes_peak <= max(limit, 1)
    budget = new_budget()
    budget.cancel = 1
    assert monitor(history, budget).why == "cancelled"
    budget = new_budget(time_limit_s=1e-9)
    assert monitor(history, budget).why == "time"
    assert budget.bytes == 0


@BOTH
def test_a_part_of_a_long_history_takes_memory_for_itself_only(monitor: QueueMonitor) -> None:
    rows = [
        row._replace(call=row.call * 10**6, ret=None if row.ret is None else row.ret * 10**6)
        for row in [*in_a_row(20), deq(3, 100, 101), crashed_deq(99)]
    ]
    history = from_rows(rows)
    history.call[:] *= 10**6
    history.ret[history.ret != 2**31 - 1] *= 10**6
    budget = new_budget()
    answer = monitor(history, budget)
    assert (answer.violation, answer.operations) == ("repeated", (23, 41, 3))
    assert budget.bytes_peak < 20_000
    assert monitor.shortest_prefix(history, answer, new_budget()) == 82 * 10**6
    assert monitor(history, new_budget(memory_limit_bytes=100)).why == "memory"


def test_progress_is_counted() -> None:
    budget = new_budget()
    FIFO(from_rows(in_a_row(10)), budget)
    assert budget.done == 20
    assert budget.stopped == 0


def test_memory_is_a_few_words_an_operation() -> None:
    """Rows 4 bytes, their classes 1, the timeline 8, a value's mark 4 if near, 5 to 11 if far."""
    n = 50_000
    history = from_rows(in_a_row(n // 2))
    budget = new_budget()
    assert FIFO(history, budget).valid is True
    assert budget.bytes_peak <= 16 * n
    far = history.argument.number * np.int64(2**41 + 1)
    history.argument.number[:] = far
    history.result.number[:] *= np.int64(2**41 + 1)
    budget = new_budget()
    assert FIFO(history, budget).valid is True
    assert budget.bytes_peak <= 19 * n
