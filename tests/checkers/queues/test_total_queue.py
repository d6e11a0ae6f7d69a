"""total-queue: a history for each outcome, its verdict, and doubt about the drain."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.queues.total_queue import TotalQueue
from shalott.core.errors import UsageError
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit

EVERY = ("at-least-once", "at-most-once", "exactly-once")


def good() -> Story:
    """Two messages, sent and received once; everything drained."""
    story = Story().phases()
    story.enqueue(1, 1).enqueue(2, 2, node="n2", process=1)
    story.dequeue(1, 3).dequeue(2, 4, node="n3", process=2)
    return story.empty(64.5)


def check(story: Story, delivery: str = "at-least-once", complete: bool = True) -> Result:
    return TotalQueue(delivery=delivery).check(story.history(complete))


def test_good_history_is_valid_under_every_promise() -> None:
    for delivery in EVERY:
        result = check(good(), delivery)
        assert result.valid is True
        assert result.anomalies == ()
        assert result.notes == ()
    assert result.counts["attempt-count"] == 2
    assert result.counts["acknowledged-count"] == 2
    assert result.counts["ok-count"] == 2
    assert result.counts["delivered-once-count"] == 2
    assert result.counts["lost-count"] == 0


def test_empty_history_is_valid_and_has_no_counts() -> None:
    result = check(Story())
    assert result.valid is True
    assert set(result.counts.values()) == {0}


# kind -> (what makes it, the promises that it breaks)
CASES: dict[str, tuple[Callable[[Story], Story], tuple[str, ...]]] = {
    "lost": (lambda s: s.enqueue(9, 5), ("at-least-once", "exactly-once")),
    "recovered": (lambda s: s.enqueue(9, 5, "info").dequeue(9, 6), ()),
    "not-enqueued": (lambda s: s.enqueue(9, 5, "info").enqueue(10, 5, "fail"), ()),
    "duplicated": (
        lambda s: s.enqueue(9, 5).dequeue(9, 6).dequeue(9, 7),
        ("at-most-once", "exactly-once"),
    ),
    "redelivered": (
        lambda s: s.enqueue(9, 5).dequeue(9, 6).dequeue(9, 7, True).dequeue(9, 8, True),
        ("at-most-once", "exactly-once"),
    ),
    "phantom": (lambda s: s.enqueue(9, 5, "fail").dequeue(9, 6), EVERY),
    "unexpected": (lambda s: s.dequeue(9, 6), EVERY),
    "corrupted": (lambda s: s.row("dequeue", 6, error="corrupted"), EVERY),
    "too-early": (lambda s: s.enqueue(9, 7).dequeue(9, 6), EVERY),
}


@pytest.mark.parametrize("delivery", EVERY)
@pytest.mark.parametrize("kind", CASES)
def test_each_outcome_is_counted_and_judged(kind: str, delivery: str) -> None:
    add, breaks = CASES[kind]
    result = check(add(good()), delivery)
    assert result.counts[f"{kind}-count"] == (2 if kind == "not-enqueued" else 1)
    assert result.valid is (delivery not in breaks)
    assert result.detail["broken"] == ([kind] if delivery in breaks else [])
    others = {"lost", "duplicated", "unexpected", "phantom", "corrupted", "too-early"} - {kind}
    assert all(result.counts[f"{other}-count"] == 0 for other in others)
    named = [anomaly.kind for anomaly in result.anomalies]
    assert named == ([] if kind in ("recovered", "not-enqueued") else [kind])


def test_anomaly_names_the_operations_that_prove_it() -> None:
    story = good().enqueue(9, 5).dequeue(9, 6).dequeue(9, 7)
    (anomaly,) = check(story).anomalies
    rows = {row["index"]: row for row in story.history().ops.to_pylist()}
    assert [rows[index]["f"] for index in anomaly.operations] == ["enqueue", "dequeue", "dequeue"]
    assert {rows[index]["value"] for index in anomaly.operations} == {9}
    assert anomaly.detail["values"] == [9]


def test_info_message_delivered_twice_counts_as_delivered_and_not_as_recovered() -> None:
    result = check(good().enqueue(9, 5, "info").dequeue(9, 6).dequeue(9, 7))
    assert result.counts["duplicated-count"] == 1
    assert result.counts["recovered-count"] == 0
    assert result.counts["ok-count"] == 3
    assert result.detail["matrix"]["info"] == {"0": 0, "1": 0, "several": 1}


def test_flag_on_the_first_delivery_does_not_excuse_a_later_one_without() -> None:
    result = check(good().enqueue(9, 5).dequeue(9, 6, True).dequeue(9, 7))
    assert result.counts["duplicated-count"] == 1


def test_overlapping_deliveries_get_the_benefit_of_the_doubt() -> None:
    story = good().enqueue(9, 5).dequeue(9, 6, True, took=0.5).dequeue(9, 6.2, took=0.5)
    result = check(story)
    assert result.counts["redelivered-count"] == 1
    assert result.counts["duplicated-count"] == 0


def test_message_taken_by_a_dequeue_that_ended_info_is_delivered() -> None:
    story = good().enqueue(9, 5).dequeue(9, 6, kind="info")
    assert check(story).valid is True
    assert check(story.dequeue(9, 7, True)).counts["redelivered-count"] == 1


def test_info_dequeue_without_a_value_explains_no_loss() -> None:
    result = check(good().enqueue(9, 5).row("dequeue", 6, kind="info", took=None))
    assert result.valid is False
    assert result.counts["indeterminate-dequeue-count"] == 1


def test_enqueue_that_never_completed_is_indeterminate() -> None:
    result = check(good().enqueue(9, 5, "info", took=None))
    assert result.valid is True
    assert result.counts["indeterminate-count"] == 1


def test_unknown_delivery_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown delivery exactly-twice"):
        TotalQueue(delivery="exactly-twice")


def test_repeated_values_are_the_harness_s_fault() -> None:
    result = check(good().enqueue(1, 5))
    assert result.valid == "unknown"
    assert "repeat another's value" in result.notes[0]


class TestDrain:
    """Messages that are missing are lost only if the queue was drained."""

    def lost(self) -> Story:
        """Message 2 is missing; clients used every node."""
        return Story().enqueue(1, 1).enqueue(2, 2).dequeue(1, 3).empty(4)

    def test_whole_drain(self) -> None:
        result = check(self.lost().phases().empty(65))
        assert result.valid is False
        assert result.counts["lost-provably-count"] == 1

    def test_no_drain(self) -> None:
        result = check(self.lost().phase("load", 0, 60))
        assert result.valid == "unknown"
        assert result.counts["lost-count"] == 1
        assert result.counts["lost-provably-count"] == 0
        assert "q was not drained: there was no drain." in result.notes

    def test_drain_that_did_not_end(self) -> None:
        story = self.lost().phase("load", 0, 60).phase("drain", 64, None).empty(65)
        assert check(story).valid == "unknown"

    def test_node_that_never_said_empty(self) -> None:
        result = check(self.lost().phases().empty(65, ["n1", "n3"]))
        assert result.valid == "unknown"
        assert "q was not drained: n2 never said that it was empty." in result.notes

    def test_empty_before_the_drain_does_not_count(self) -> None:
        assert check(self.lost().phases().empty(63)).valid == "unknown"

    def test_recording_cut_short(self) -> None:
        result = check(self.lost().phases().empty(65), complete=False)
        assert result.valid == "unknown"

    def test_other_anomalies_stay_invalid(self) -> None:
        story = self.lost().phase("load", 0, 60).dequeue(77, 5)
        assert check(story).valid is False

    def test_doubt_about_loss_does_not_matter_to_at_most_once(self) -> None:
        assert check(self.lost(), "at-most-once").valid is True

    def test_each_queue_is_judged_by_its_own_drain(self) -> None:
        story = self.lost().phases().empty(65, ["n1"])
        story.enqueue(5, 5, key="other").empty(65, key="other")
        result = check(story)
        assert result.valid is False
        assert result.counts["lost-count"] == 2
        assert result.counts["lost-provably-count"] == 1
        assert list(result.detail["undrained"]) == ["q"]
