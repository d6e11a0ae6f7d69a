"""Noticed: faults that changed nothing are told, and a run of nothing else is unknown."""

from __future__ import annotations

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.runs.fault_effects import Noticed
from shalott.checkers.runs.stats import Stats
from shalott.harness.report.verdict_words import summaries
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit


def calm() -> Story:
    """A load of 60 s: an operation every 0.1 s that takes 10 ms, a poll of each node every 0.5 s,
    a confirm event every second."""
    story = Story().phases()
    for number in range(600):
        story.enqueue(number, number / 10)
    for number in range(120):
        for node in NODES:
            role = "master" if node == "n1" else "mirror"
            story.observe(node, number / 2, role)
    for second in range(60):
        story.acked("n1", second, second + 0.9)
    return story


def short_partition(story: Story, number: int = 1, at: float = 20) -> Story:
    """3 s, which is over before a net tick of 4 s is up."""
    links = [("n1", "n2"), ("n2", "n1")]
    return story.fault(number, "partition-one", at, at + 3, ["n1"], links, effects=["cuts-links"])


def check(story: Story) -> Result:
    return Noticed().check(story.history())


def noticed_by(story: Story) -> list[str]:
    found: list[str] = check(story).detail["faults"][0]["noticed_by"]
    return found


def test_a_run_without_faults_has_nothing_to_tell() -> None:
    result = check(calm())
    assert result.valid is True and result.notes == () and summaries([result]) == []


def test_a_run_whose_faults_nobody_noticed_is_unknown() -> None:
    result = check(short_partition(short_partition(calm()), 2, 40))
    assert result.valid == "unknown"
    assert result.notes == (
        "No fault was noticed (1 partition-one n1, 2 partition-one n1): nothing was tested.",
    )
    assert result.counts["effective-fault-count"] == 2
    assert result.counts["noticed-fault-count"] == 0
    assert result.counts["unnoticed-fault-count"] == 2


def test_one_noticed_fault_is_enough_and_the_others_are_named() -> None:
    story = short_partition(short_partition(calm()), 2, 40).role("n2", 42, "master", 2)
    result = check(story)
    assert result.valid is True
    assert summaries([result]) == [
        "Faults: 2 took effect, 1 was noticed (not: 1 partition-one n1)."
    ]
    assert [row["noticed_by"] for row in result.detail["faults"]] == [[], ["events"]]


@pytest.mark.parametrize(
    ("at", "seen"), [(19.9, []), (20.1, ["events"]), (25.9, ["events"]), (26.2, [])]
)
def test_what_nodes_write_down_counts_while_it_lasts_and_shortly_after(
    at: float, seen: list[str]
) -> None:
    assert noticed_by(short_partition(calm()).event("n1", at, "partition", group="")) == seen


def test_confirms_are_written_down_in_quiet_times_too() -> None:
    assert noticed_by(short_partition(calm()).acked("n1", 20, 21)) == []


def test_a_node_that_could_not_be_asked_was_noticed() -> None:
    assert noticed_by(short_partition(calm()).observe("n3", 21.2, None)) == ["observations"]


def test_another_claim_than_before_was_noticed() -> None:
    assert noticed_by(short_partition(calm()).observe("n2", 21.2, "master", 2)) == ["observations"]


def test_a_node_that_sees_others_gone_has_noticed() -> None:
    story = short_partition(calm())
    extra = {"claims": [], "running": ["n2"], "partitions": ["n1"]}
    assert noticed_by(story.around("observe", 22, 22.01, node="n2", extra=extra)) == [
        "observations"
    ]


def test_what_a_stall_kept_from_being_asked_was_not_the_faults_doing() -> None:
    story = short_partition(calm()).around(
        "observe", 21.2, 22.9, "info", node="n3", error="no answer"
    )
    assert noticed_by(story) == ["observations"]
    assert noticed_by(story.stall(21.3, 22.8)) == []


@pytest.mark.parametrize(
    ("kind", "took", "error", "seen"),
    [
        ("info", 5.0, "timeout", ["clients"]),
        ("info", None, None, ["clients"]),
        ("fail", 0.01, "no connection: refused", ["clients"]),
        ("fail", 0.01, "empty", []),
        ("ok", 1.5, None, ["clients"]),
        ("ok", 0.05, None, []),
    ],
)
def test_what_clients_saw(
    kind: str, took: float | None, error: str | None, seen: list[str]
) -> None:
    story = short_partition(calm()).enqueue(9000, 21.55, kind, took=took, error=error)
    assert noticed_by(story) == seen


def test_an_error_of_quiet_times_is_no_sign() -> None:
    story = short_partition(calm()).enqueue(9000, 21.55, "fail", error="precondition failed")
    assert noticed_by(story) == ["clients"]
    assert noticed_by(story.enqueue(9001, 50, "fail", error="precondition failed")) == []


def test_an_operation_that_waited_for_a_stalled_harness_is_no_sign() -> None:
    story = short_partition(calm()).enqueue(9000, 21.55, "info", took=1.3, error="timeout")
    assert noticed_by(story.stall(21.6, 22.8)) == []


def test_mild_faults_need_not_be_noticed_and_are_counted_apart() -> None:
    result = check(calm().fault(1, "delay", 20, 23, links=[("n1", "n2")], effects=[]))
    assert result.valid is True
    assert result.counts["mild-fault-count"] == 1
    assert result.counts["unnoticed-fault-count"] == 0


def test_faults_without_quiet_times_are_compared_with_what_is_usual() -> None:
    story = Story().phases().fault(1, "pause", 0, 59, ["n1"], effects=["suspends"])
    for number in range(100):
        story.enqueue(number, number / 2)
    assert check(story).valid == "unknown"
    assert noticed_by(story.enqueue(200, 30.2, took=0.5)) == ["clients"]


def test_refused_and_skipped_faults_took_no_effect() -> None:
    refused = {"proved_effective": False, "refused": "no node took the place of n1"}
    story = short_partition(calm()).role("n2", 22, "master", 2)
    story.fault(2, "failover", 30, 32, ["n1"], effects=[], **refused)
    skipped = {"proved_effective": False, "skipped": "no node is master"}
    for number in (3, 4):
        story.fault(number, "kill", 40, 40, effects=["ends-processes"], **skipped)
    result = check(story)
    assert result.valid is True
    assert (result.counts["refused-fault-count"], result.counts["skipped-fault-count"]) == (1, 2)
    assert summaries([result]) == [
        "Faults: 1 took effect, 1 was noticed, 2 were skipped (2 x no node is master),"
        " 1 was refused (no node took the place of n1)."
    ]
    assert "Fault 2 failover n1 was refused: no node took the place of n1." in result.notes
    assert Stats(min_acked=1).check(story.empty(64.5).history()).valid is True, "nothing to prove"


def test_a_run_whose_faults_were_all_refused_is_unknown() -> None:
    refused = {"proved_effective": False, "refused": "it takes no reports"}
    result = check(calm().fault(1, "stray-report", 20, 23, ["n1"], **refused))
    assert result.valid == "unknown"
    assert "Every fault of the plan was refused or skipped" in result.notes[0]


def test_an_unproved_fault_is_told() -> None:
    story = calm().fault(1, "kill", 20, 23, ["n1"], effects=["ends-processes"],
                         proved_effective=False)  # fmt: skip
    assert check(story).counts["unproved-fault-count"] == 1
    assert "1 was not proved" in summaries([check(story)])[0]


def test_a_consumer_that_hangs_up_is_no_witness() -> None:
    story = short_partition(calm()).row("ack", 21, kind="info", error="hung-up")
    story.row("consumer", 19, took=2, error="hung-up")
    assert noticed_by(story) == []
