"""Of a log's losses it is told whether the system's manual documents them, and only then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeOfRuns
from shalott.checkers.partitions.kafka import Kafka
from shalott.checkers.partitions.lost_sends import LostSends
from shalott.core.documented_loss import DocumentedLoss
from shalott.harness.report.losses import loss_tables
from shalott.harness.report.verdict_words import headline
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit

MANUAL = "https://example.org/manual"
UNSYNCED = DocumentedLoss(
    name="unsynced", text="it was on no disk", manual=MANUAL,
    effects=("loses-unsynced",), hits="majority", before_ms=10_000,
)  # fmt: skip
LOST = range(20, 25)


def story(lost: Sequence[int] = LOST, drained: Sequence[str] = NODES) -> Story:
    """A message a second to one key; after the heal each node shows all but the lost ones."""
    told = Story().phases(load=40, heal=42, drain=44)
    for node in NODES:
        told.around("observe", 1, 1.01, node=node, extra={"claims": []})
    for value in range(40):
        told.row("send", value, key="", extra={"value": [["send", 0, [value, value]]]})
    kept = [[value, value] for value in range(40) if value not in lost]
    for process, node in enumerate(NODES, 10):
        told.row("assign", 44.1, process=process, node=node, key="", extra={"value": [0]})
        polled = {"value": [["poll", {"0": kept}]]}
        told.row("poll", 44.2, process=process, node=node, key="", extra=polled)
        if node in drained:
            told.row(
                *("poll", 44.3), process=process, node=node, key="", kind="fail", error="empty",
                extra={"value": [["poll", {"0": []}]]},
            )  # fmt: skip
    return told


def judged(told: Story, *documented: DocumentedLoss) -> Result:
    judge = JudgeOfRuns(Kafka(), fs=("send", "poll", "txn", "assign", "subscribe", "crash"))
    return LostSends(judge, documented).check(told.history())


def test_a_documented_loss_is_invalid_and_told_with_the_manuals_address() -> None:
    told = story().fault(1, "power", 26, 30, ["n1", "n2"])
    result = judged(told, UNSYNCED)
    assert result.valid is False
    assert result.counts["lost-write-count"] == len(LOST)
    told_of = f", as is documented ({MANUAL})"
    assert headline([result]) == (
        f"Invalid: 5 writes were lost{told_of}, and 5 messages were never polled{told_of}."
    )
    [cause, runs] = loss_tables([result])
    assert cause.rows[0].cells[:3] == ["unsynced", f"it was on no disk ({MANUAL})", "5"]
    assert runs.rows[0].cells[1] == "key 0"


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(story(), id="no fault"),
        pytest.param(story().fault(1, "power", 26, 30, ["n1"]), id="one node"),
        pytest.param(story().fault(1, "kill", 26, 30, ["n1", "n2"]), id="no loss of power"),
        pytest.param(story().fault(1, "power", 38, 39, ["n1", "n2"]), id="long after"),
        pytest.param(story().fault(1, "power", 15, 16, ["n1", "n2"]), id="before"),
    ],
)
def test_without_one_part_of_it_the_loss_is_in_no_documented_way(told: Story) -> None:
    result = judged(told, UNSYNCED)
    assert result.counts["lost-unexplained-count"] == len(LOST)
    assert headline([result]).startswith("Invalid: 5 writes were lost, in no documented way, and")
    assert "as is documented" not in headline([result])


def test_of_two_runs_of_losses_each_is_told_for_itself() -> None:
    told = story(lost=[*LOST, 5]).fault(1, "power", 26, 30, ["n1", "n2"])
    result = judged(told, UNSYNCED)
    assert result.detail["loss"]["by-cause"] == {"unexplained": 1, "unsynced": 5}
    assert headline([result]).startswith(
        "Invalid: 6 writes were lost, 1 of them in no documented way"
    )


def test_of_nodes_that_were_not_read_to_their_end_nothing_is_said() -> None:
    result = judged(story(drained=["n1"]), UNSYNCED)
    assert result.valid is False
    assert "loss" not in result.detail
    assert "documented" not in headline([result])


def test_a_log_that_lost_nothing_is_as_the_judge_says() -> None:
    result = judged(story(lost=[]), UNSYNCED)
    assert result.valid is True
    assert "loss" not in result.detail
