"""Stats: counts and latencies, and every way in which a run proves nothing."""

from __future__ import annotations

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.runs.stats import Stats
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def sound() -> Story:
    """Ten acknowledged operations, a fault that was proved, an answer after the heal."""
    story = Story().phases().fault(1, "kill", 20, 25, ["n1"])
    for number in range(9):
        story.enqueue(number, number, took=(number + 1) / 1000)
    return story.dequeue(1, 12).empty(64.5)


def check(story: Story, min_acked: int = 10, complete: bool = True) -> Result:
    return Stats(min_acked=min_acked).check(story.history(complete))


def test_sound_run_is_valid() -> None:
    result = check(sound())
    assert result.valid is True
    assert result.notes == ()
    assert result.counts["ok-count"] == 10
    assert result.counts["fail-count"] == 3
    assert result.counts["fault-count"] == 1


def test_by_f_counts_and_quantiles() -> None:
    story = sound().enqueue(50, 30, "info", took=None).enqueue(51, 31, "fail", error="refused")
    detail = check(story).detail
    enqueues = detail["by-f"]["enqueue"]
    assert (enqueues["count"], enqueues["ok-count"]) == (11, 9)
    assert (enqueues["fail-count"], enqueues["info-count"]) == (1, 1)
    assert enqueues["latency_ms"] == {"0": 1, "0.5": 5, "0.95": 8.6, "0.99": 8.92, "1": 9}
    assert detail["errors"] == {"empty": 3, "refused": 1}
    assert detail["by-node"]["n2"] == {"ok": 0, "fail": 1, "info": 0}


def test_errors_are_counted_by_operation_and_node_in_one_sentence() -> None:
    story = sound()
    for number, queue in ((60, "a"), (61, "b"), (62, "c")):
        story.enqueue(number, 31, "fail", error=f"404: no queue '{queue}' of message 12345")
    story.enqueue(70, 32, "info", took=None, error="TimeoutError: " + "x" * 90)
    for number, error in enumerate(("e1", "e2", "e3"), start=71):
        story.enqueue(number, 33, "fail", error=error)
    assert check(story).detail["summary"] == (
        "Not acknowledged: 3 × enqueue: 404: no queue … of message … (at n1);"
        f" 1 × enqueue: TimeoutError: {'x' * 66}… (unknown whether it happened; at n1);"
        " 1 × enqueue: e1 (at n1); 2 with 2 other errors."
    )
    assert check(sound()).detail["summary"] == "", "that a queue was empty is no error"


def test_too_few_acknowledged() -> None:
    result = check(sound(), min_acked=11)
    assert result.valid == "unknown"
    assert result.notes == ("Only 10 operations were acknowledged; fewer than 11 prove nothing.",)


def test_answered_reads_do_not_make_up_for_messages() -> None:
    story = Story().phases().fault(1, "kill", 20, 25, ["n1"]).enqueue(1, 1).empty(64.5)
    for number in range(30):
        story.enqueue(number + 2, 2, "info", took=None).row("read", 3, took=0.1)
    assert check(story, min_acked=9).valid is True
    result = check(story)
    assert result.valid == "unknown"
    assert result.notes == ("Only 1 messages were acknowledged; fewer than 2 prove nothing.",)


def test_silence_after_the_heal() -> None:
    story = sound()
    story.rows = [row for row in story.rows if row["error"] != "empty"]
    result = check(story)
    assert result.valid == "unknown"
    assert result.notes == ("No operation was acknowledged after the heal.",)


def test_an_operation_begun_before_the_heal_ended_is_no_answer_after_it() -> None:
    story = sound()
    story.rows = [row for row in story.rows if row["error"] != "empty"]
    assert check(story.enqueue(77, 61.9, took=3)).valid == "unknown"
    assert check(story.enqueue(78, 62.1)).valid is True


def test_no_heal_at_all() -> None:
    story = sound()
    story.rows = [row for row in story.rows if row["f"] != "phase"]
    result = check(story)
    assert result.valid == "unknown"
    assert "no completed heal" in result.notes[0]


@pytest.mark.parametrize("what", ["effective", "healed"])
def test_unproved_fault(what: str) -> None:
    story = sound().fault(2, "partition-one", 30, 35, ["n2"], **{f"proved_{what}": False})
    result = check(story)
    assert result.valid == "unknown"
    assert result.notes == (f"Fault 2 partition-one n2 was not proved {what}.",)
    assert result.counts["unproved-fault-count"] == 1


def test_fault_that_never_ended_was_not_healed() -> None:
    extra = {"fault": 2, "kind": "kill", "target": "one", "nodes": ["n2"], "links": []}
    result = check(sound().around("kill", 30, None, "info", extra=extra))
    assert result.valid == "unknown"
    assert "Fault 2 kill n2 was not proved healed." in result.notes


def test_skipped_fault_is_noted_and_harmless_beside_others() -> None:
    story = sound().fault(2, "kill", 40, 40, proved_effective=False, skipped="not synchronised")
    result = check(story)
    assert result.valid is True
    assert result.notes == ("Fault 2 kill was skipped: not synchronised.",)


def test_recording_cut_short() -> None:
    assert check(sound(), complete=False).valid == "unknown"


def test_what_consumers_write_down_is_no_acknowledged_operation() -> None:
    story = sound().row("deliver", 30, took=0).row("channel", 30, took=20)
    story.row("ack", 31, took=0.5)
    result = check(story, min_acked=11)
    assert result.valid == "unknown"
    assert result.counts["ok-count"] == 13
    by_f = result.detail["by-f"]
    assert by_f["channel"]["latency_ms"] == {} == by_f["deliver"]["latency_ms"]
    assert by_f["ack"]["latency_ms"]["1"] == 500


def test_a_delivery_is_no_answer_after_the_heal() -> None:
    story = sound().row("deliver", 64.6, took=0)
    story.rows = [row for row in story.rows if row["error"] != "empty"]
    assert check(story).notes == ("No operation was acknowledged after the heal.",)
