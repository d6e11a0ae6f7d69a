"""Composition: verdicts merge, and a crashed checker is never a valid one."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from shalott.checkers.checker import Result, merge_valid
from shalott.checkers.runs.compose import check_all
from shalott.checkers.runs.standard import standard_checkers
from shalott.core.history import History
from shalott.core.plan import GatePlan
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Fixed:
    valid: bool | str
    name: str = "fixed"

    def check(self, history: History) -> Result:
        return Result(checker=self.name, valid=self.valid)


@dataclass(frozen=True)
class Crashing:
    name: str = "crashing"

    def check(self, history: History) -> Result:
        raise ZeroDivisionError("planted")


def test_false_beats_unknown_beats_true() -> None:
    assert merge_valid([True, "unknown", False]) is False
    assert merge_valid([True, "unknown"]) == "unknown"
    assert merge_valid([True, True]) is True
    assert merge_valid([]) == "unknown"


def test_crashed_checker_is_unknown_and_the_others_still_judge() -> None:
    verdict = check_all([Crashing(), Fixed(True)], Story().history())
    assert verdict.valid == "unknown"
    crashed = verdict.of("crashing")
    assert crashed.notes[0] == "The checker crashing crashed: ZeroDivisionError: planted"
    assert "Traceback" in crashed.notes[1]
    assert check_all([Crashing(), Fixed(False)], Story().history()).valid is False


def test_asking_for_a_checker_that_did_not_run() -> None:
    with pytest.raises(KeyError):
        check_all([Fixed(True)], Story().history()).of("total-queue")


def good() -> Story:
    story = Story().phases().role("n1", 0, "master").fault(1, "kill", 20, 25, ["n2"])
    for number in range(60):
        story.enqueue(number, number).dequeue(number, number + 0.5)
    return story.role("n1", 66, "master").empty(64.5)


def test_standard_checkers_pass_a_good_run() -> None:
    verdict = check_all(standard_checkers(), good().history())
    assert verdict.valid is True, [r.notes for r in verdict.results]
    assert [r.checker for r in verdict.results] == [
        "total-queue",
        "mastership",
        "availability",
        "stats",
        "liveness",
        "crashes",
        "deaths",
    ]


def test_gates_add_their_checkers_and_nothing_else_does() -> None:
    gated = standard_checkers(GatePlan(must_settle=True, must_not_crash=True, must_converge=True))
    assert [c.name for c in gated[4:]] == ["liveness", "crashes", "deaths", "convergence"]
    history = good().event("n1", 30, "crashed", group="", process="p", reason="crash: X").history()
    told = check_all(standard_checkers(), history)
    assert told.valid is True and told.of("crashes").notes == ("p on n1 at 30.000 s: X.",)
    assert check_all(standard_checkers(GatePlan(must_not_crash=True)), history).valid is False
    assert check_all(standard_checkers(GatePlan(must_settle=True)), history).valid == "unknown"


def test_one_lost_message_turns_a_good_run_invalid() -> None:
    verdict = check_all(standard_checkers(), good().enqueue(99, 30.7).history())
    assert verdict.valid is False
    assert verdict.of("total-queue").valid is False
    assert verdict.of("stats").valid is True


def test_results_are_plain_data() -> None:
    story = good().enqueue(99, 30.7).role("n2", 30, "master", 2).observe("n2", 31, "master")
    verdict = check_all(standard_checkers(GatePlan(max_rto_ms=1)), story.history())
    decoded = msgspec.json.decode(msgspec.json.encode(verdict), type=type(verdict))
    assert decoded.valid is False
    assert [r.counts for r in decoded.results] == [r.counts for r in verdict.results]
