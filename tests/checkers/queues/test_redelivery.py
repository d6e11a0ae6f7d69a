"""Deliveries that lack the flag, each planted, and every doubt that excuses one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.queues.total_queue import TotalQueue
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def given_back(story: Story, value: int, at: float, redelivered: bool = False) -> Story:
    """A client had the message and did not acknowledge it."""
    return story.row(
        "dequeue",
        at,
        kind="fail",
        error="given back: connection lost",
        redelivered=redelivered,
        extra={"given_back": value},
    )


def ruled() -> Story:
    """n1 is master of the queue from 1 s on and lives until the end."""
    story = Story().phases().enqueue(9, 5)
    story.role("n1", 1, "master", 3).role("n2", 1.1, "mirror").role("n3", 1.2, "mirror")
    return story.acked("n1", 60, 61, 3).empty(64.5)


def check(story: Story) -> Result:
    return TotalQueue().check(story.history())


# What one master delivered, of which the last should have been flagged.
WRONG: dict[str, Callable[[Story], Story]] = {
    "twice without the flag": lambda s: s.dequeue(9, 6).dequeue(9, 7),
    "at once, to two clients": lambda s: s.dequeue(9, 6, took=0.5).dequeue(9, 6.2, took=0.5),
    "without the flag after one with it": lambda s: s.dequeue(9, 6, True).dequeue(9, 7),
    "through another node": lambda s: s.dequeue(9, 6).dequeue(9, 7, node="n2", process=1),
    "after a client had given it back": lambda s: given_back(s, 9, 6).dequeue(9, 7),
    "while a mirror came and went": lambda s: (
        s.dequeue(9, 6).role("n2", 6.5, "mirror").dequeue(9, 7)
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_master_that_delivered_it_must_flag_it(what: str) -> None:
    result = check(WRONG[what](ruled()))
    assert result.valid is False
    assert result.detail["broken"] == ["unflagged"]
    assert result.counts["unflagged-count"] == 1
    (found,) = [anomaly for anomaly in result.anomalies if anomaly.kind == "unflagged"]
    assert found.detail["values"] == [9]
    assert len(found.operations) == 3


EXCUSED: dict[str, Callable[[Story], Story]] = {
    "delivered once": lambda s: s.dequeue(9, 6),
    "flagged": lambda s: s.dequeue(9, 6).dequeue(9, 7, True),
    "flagged after a client had given it back": lambda s: given_back(s, 9, 6).dequeue(9, 7, True),
    "another message given back": lambda s: given_back(s, 8, 6).dequeue(9, 7),
    "flagged, and answered later than the first began": lambda s: s.dequeue(
        9, 6, True, took=0.5
    ).dequeue(9, 6.2, took=0.5),
    "another master in between": lambda s: (
        s.dequeue(9, 6).role("n1", 6.2, "mirror").role("n2", 6.3, "master", 4).dequeue(9, 7)
    ),
    "another master beside it": lambda s: (
        s.role("n2", 5.5, "master", 4).dequeue(9, 6).dequeue(9, 7)
    ),
    "the master had begun a moment ago": lambda s: (
        s.role("n1", 5.5, "mirror").role("n1", 5.9, "master", 4).dequeue(9, 6).dequeue(9, 7)
    ),
    "its process crashed": lambda s: s.dequeue(9, 6).event("n1", 6.5, "crashed").dequeue(9, 7),
    "its node started again": lambda s: (
        s.dequeue(9, 6)
        .event("n1", 6.4, "started", group="", incarnation=2)
        .role("n1", 6.5, "master", 4, incarnation=2)
        .dequeue(9, 7)
        .acked("n1", 60, 62, 4, incarnation=2)
    ),
    "its node was killed": lambda s: s.dequeue(9, 6).fault(1, "kill", 6.4, 8, ["n1"]).dequeue(9, 7),
    "its last word came before": lambda s: s.dequeue(9, 62).dequeue(9, 63),
}


@pytest.mark.parametrize("what", EXCUSED)
def test_what_the_master_need_not_know_is_excused(what: str) -> None:
    result = check(EXCUSED[what](ruled()))
    assert result.counts["unflagged-count"] == 0
    assert result.valid is True


def test_a_message_that_was_given_back_and_never_came_again_is_lost() -> None:
    result = check(given_back(ruled(), 9, 6))
    assert result.detail["broken"] == ["lost"]


def test_without_event_logs_nothing_is_said() -> None:
    story = Story().phases().enqueue(9, 5).dequeue(9, 6).dequeue(9, 7).empty(64.5)
    assert check(story).valid is True
