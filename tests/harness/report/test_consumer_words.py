"""What is said of consumers' anomalies, and of runs that had none."""

from __future__ import annotations

import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.checkers.consumers.consumer_checkers import consumer_checkers
from shalott.checkers.groups.group_checkers import group_checkers
from shalott.checkers.groups.group_rules import Group, GroupRules
from shalott.core.history import History
from shalott.harness.report.consumer_words import own_words
from shalott.harness.report.message_outcomes import (
    explained_causes,
    message_outcomes,
    outcomes_by_lane,
)
from shalott.harness.report.verdict_words import findings, headline
from tests.harness.report.consumer_histories import consume_run, group_run

pytestmark = pytest.mark.unit

CASES = [
    (checker, kind, number)
    for checker in ("consumer-fates", "group-fates")
    for kind in own_words(checker)
    for number in (1, 3)
]


def found(checker: str, kind: str, number: int) -> Result:
    anomaly = Anomaly(kind=kind, summary="the story", detail={"count": number})
    return Result(checker=checker, valid=False, anomalies=(anomaly,), detail={"broken": [kind]})


@pytest.mark.parametrize(("checker", "kind", "number"), CASES)
def test_each_kind_has_a_sentence_for_one_and_for_several(
    checker: str, kind: str, number: int
) -> None:
    ((valid, by, sentence),) = findings([found(checker, kind, number)])
    assert (valid, by) == (False, checker)
    assert sentence.endswith(".") and "{" not in sentence
    assert ("3" in sentence) == (number == 3), sentence


def test_a_stuck_consumer_is_not_told_as_a_stuck_cluster() -> None:
    told = Result(checker="liveness", valid=False, anomalies=(Anomaly(kind="stuck", summary="x"),))
    assert headline([told]) == "Invalid: the healed cluster got stuck: x."
    assert headline([found("consumer-liveness", "stuck", 1)]) == (
        "Invalid: a consumer was stuck while messages waited: the story."
    )
    assert headline([found("group-liveness", "stuck", 4)]) == (
        "Invalid: groups with living members are stuck: 4 messages wait."
    )


def of_consume(history: History) -> list[Result]:
    names = ("q1", "q2", "q1.dead", "q2.dead")
    rules = ConsumeRules(queues=tuple(QueueRules(name=name) for name in names))
    return [checker.check(history) for checker in consumer_checkers(rules)]


def of_group(history: History) -> list[Result]:
    groups = tuple(Group(name=name, topics=("orders",)) for name in ("g1", "g2"))
    keys = tuple(f"orders/{number}" for number in range(6))
    rules = GroupRules(groups=groups, queues=keys, levels_ms=(1000,))
    return [checker.check(history) for checker in group_checkers(rules)]


def test_what_checkers_of_made_up_runs_find_has_sentences_of_its_own() -> None:
    for results in (of_consume(consume_run()), of_group(group_run())):
        told = findings(results)
        assert len(told) > 3
        lost = [sentence for valid, _, sentence in told if "lost" in sentence and valid is False]
        assert lost
        for result in results:
            for anomaly in result.anomalies:
                if anomaly.kind not in ("unexpected", "corrupted", "too-early"):
                    assert anomaly.kind in own_words(result.checker), anomaly.kind


def test_a_valid_run_says_how_much_was_judged() -> None:
    counts = {"acknowledged-count": 1200, "delivery-count": 1300, "first-delivery-count": 1180}
    queues = Result(checker="consumer-fates", valid=True, counts=counts)
    assert headline([queues]) == (
        "Valid: nothing was lost of 1,200 acknowledged messages; 1,300 deliveries, 120 of them"
        " again."
    )
    group = {
        "fates": {"consumed": 40, "filtered": 9},
        "deliveries": {"first": 40, "redelivered": 2},
    }
    groups = Result(
        checker="group-fates",
        valid=True,
        counts={"delivery-count": 84},
        detail={"groups": [group, group]},
    )
    assert headline([groups]) == (
        "Valid: nothing was lost or skipped of 80 acknowledged messages, counted for each group;"
        " 84 deliveries, 4 of them again."
    )


def test_every_message_is_in_one_row_of_what_became_of_them() -> None:
    queues = message_outcomes(of_consume(consume_run()))
    assert queues is not None and queues.sent == "published"
    assert queues.total == 3000 == sum(row.count for row in queues.rows if row.in_bar)
    groups = message_outcomes(of_group(group_run()))
    assert groups is not None and groups.each
    assert groups.total == 2 * 3000
    rows = {row.name: row.count for row in groups.rows}
    assert rows["consumed"] > 5000 and rows["lost"] > 0 and rows["skipped"] > 0


def test_the_checkers_tables_are_laid_out_by_queue_and_by_group() -> None:
    for results, lanes in ((of_consume(consume_run()), "q"), (of_group(group_run()), "g")):
        table = outcomes_by_lane(results)
        assert table is not None
        assert [lane for lane, _ in table.rows][:2] == [f"{lanes}1", f"{lanes}2"]
        assert table.columns[0] == "consumed" and table.bad[table.columns.index("lost")]
        assert all(len(counts) == len(table.columns) for _, counts in table.rows)
        explained = explained_causes(results)
        assert explained == sorted(explained, key=lambda cause: (-cause[1], cause[0]))
        assert len(explained) > 2
