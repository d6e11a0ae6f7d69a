"""Headlines of checkers that are not ours: their nouns and numbers, and no others."""

from __future__ import annotations

import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.runs.compose import check_safely
from shalott.core.history import History
from shalott.harness.report.message_outcomes import message_outcomes, outcomes_by_lane
from shalott.harness.report.verdict_words import headline
from shalott.spark_analysis.report_rows import COMPARED, FleetReport, RunLine, markdown, summary
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit

STATS = Result(checker="stats", valid=True, counts={"count": 250, "ok-count": 243})
LOST = Anomaly(kind="lost", summary="job 17 was put and never came out")


def test_a_checker_says_its_own_nouns_and_counts() -> None:
    jobs = Result(checker="jobs", valid=True, headline="none of 243 acknowledged jobs was lost.")
    assert headline([jobs, STATS]) == "Valid: none of 243 acknowledged jobs was lost."


def test_where_none_says_anything_the_headline_says_what_was_judged() -> None:
    silent = Result(checker="jobs", valid=True)
    assert headline([silent, STATS]) == (
        "Valid: nothing was found by jobs in 250 operations, of which 243 were acknowledged."
    )
    assert headline([STATS]) == (
        "Valid: no checker of the workload's own judged it; what every run promises held in 250"
        " operations, of which 243 were acknowledged."
    )


def test_a_foreign_count_is_not_told_of_messages() -> None:
    jobs = Result(checker="jobs", valid=True, counts={"acknowledged-count": 9, "lost-count": 0})
    assert "message" not in headline([jobs, STATS])


def test_ours_and_anothers_stand_side_by_side() -> None:
    ours = Result(checker="total-queue", valid=True, counts={"acknowledged-count": 12})
    other = Result(checker="slowness", valid=True, headline="the slowest took 40 ms")
    assert headline([ours, STATS, other]) == (
        "Valid: nothing was lost of 12 acknowledged messages, and the slowest took 40 ms."
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "job 17 was put and never came out (1 more)"),
        ({"lost": ("1 job is gone", "{n} jobs are gone")}, "2 jobs are gone"),
    ],
)
def test_an_anomaly_is_told_in_the_words_of_its_checker(
    words: dict[str, tuple[str, str]], told: str
) -> None:
    jobs = Result(checker="jobs", valid=False, anomalies=(LOST, LOST), words=words)
    assert headline([jobs, STATS]) == f"Invalid: {told}."


def test_the_report_draws_no_outcomes_that_no_one_counted() -> None:
    foreign = Result(
        checker="group-jobs",
        valid=True,
        counts={"delivered-once-count": 1, "lost-write-count": 2},
        detail={"groups": [{"name": "a"}], "fates-by-queue": {"a": {"b": 1}}},
    )
    assert message_outcomes([foreign]) is None and outcomes_by_lane([foreign]) is None


def test_a_checker_that_returns_no_result_is_unknown_and_named() -> None:
    class Jobs:
        name = "jobs"

        def check(self, history: History) -> Result:
            return {"valid": True}  # type: ignore[return-value]

    found = check_safely(Jobs(), Story().history())
    assert found.valid == "unknown" and "The checker jobs crashed" in found.notes[0]
    assert "it returned dict, not a Result" in found.notes[0]


def test_the_table_of_runs_shows_no_zeroes_of_messages_that_are_none() -> None:
    line = RunLine(
        run="a", system="jobs", profile="", partition_mode="", seed=1, valid=True, complete=True,
        counts=dict.fromkeys((*COMPARED, "lost_provably"), 0), double_tenure_ns=0, undrained=(),
        differs={},
    )  # fmt: skip
    report = FleetReport(store="store", runs=(line,), unreadable=())
    assert "messages" not in summary(report)
    row = next(text for text in markdown(report) if text.startswith("| a "))
    assert [cell.strip() for cell in row.split("|")[4:10]] == ["-"] * 6
