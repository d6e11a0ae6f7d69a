"""Rates: what was asked, what was reached, and latencies without coordinated omission."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shalott.checkers.checker import Result
from shalott.checkers.runs.stats import Rates
from shalott.core.history import History
from shalott.harness.report.verdict_words import headline, summaries
from tests.checkers.histories import Story, ns

pytestmark = pytest.mark.unit


def paced(count: int, every_s: float, *, late_s: float = 0, took: float = 0.01) -> Story:
    """A load of 60 s with operations that were due at these times."""
    story = Story().phases()
    for number in range(count):
        due = number * every_s
        story.enqueue(number, due + late_s, took=took, due_ns=ns(due))
    return story


def check(history: History, asked_hz: float = 10, **more: Any) -> Result:
    return Rates(asked_hz, 60_000, **more).check(history)


def test_a_rate_that_was_reached_is_told_and_is_no_headline() -> None:
    result = check(paced(600, 0.1).history())
    assert result.valid is True and result.detail["remark"] == ""
    assert result.counts["asked-hz"] == 10 and result.counts["reached-hz"] == 10
    assert result.counts["reached-share"] == 1
    assert "10 operations a second were begun of the 10 asked" in summaries([result])[0]


def test_less_than_half_of_the_rate_makes_the_headline() -> None:
    result = check(paced(240, 0.25).history())
    assert result.valid is True
    assert headline([result]) == (
        "Valid: no checker of the workload's own judged it; what every run promises held;"
        " only 4 operations a second were begun of the 10 asked."
    )


def test_a_plan_may_demand_a_share_and_less_is_unknown() -> None:
    history = paced(480, 0.125).history()
    assert check(history).valid is True
    assert check(history, min_share=0.75).valid is True
    result = check(history, min_share=0.9)
    assert result.valid == "unknown"
    assert headline([result]) == (
        "Unknown: Only 8 operations a second were begun of the 10 asked,"
        " and the plan wants 0.9 of them."
    )


def test_latency_from_when_operations_were_due_has_their_wait_in_it() -> None:
    result = check(paced(100, 0.1, late_s=0.05).history())
    assert result.detail["latency_ms"]["0.5"] == 10
    assert result.detail["latency_from_due_ms"]["0.5"] == 60


def test_one_that_begins_late_stands_for_those_that_were_given_up_behind_it() -> None:
    """100 operations a second in 10 ms each, but for one that waits 10 s for a client: 990 others
    would have waited too."""
    story = Story().phases()
    for number in range(1000):
        story.enqueue(number, number * 0.01, due_ns=ns(number * 0.01))
    story.enqueue(1000, 20.1, due_ns=ns(10))
    detail = check(story.history(), asked_hz=100).detail
    assert detail["latency_ms"]["0.95"] == 10
    assert 4_500 < detail["latency_from_due_ms"]["0.95"] <= 10_110
    assert detail["latency_from_due_ms"]["0.5"] <= 130


def test_operations_that_no_schedule_paces_are_not_counted_where_others_are() -> None:
    story = paced(600, 0.1)
    for number in range(600):
        story.row("release", number * 0.1 + 0.05)
    assert check(story.history()).counts["reached-share"] == 1


def test_operations_after_the_load_are_not_of_its_rate() -> None:
    story = paced(600, 0.1)
    for number in range(600):
        story.dequeue(number, 64 + number / 1000, due_ns=ns(64))
    assert check(story.history()).counts["reached-share"] == 1


def test_an_older_history_says_when_operations_began_and_no_more() -> None:
    history = paced(240, 0.25).history()
    ops = history.ops.drop_columns(["due_ns"])
    result = check(History(ops=ops, events=history.events))
    assert result.counts["reached-hz"] == 4
    assert result.detail["latency_from_due_ms"] == {}
    nulls = pa.nulls(history.ops.num_rows, pa.int64())
    as_read = history.ops.drop_columns(["due_ns"]).append_column("due_ns", nulls)
    assert check(History(ops=as_read, events=history.events)).counts == result.counts


def test_a_history_without_a_load_is_no_ground_for_a_demand() -> None:
    empty = Story().enqueue(1, 1).history()
    assert check(empty).valid is True
    assert check(empty, min_share=0.5).valid == "unknown"
