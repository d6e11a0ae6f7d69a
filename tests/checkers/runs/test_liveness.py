"""liveness: a cluster that does not settle, or a queue that can't be drained, is stuck."""

from __future__ import annotations

import pytest

from shalott.checkers.runs.liveness import Liveness
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit


def story(settled: bool | None = True, reason: str = "") -> Story:
    """A load, a heal, a settle phase that says what came of it, and a drain."""
    told = Story().phase("load", 0, 60).phase("heal", 60, 62)
    extra: dict[str, object] = {"phase": "settle"}
    if settled is not None:
        extra |= {"settled": settled, "reason": reason}
    told.around("phase", 62, 64, extra=extra).phase("drain", 64, 66)
    for number in range(5):
        told.enqueue(number, number, node="n1").dequeue(number, number + 0.5, node="n2")
    return told


def test_a_cluster_that_settles_and_is_drained_is_alive() -> None:
    result = Liveness().check(story().empty(64.5).history())
    assert result.valid is True and not result.anomalies
    assert result.counts == {"stuck-count": 0, "undrained-count": 0}


def test_a_cluster_that_does_not_settle_is_stuck() -> None:
    history = story(False, "queue q: n3 is not synchronised").empty(64.5).history()
    result = Liveness().check(history)
    assert result.valid is False
    (anomaly,) = result.anomalies
    assert anomaly.kind == "stuck"
    assert anomaly.summary == ("it had not settled after 2.0 s: queue q: n3 is not synchronised")
    rows = history.ops.to_pylist()
    assert '"settled": false' in rows[anomaly.operations[0]]["extra"]


def test_a_node_that_never_says_empty_is_stuck() -> None:
    result = Liveness().check(story().empty(64.5, nodes=("n2",)).history())
    assert result.valid is False
    (anomaly,) = result.anomalies
    assert anomaly.kind == "stuck" and anomaly.detail["queue"] == "q"
    assert anomaly.summary == "q could not be drained: n1 never said that it was empty"
    assert result.counts["undrained-count"] == 1


def _gone(told: Story, at: float, key: str = "q") -> Story:
    for node in NODES:
        error = f"channel closed: 404 NOT_FOUND - no queue '{key}' in vhost '/'"
        told.row("dequeue", at, kind="fail", error=error, node=node, key=key)
    return told


def test_a_queue_that_expired_in_the_drain_holds_nothing() -> None:
    told = story().row("declare-queue", 64.1, node="n1")
    assert Liveness().check(_gone(told, 65).history()).valid is True


def test_a_queue_that_is_not_there_is_stuck_if_it_does_not_expire() -> None:
    declared_before = story().row("declare-queue", 1, node="n1")
    another = story().row("declare-queue", 64.1, node="n1", key="other").empty(65, key="other")
    for told in (story(), declared_before, another):
        assert Liveness().check(_gone(told, 65).history()).valid is False


def test_a_node_that_left_for_good_is_not_asked() -> None:
    def left(**more: object) -> Story:
        return story().fault(1, "remove-node", 5, 6, ["n1"], **more)

    only_n2 = left().empty(64.5, nodes=("n2",)).history()
    assert Liveness().check(only_n2).valid is True
    back = left().fault(2, "add-node", 9, 10, ["n1"]).empty(64.5, nodes=("n2",)).history()
    refused = left(refused="n2 would not").empty(64.5, nodes=("n2",)).history()
    skipped = left(skipped="it was removed").empty(64.5, nodes=("n2",)).history()
    for history in (back, refused, skipped):
        assert Liveness().check(history).counts["undrained-count"] == 1


def test_an_operator_who_is_refused_while_nothing_else_is_broken_is_stuck() -> None:
    refused = story().fault(1, "kill-redeclare", 10, 20, ["n1"], refused="n2 did not answer")
    (anomaly,) = Liveness().check(refused.empty(64.5).history()).anomalies
    assert anomaly.kind == "stuck"
    assert anomaly.summary == "during 1 kill-redeclare n1: n2 did not answer"
    beside = refused.fault(2, "partition-one", 15, 25, ["n2"]).history()
    assert Liveness().check(beside).valid is True
    later = story().fault(1, "kill-redeclare", 10, 20, ["n1"], refused="n2 did not answer")
    after = later.fault(2, "partition-one", 21, 25, ["n2"]).empty(64.5).history()
    assert Liveness().check(after).valid is False


def test_what_was_said_before_the_drain_does_not_count() -> None:
    assert Liveness().check(story().empty(63.5).history()).valid is False


def test_a_history_that_does_not_say_whether_it_settled_is_unknown() -> None:
    result = Liveness().check(story(None).empty(64.5).history())
    assert result.valid == "unknown" and result.notes
    assert Liveness().check(Story().history()).valid == "unknown"


def test_a_run_cut_short_before_its_drain_ended_is_unknown() -> None:
    assert Liveness().check(story().history(complete=False)).valid == "unknown"
    cut = Story().around("phase", 62, 64, extra={"phase": "settle", "settled": True, "reason": ""})
    assert Liveness().check(cut.enqueue(1, 1).phase("drain", 64, None).history()).valid == "unknown"
    stuck = story(False, "n1 can't be asked").history(complete=False)
    assert Liveness().check(stuck).valid is False


def test_of_a_plan_that_does_not_demand_it_an_unsettled_run_is_unknown() -> None:
    """What such a cluster holds may still change: nobody may call it valid."""
    reason = "n1 does not know its master"
    result = Liveness(is_promised=False).check(story(False, reason).empty(64.5).history())
    assert result.valid == "unknown" and result.counts["stuck-count"] == 1
    assert result.notes == (
        f"The healed cluster was drained as it was: it had not settled after 2.0 s: {reason}.",
    )
    for told in (story(), story(None), Story()):
        assert Liveness(is_promised=False).check(told.history()).valid is True


def test_a_queue_that_is_only_drained_must_be_empty_and_an_exchange_need_not() -> None:
    told = story().empty(64.5).enqueue(9, 9, key="exchange/fanout")
    told.row("dequeue", 65, key="q.dead", value=9)
    result = Liveness().check(told.history())
    assert [anomaly.detail["queue"] for anomaly in result.anomalies] == ["q.dead"]
    assert Liveness().check(told.empty(65.5, key="q.dead").history()).valid is True
