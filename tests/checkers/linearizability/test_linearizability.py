"""Objects of a run that are linearizable, that are not, and that can't be known to be."""

from __future__ import annotations

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.linearizability.explanation import from_detail
from shalott.checkers.linearizability.run_checker import Linearizability
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit

LOCK = Linearizability(
    model="owner-lock", fs=("acquire", "release"), kinds={"overlap": "two-holders"}
)
REGISTER = Linearizability(model="register", fs=("read", "write"))
FIFO = Linearizability(model="fifo-queue", fs=("enqueue", "dequeue"), exactly_once=True)


def hold(story: Story, process: int, begin: float, end: float, **more: object) -> Story:
    node = f"n{process + 1}"
    story.row("acquire", begin, process=process, node=node, took=0.1)
    kind = str(more.pop("release", "ok"))
    return story.row("release", end, process=process, node=node, kind=kind, took=0.1)


def judge(checker: Linearizability, story: Story) -> Result:
    return checker.check(story.history())


def test_holds_that_follow_each_other_are_a_lock() -> None:
    story = hold(hold(Story(), 0, 1, 2), 1, 3, 4)
    story.row("acquire", 1.5, kind="fail", error="empty", process=1)
    result = judge(LOCK, story)
    assert result.valid is True
    assert result.counts["linearized-count"] == 4
    assert result.counts["object-count"] == 1


def test_two_holders_are_named_with_their_nodes_their_fault_and_a_window_to_draw() -> None:
    story = hold(hold(Story(), 0, 1, 5), 1, 3, 6).fault(1, "partition-one", 2, 8, ["n1"])
    result = judge(LOCK, story)
    assert result.valid is False
    (anomaly,) = result.anomalies
    assert anomaly.kind == "two-holders"
    assert anomaly.summary.startswith("q: process 0 and process 1 held the lock at once")
    assert anomaly.summary.endswith(", through n1 and n2")
    assert anomaly.detail["why"] == "in force: 1 partition-one n1"
    rows = story.history().ops.to_pylist()
    assert [rows[index]["f"] for index in anomaly.operations] == ["acquire", "acquire", "release"]
    (window,) = from_detail(result.detail)
    assert window.key == "q" and window.model == "owner-lock"


def test_a_fault_that_was_healed_shortly_before_is_named_and_one_long_ago_is_not() -> None:
    recent = hold(hold(Story(), 0, 11, 15), 1, 13, 16).fault(1, "kill", 2, 8, ["n1"])
    (anomaly,) = judge(LOCK, recent).anomalies
    assert anomaly.detail["why"] == "1 kill n1 had been healed 3.0 s before"
    old = hold(hold(Story(), 0, 41, 45), 1, 43, 46).fault(1, "kill", 2, 8, ["n1"])
    (anomaly,) = judge(LOCK, old).anomalies
    assert "why" not in anomaly.detail


def test_a_hold_that_was_lost_ends_with_the_release_that_nobody_answered() -> None:
    assert judge(LOCK, hold(hold(Story(), 0, 1, 2, release="info"), 1, 3, 4)).valid is True
    # Its crashed release does not end another's hold.
    story = hold(hold(hold(Story(), 0, 1, 2, release="info"), 1, 3, 8), 2, 5, 9)
    assert judge(LOCK, story).valid is False


def test_an_acquire_without_an_answer_proves_nothing() -> None:
    story = Story().row("acquire", 1, kind="info", process=7)
    assert judge(LOCK, hold(story, 0, 2, 3)).valid is True


def test_every_object_is_judged_and_one_that_is_wrong_hides_no_other() -> None:
    story = Story()
    for number, key in enumerate(("a", "b", "c")):
        at = 1 + 10 * number
        story.row("write", at, value=1, key=key).row("read", at + 1, value=2 - number % 2, key=key)
    result = judge(REGISTER, story)
    assert result.valid is False
    assert [anomaly.detail["queue"] for anomaly in result.anomalies] == ["a", "c"]
    assert {key: found["valid"] for key, found in result.detail["objects"].items()} == {
        "a": False, "b": True, "c": False,
    }  # fmt: skip


def test_a_register_is_empty_until_it_is_written_and_after_it_is_cleared() -> None:
    story = Story().row("read", 1).row("write", 2, value=5).row("read", 3, value=5)
    story.row("write", 4).row("read", 5)
    assert judge(REGISTER, story).valid is True
    assert judge(REGISTER, story.row("read", 6, value=5)).valid is False


def test_a_corrupted_answer_is_no_observation() -> None:
    story = Story().row("write", 1, value=5).row("read", 3, error="corrupted")
    assert judge(REGISTER, story).valid is True


def test_nothing_to_judge_is_unknown() -> None:
    result = judge(REGISTER, Story().enqueue(1, 1))
    assert result.valid == "unknown"
    assert result.notes == ("There was no operation to judge: read or write.",)


def test_what_takes_too_long_is_unknown_and_says_how_far_it_got() -> None:
    story = Story()
    for number in range(3000):  # many at once, and every value often: no monitor decides that
        value = number % 3
        story.row("write", 1 + number / 100, value=value, process=number, took=0.5)
        story.row("read", 1.005 + number / 100, value=value, process=5000 + number, took=0.5)
    hurried = Linearizability(model="register", fs=("read", "write"), time_limit_s=1e-9)
    result = judge(hurried, story)
    assert result.valid == "unknown"
    assert result.notes[0].startswith("q could not be judged: time")


def test_a_queue_that_delivers_exactly_once_is_judged_with_its_empty_answers() -> None:
    story = Story().enqueue(1, 1).dequeue(1, 2).empty(3, nodes=("n1",)).enqueue(2, 4)
    assert judge(FIFO, story).valid is True
    early = Story().enqueue(1, 1).empty(3, nodes=("n1",)).dequeue(1, 4)
    (anomaly,) = judge(FIFO, early).anomalies
    assert "found the queue empty although message 1 was in it" in anomaly.summary


@pytest.mark.parametrize("flagged", [True, False])
def test_a_message_that_came_twice_makes_exactly_once_no_question(flagged: bool) -> None:
    story = Story().enqueue(1, 1).dequeue(1, 2).dequeue(1, 3, redelivered=flagged)
    result = judge(FIFO, story)
    assert result.valid == "unknown"
    assert "1 messages were delivered again" in result.notes[0]
