"""Availability: gaps and recoveries, the gate, and what happens when nobody ever answers again."""

from __future__ import annotations

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.runs.availability import Availability
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def check(story: Story, max_rto_ms: int | None = None) -> Result:
    return Availability(max_rto_ms=max_rto_ms).check(story.history())


def outage(begin: int, end: int, *, key: str = "q", of: int = 60) -> Story:
    """An enqueue a second, acknowledged but for those begun in [begin, end), which are info."""
    story = Story().phases()
    for second in range(of):
        is_out = begin <= second < end
        story.enqueue(second, second, "info" if is_out else "ok", key=key, took=0.5)
    return story


def test_steady_service() -> None:
    result = check(outage(0, 0), max_rto_ms=2000)
    assert result.valid is True
    assert result.counts["longest-gap-ms"] == pytest.approx(1000)
    assert result.counts["acknowledged-fraction"] == 1
    assert result.detail["faults"] == []


def test_recovery_and_gap_of_a_fault() -> None:
    story = outage(20, 28).fault(1, "kill", 19.9, 25, ["n1"])
    result = check(story)
    assert result.valid is True
    (row,) = result.detail["faults"]
    assert row["fault"] == "1 kill n1"
    assert row["recovery_ms"] == pytest.approx(8600)  # invoked at 28, acknowledged at 28.5
    assert row["longest_gap_ms"] == pytest.approx(9000)  # 19.5 to 28.5, beyond the fault's end
    assert (row["operations"], row["acknowledged"]) == (6, 0)
    assert result.counts["acknowledged-fraction"] == pytest.approx(52 / 60)


def test_operations_under_way_are_no_recovery() -> None:
    story = outage(20, 28).fault(1, "kill", 19.2, 25, ["n1"])  # 19 is acknowledged at 19.5
    assert check(story).detail["faults"][0]["recovery_ms"] == pytest.approx(9300)


@pytest.mark.parametrize(("max_rto_ms", "valid"), [(8900, False), (9100, True)])
def test_gate(max_rto_ms: int, valid: bool) -> None:
    result = check(outage(20, 28).fault(1, "kill", 19.9, 25, ["n1"]), max_rto_ms)
    assert result.valid is valid
    assert [anomaly.kind for anomaly in result.anomalies] == ([] if valid else ["unavailable"])


def test_gap_without_a_fault_does_not_break_the_gate() -> None:
    story = outage(40, 50).fault(1, "kill", 10, 12, ["n1"])
    assert check(story, 3000).valid is True
    assert check(story).counts["longest-gap-ms"] == pytest.approx(11_000)


def test_one_queue_s_outage_is_seen_while_others_go_on() -> None:
    story = outage(20, 28, key="a").fault(1, "kill", 19.9, 25, ["n1"])
    for second in range(60):
        story.enqueue(100 + second, second, key="b", took=0.5)
    (row,) = check(story).detail["faults"]
    assert row["recovery_ms"] < 1000
    assert row["longest_gap_ms"] == pytest.approx(9000)
    assert row["longest_gap"]["queue"] == "a"
    assert row["queues"] == {"a": pytest.approx(9000), "b": pytest.approx(1000)}
    assert check(story, 5000).valid is False


def test_queue_that_is_never_served_is_one_gap() -> None:
    story = outage(0, 60, key="dead").fault(1, "kill", 30, 31, ["n1"])
    result = check(story)
    assert result.counts["longest-gap-ms"] == pytest.approx(60_000)


def test_never_recovered_breaks_any_gate_and_is_noted() -> None:
    story = outage(20, 60).fault(1, "kill", 19.9, 25, ["n1"])
    result = check(story)
    assert result.valid is True
    assert result.counts["never-recovered-count"] == 1
    assert result.notes == ("No operation was acknowledged after fault 1 kill n1 took hold.",)
    gated = check(story, 100_000_000)
    assert gated.valid is False
    assert gated.anomalies[0].summary.startswith("nothing was ever acknowledged again after fault")


def test_recovery_may_come_as_late_as_the_drain() -> None:
    story = outage(20, 60).fault(1, "kill", 19.9, 59, ["n1"]).dequeue(1, 64.9, took=0.1)
    assert check(story).detail["faults"][0]["recovery_ms"] == pytest.approx(45_100)


def test_skipped_faults_are_not_measured() -> None:
    assert check(outage(0, 0).fault(1, "kill", 5, 5, skipped="why")).detail["faults"] == []


def test_empty_history() -> None:
    result = check(Story(), 1000)
    assert result.valid is True
    assert result.counts["longest-gap-ms"] == 0


def test_slaves_that_answer_polls_hide_no_outage_of_a_log() -> None:
    story = Story().phases()
    for second in range(60):
        is_out = 20 <= second < 28
        kind = "info" if is_out else "ok"
        story.row("send", second, kind=kind, took=0.5, value=second, key="q", node="n1")
        story.row("poll", second + 0.2, took=0.1, value=0, key="q", node="n2")
    result = check(story.fault(1, "kill", 19.9, 25, ["n1"]))
    (row,) = result.detail["faults"]
    assert row["recovery_ms"] == pytest.approx(8600)
    assert row["longest_gap_ms"] == pytest.approx(9000)
    assert result.counts["acknowledged-fraction"] == pytest.approx(52 / 60)


def test_deliveries_and_channels_that_are_closed_prove_no_service() -> None:
    story = outage(20, 28).fault(1, "kill", 19.9, 25, ["n1"])
    for f in ("deliver", "channel", "close-channel", "hang-up"):
        story.row(f, 22, took=0, key="q")
    (row,) = check(story).detail["faults"]
    assert row["recovery_ms"] == pytest.approx(8600)


def test_an_exchange_is_no_queue_that_has_an_outage() -> None:
    story = outage(0, 0).enqueue(99, 5, "fail", key="exchange/silent")
    result = check(story)
    assert result.detail["longest-gap"]["queue"] == "q"
