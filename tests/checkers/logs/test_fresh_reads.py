"""reads: what had been acknowledged when a poll was sent, and was not found."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.checkers.logs.log_order import FreshReads
from tests.checkers.histories import Story
from tests.checkers.logs.test_replicated_log import Records, poll, send, story

pytestmark = pytest.mark.unit


def two_sends() -> Story:
    """Offset 0 is acknowledged at 1 s, offset 1 at 2 s."""
    return send(send(story(), 100, 1, 0), 101, 2, 1)


def is_stale(told: Story) -> bool:
    result = FreshReads().check(told.history())
    assert result.valid is (not result.anomalies)
    assert bool(result.anomalies) == bool(result.counts["stale-read-count"])
    return bool(result.anomalies)


@pytest.mark.parametrize(
    ("at", "start", "records", "stale"),
    [
        (3, 1, (), True),
        (3, 0, (), True),
        (3, 2, (), False),  # there is nothing yet
        (1.5, 1, (), False),  # the second one was not acknowledged yet
        (1.5, 0, (), True),
        (3, 0, ((0, 100),), False),  # a batch may be small
    ],
)
def test_a_poll_finds_what_was_acknowledged(
    at: float, start: int, records: Records, stale: bool
) -> None:
    assert is_stale(poll(two_sends(), at, start, records, process=5, node="n2")) is stale


@pytest.mark.parametrize(("start", "moved", "stale"), [(5, 1, True), (5, 2, False), (0, 1, False)])
def test_a_broker_that_sends_its_reader_back_says_where_its_queue_ends(
    start: int, moved: int, stale: bool
) -> None:
    extra: dict[str, Any] = {"from": start, "moved": moved}
    told = two_sends().row("poll", 3, kind="fail", error="there is no offset", extra=extra)
    assert is_stale(told) is stale


def test_sends_that_were_not_acknowledged_promise_nothing() -> None:
    assert not is_stale(poll(send(story(), 100, 1, None, "info"), 3, 0, (), process=5))


def test_queues_are_judged_apart() -> None:
    assert not is_stale(poll(two_sends(), 3, 0, (), process=5, key="shalott/1"))


def test_the_story_names_both() -> None:
    told = poll(two_sends(), 3, 1, (), process=5, node="n2")
    (anomaly,) = FreshReads().check(told.history()).anomalies
    assert anomaly.kind == "stale-read" and anomaly.detail == {"count": 1}
    assert "a reader at n2 was told" in anomaly.summary and "message 101 at 1" in anomaly.summary
    assert len(anomaly.operations) == 2
