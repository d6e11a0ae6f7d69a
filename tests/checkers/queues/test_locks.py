"""Whether locks were of use: enough of them acquired, none of them lost."""

from __future__ import annotations

import pytest

from shalott.checkers.queues.locks import Locks
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit


def held(story: Story, at: float, *, lock: str = "q", process: int = 0) -> Story:
    story.row("acquire", at, process=process, key=lock)
    return story.row("release", at + 0.1, process=process, key=lock)


def refused(story: Story, at: float, times: int = 2, *, lock: str = "q") -> Story:
    for number, node in enumerate(NODES * times):
        story.row(
            "acquire", at + number / 10, kind="fail", error="empty", node=node, key=lock, process=1
        )
    return story


def used(times: int = 5) -> Story:
    story = Story().phases()
    for number in range(times):
        held(story, 1 + number)
    return story


def test_locks_that_are_acquired_after_the_heal_are_not_lost() -> None:
    result = Locks(min_acquired=5).check(held(refused(used(), 64.1), 65).history())
    assert result.valid is True
    assert result.counts["acquired-count"] == 6
    assert result.counts["refused-count"] == 6
    assert any("fencing" in note for note in result.notes)


def test_few_acquisitions_prove_nothing() -> None:
    result = Locks(min_acquired=7).check(held(used(), 65).history())
    assert result.valid == "unknown"
    assert "Only 6 locks were acquired" in result.notes[0]


def test_a_lock_that_every_node_refuses_after_the_heal_is_lost() -> None:
    result = Locks(min_acquired=5).check(refused(used(), 64.1).history())
    assert result.valid is False
    (anomaly,) = result.anomalies
    assert anomaly.kind == "lost-lock" and len(anomaly.operations) == 6
    assert "no client could acquire q" in anomaly.summary


@pytest.mark.parametrize(
    "story",
    [
        refused(used(), 64.1, times=1),
        refused(used(), 64.1).row("acquire", 65, kind="info", process=2),
        refused(used(), 50),
        refused(held(used(), 65, lock="other"), 64.1, lock="other"),
    ],
    ids=["too few refusals", "an attempt without an answer", "before the heal", "another lock"],
)
def test_what_does_not_prove_that_a_lock_is_lost(story: Story) -> None:
    assert Locks(min_acquired=5).check(story.history()).valid is True
