"""deaths: a node ends only because somebody ended it, or a fault did."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.checkers.runs.deaths import Deaths, how_it_ended
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def died(at: float = 20, code: int | None = 137, node: str = "n2", **more: Any) -> Story:
    extra = {"exit_code": code, "out_of_memory": False, "output": "last words", **more}
    return Story().around("died", at, at + 0.1, "info", node=node, extra=extra)


def test_a_run_in_which_nobody_died_is_valid() -> None:
    result = Deaths().check(Story().role("n1", 0, "master").history())
    assert result.valid is True and not result.anomalies
    assert result.counts == {"died-count": 0, "excused-died-count": 0}


def test_a_death_is_told_with_its_node_its_reason_and_its_last_output() -> None:
    history = died().history()
    result = Deaths().check(history)
    assert result.valid is False and result.counts["died-count"] == 1
    (anomaly,) = result.anomalies
    assert anomaly.summary == "n2 died at 20.000 s: signal 9 (SIGKILL)"
    assert anomaly.detail["output"] == "last words"
    assert history.ops["f"].to_pylist()[anomaly.detail["operations"][0]] == "died"


def test_of_a_system_that_does_not_promise_it_a_death_is_told() -> None:
    result = Deaths(is_promised=False).check(died().history())
    assert result.valid is True
    assert result.notes == ("n2 died at 20.000 s: signal 9 (SIGKILL).",)


def test_an_exit_that_the_system_names_is_none() -> None:
    assert Deaths(orderly=(0,)).check(died(code=0).history()).valid is True
    assert Deaths(orderly=(0,)).check(died(code=1).history()).valid is False


@pytest.mark.parametrize(
    ("kind", "begin", "end"),
    [
        ("kill", 15, 25),
        ("kill", 20 + 1e-8, 25),
        ("disk-error", 5, 10),
        ("disk-corrupt", 5, 10),
        ("disk-full", 15, 19.5),
    ],
)
def test_a_fault_excuses_what_it_does_to_its_node(kind: str, begin: float, end: float) -> None:
    result = Deaths().check(died().fault(1, kind, begin, end, ["n2"]).history())
    assert result.valid is True and result.counts["excused-died-count"] == 1


@pytest.mark.parametrize(
    ("kind", "begin", "end", "nodes"),
    [
        ("kill", 15, 25, ["n1", "n3"]),  # another node's
        ("kill", 5, 10, ["n2"]),  # over
        ("kill", 21, 25, ["n2"]),  # later
        ("pause", 15, 25, ["n2"]),  # a pause ends nothing
        ("partition-one", 15, 25, ["n2"]),
        ("disk-slow", 15, 25, ["n2"]),
        ("disk-full", 5, 10, ["n2"]),  # there was room again
    ],
)
def test_nothing_else_is_excused(kind: str, begin: float, end: float, nodes: list[str]) -> None:
    assert Deaths().check(died().fault(1, kind, begin, end, nodes).history()).valid is False


def lives(*begins: float) -> Story:
    """n2's lives, by when they begin; each says something until the next."""
    story = Story().role("n1", 0, "master")
    for number, begin in enumerate(begins, 1):
        story.event("n2", begin, "running", incarnation=number, group="")
        story.event("n2", begin + 1, "role", incarnation=number, group="q")
    return story


def test_a_broker_that_restarts_itself_is_seen_by_its_events() -> None:
    result = Deaths().check(lives(0, 20).history())
    assert result.valid is False
    (anomaly,) = result.anomalies
    assert "n2 died at 20.000 s: it began its life 2" in anomaly.summary


def test_a_life_after_a_fault_or_a_death_is_no_second_death() -> None:
    assert Deaths().check(lives(0, 20).fault(1, "kill", 15, 19, ["n2"]).history()).valid is True
    extra = {"exit_code": 1, "out_of_memory": False, "output": ""}
    story = lives(0, 20).around("died", 15, 15.1, "info", node="n2", extra=extra)
    assert Deaths().check(story.history()).counts["died-count"] == 1


def test_whom_the_operator_of_a_failover_restarted_did_not_die() -> None:
    """A role that stands in a file is read at a start. What ended otherwise is a death still."""
    for story, restarted, is_valid in (
        (lives(0, 20), ["n2"], True),
        (lives(0, 20), ["n3"], False),
        (lives(0, 20), [], False),
        (lives(0, 10), ["n2"], False),
        (died(), ["n2"], False),
    ):
        history = story.fault(1, "failover", 15, 25, ["n1"], restarted=restarted).history()
        assert Deaths().check(history).valid is is_valid


def test_an_operator_who_mends_a_partition_restarts_nodes() -> None:
    story = lives(0, 20).around("operator", 15, 21, "info", extra={"restarted": ["n2"]})
    assert Deaths().check(story.history()).valid is True
    other = lives(0, 20).around("operator", 15, 21, "info", extra={"restarted": ["n3"]})
    assert Deaths().check(other.history()).valid is False
    earlier = lives(0, 8, 20).around("operator", 5, 6, "info", extra={"restarted": ["n2"]})
    assert Deaths().check(earlier.history()).valid is False


@pytest.mark.parametrize("role", ["stopped", "paused"])
def test_a_broker_that_pauses_itself_in_a_partition_has_not_died(role: str) -> None:
    """As RabbitMQ under pause_minority, and as autoheal's losers."""

    def paused() -> Story:
        story = Story().event("n2", 1, "role", role="running", incarnation=1, group="")
        story.event("n2", 12, "role", role=role, incarnation=1, group="")
        story.event("n2", 13, "peer_up", incarnation=1, group="", peer="n1")
        return story.event("n2", 20, "starting", incarnation=2, group="")

    assert Deaths().check(paused().fault(1, "partition-one", 8, 15, ["n2"]).history()).valid is True
    assert Deaths().check(paused().history()).valid is False  # nothing can have made it pause
    story = paused().fault(1, "partition-one", 8, 15, ["n2"])
    story.event("n2", 21, "role", role="running", incarnation=2, group="")
    again = story.event("n2", 30, "starting", incarnation=3, group="")
    result = Deaths().check(again.history())
    assert result.valid is False and result.counts["died-count"] == 1  # it did not say so


def test_what_the_harness_says_of_a_copy_is_no_life() -> None:
    story = lives(0).event("n2", 10, "replica", incarnation=0, group="q")
    story.event("n2", 11, "role", incarnation=1, group="q")
    assert Deaths().check(story.history()).valid is True


def test_how_it_ended_is_said_in_words() -> None:
    assert how_it_ended(139) == "signal 11 (SIGSEGV)"
    assert how_it_ended(1) == "exit code 1"
    assert how_it_ended(137, out_of_memory=True) == "the kernel ended it for want of memory"
    assert how_it_ended(None) == "for an unknown reason"
