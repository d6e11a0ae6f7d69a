"""Stalls of the harness: what they overlap is charged to nobody, and what they spoil is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.mastership.mastership import Mastership
from shalott.checkers.runs.availability import Availability
from shalott.checkers.runs.liveness import Liveness
from shalott.checkers.runs.stalls import Stalls
from shalott.harness.report.verdict_words import headline, summaries
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def served(gap: tuple[float, float] = (60, 60)) -> Story:
    """A load of 60 s with an acknowledgement every 0.5 s, but for a gap."""
    story = Story().phases()
    for number in range(120):
        at = number / 2
        if not gap[0] < at < gap[1]:
            story.enqueue(number, at)
    return story


def check(story: Story, **durations_ms: int) -> Result:
    planned = {int(name[1:]): ms for name, ms in durations_ms.items()}
    return Stalls(planned).check(story.history())


def test_a_run_without_stalls_has_nothing_to_tell() -> None:
    result = check(served())
    assert result.valid is True and summaries([result]) == []
    assert result.counts["stall-count"] == 0


def test_a_stall_is_a_remark_of_a_valid_run() -> None:
    result = check(served((20, 29)).stall(20, 29))
    assert result.valid is True
    assert "the harness stood still for 9.0 s of the run" in headline([result])
    assert summaries([result]) == ["Stalls: the harness stood still for 9.0 s in all (stopped)."]
    assert result.detail["stalls"][0]["begin_ns"] == 20_000_000_000


def test_a_short_stall_makes_no_headline() -> None:
    result = check(served().stall(20, 20.4, "busy"))
    assert result.valid is True and result.detail["remark"] == ""
    assert result.counts["stalled-ms-max"] == 400


def test_stalls_of_a_quarter_of_the_load_spoil_the_run() -> None:
    result = check(served().stall(5, 13).stall(20, 28.5))
    assert result.valid == "unknown"
    assert "16.5 s of the load's 60.0 s" in result.notes[0]


def test_a_fault_that_was_healed_late_by_its_own_duration_spoils_the_run() -> None:
    story = served().fault(1, "partition-halves", 20, 32, links=[("n1", "n2")]).stall(22, 31.9)
    assert check(story, f1=3000).valid == "unknown"
    assert check(story, f1=3000).notes == (
        "Fault 1 partition-halves lasted 12.0 s, not 3.0 s, because the harness stood still.",
    )
    assert check(story, f1=8000).valid is True, "late by half of what was planned"
    awake = served().fault(1, "partition-halves", 20, 32, links=[("n1", "n2")]).stall(40, 41)
    assert check(awake, f1=3000).valid is True, "its lateness is nobody's stall"


def test_a_fault_that_came_late_and_was_cut_short_spoils_the_run() -> None:
    story = served().fault(1, "pause", 59, 60, ["n1"]).stall(52, 59)
    assert check(story, f1=8000).valid == "unknown"
    assert "lasted 1.0 s, not 8.0 s" in check(story, f1=8000).notes[0]
    unhurried = served().fault(1, "pause", 59, 60, ["n1"]).stall(10, 11)
    assert check(unhurried, f1=8000).valid is True, "the load's end cut it short"


@pytest.mark.parametrize(
    ("kind", "more", "told"),
    [
        ("relays", {}, "The relays between the nodes did not run for 2.0 s at 10.0 s"),
        ("relays-ended", {}, "The relays between the nodes ended at 10.0 s"),
        ("suspended", {"asleep_ns": 5_000_000_000}, "The machine slept for 5.0 s at 10.0 s"),
    ],
)
def test_what_changed_the_world_spoils_the_run(kind: str, more: Any, told: str) -> None:
    result = check(served().stall(10, 12, kind, **more))
    assert result.valid == "unknown" and result.notes[0].startswith(told)


def test_relays_that_were_late_for_a_moment_spoil_nothing() -> None:
    assert check(served().stall(10, 10.5, "relays")).valid is True


def test_no_outage_is_charged_for_the_time_of_a_stall() -> None:
    """9 s without an acknowledgement, 8.9 s of them the harness's own."""
    silent = served((20, 29.5)).fault(1, "kill", 21, 25, ["n1"])
    limited = Availability(max_rto_ms=3000)
    assert limited.check(silent.history()).valid is False, "without a stall it is an outage"
    result = limited.check(silent.stall(20.2, 29).history())
    assert result.valid is True
    assert result.counts["longest-gap-ms"] < 1000
    assert result.detail["longest-gap"] is None or result.detail["longest-gap"]["ms"] < 1000


def test_an_outage_that_a_stall_only_touches_is_charged_for_the_rest() -> None:
    silent = served((20, 35)).fault(1, "kill", 21, 25, ["n1"]).stall(21, 23)
    result = Availability(max_rto_ms=3000).check(silent.history())
    assert result.valid is False
    assert result.counts["longest-gap-ms"] == pytest.approx(15_000 - 4_000, abs=20)


def test_what_nodes_said_across_a_stall_is_no_observation() -> None:
    story = served().stall(20, 29)
    story.around("observe", 19.9, 29.1, node="n1", extra={"claims": [{"group": "q"}]})
    story.observe("n2", 30, "master")
    seen = read_surroundings(story.history()).observations
    assert [(o.node, o.ok, o.is_stalled) for o in seen] == [
        ("n1", False, True),
        ("n1", False, True),
        ("n2", False, True),
        ("n2", True, False),
    ]


def test_masters_on_both_sides_of_a_stall_were_not_two_at_once() -> None:
    """n1 said master before and after 9 s in which nobody asked, n2 that it was for a moment in
    between, by its own events."""

    def story() -> Story:
        told = served()
        for number in range(40):
            told.observe("n1", number / 2, "master", 1)
        for number in range(4):
            told.observe("n2", 29.2 + number / 2, "master", 2)
        for number in range(40):
            told.observe("n1", 31.4 + number / 2, "master", 3)
        return told

    def claimed(told: Story) -> float:
        return Mastership().check(told.history()).counts["dual-master-claimed-count"]

    assert claimed(story()) == 1, "polls of both that seem to overlap"
    assert claimed(story().stall(20, 31.3)) == 0


def test_what_did_not_settle_while_the_harness_stood_still_is_not_stuck() -> None:
    def story() -> Story:
        told = Story().phase("load", 0, 60).phase("heal", 60, 62).phase("drain", 70, 71)
        told.around(
            "phase", 62, 70, extra={"phase": "settle", "settled": False, "reason": "n1 is down"}
        )
        return told.enqueue(1, 1).dequeue(1, 2).empty(70.2).empty(70.4)

    assert Liveness().check(story().history()).valid is False
    result = Liveness().check(story().stall(63, 69).history())
    assert result.valid == "unknown" and "stood still meanwhile" in result.notes[0]
    assert Liveness().check(story().stall(63, 63.4).history()).valid is False


def test_an_operator_who_was_not_there_was_not_refused() -> None:
    def story() -> Story:
        told = Story().phase("load", 0, 60).phase("heal", 60, 62).phase("drain", 70, 71)
        told.around("phase", 62, 70, extra={"phase": "settle", "settled": True})
        told.fault(1, "failover", 20, 30, ["n1"], refused="nobody answered")
        return told.enqueue(1, 1).dequeue(1, 2).empty(70.2).empty(70.4)

    assert Liveness().check(story().history()).valid is False
    assert Liveness().check(story().stall(21, 27).history()).valid is True
