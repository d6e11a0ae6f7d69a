"""What was never polled is a loss only where some node was read to its end."""

from __future__ import annotations

import pytest

from shalott.checkers.judge import JudgeOfRuns
from shalott.checkers.partitions.final_reads import PolledToTheEnd
from shalott.checkers.partitions.kafka import Kafka
from shalott.workloads.partitions import FS
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def story(*, reads_to_the_end: bool, twice: bool = False) -> Story:
    """The message 2 is acknowledged behind 1, and no poll comes as far as that."""
    told = Story().phases()
    for at, mop in enumerate([["send", 0, [0, 1]], ["send", 0, [1, 2]]]):
        told.row("send", 1 + at, extra={"value": [mop]}, key="")
    polled = [[0, 1], [1, 1]] if twice else [[0, 1]]
    told.row("assign", 65, extra={"value": [0]}, key="")
    told.row("poll", 65.1, extra={"value": [["poll", {"0": polled}]]}, key="")
    if reads_to_the_end:
        told.row("poll", 65.2, kind="fail", error="empty", key="", extra={"value": [["poll"]]})
    return told


def test_a_drain_that_came_to_no_end_accuses_no_message() -> None:
    checker = PolledToTheEnd(JudgeOfRuns(Kafka(), fs=FS))
    result = checker.check(story(reads_to_the_end=False).history())
    assert (result.valid, result.anomalies, result.counts["unseen-count"]) == ("unknown", (), 1)
    assert "what was never polled may stand there" in result.notes[0]
    result = checker.check(story(reads_to_the_end=True).history())
    assert result.valid is False
    assert [each.kind for each in result.anomalies] == ["unseen"]


def test_what_is_proved_otherwise_stays_proved() -> None:
    result = PolledToTheEnd(JudgeOfRuns(Kafka(), fs=FS)).check(
        story(reads_to_the_end=False, twice=True).history()
    )
    assert result.valid is False
    assert "unseen" not in {each.kind for each in result.anomalies}
