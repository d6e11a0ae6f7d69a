"""The same judges over runs: what a client put into its operations' columns and into ``extra``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shalott.api import JudgeOfRuns
from shalott.checkers.runs.compose import check_safely
from shalott.harness.report.verdict_words import headline
from tests.checkers.histories import Story
from tests.checkers.judges.written import kinds_of

pytestmark = pytest.mark.unit


def test_a_bank_whose_reads_are_maps() -> None:
    story = Story("accounts")
    story.row("transfer", 1, extra={"value": {"from": 0, "to": 1, "amount": 5}})
    story.row("read", 2, extra={"value": {"0": 5, "1": 15}})
    story.row("read", 2, kind="info", took=None, process=1)
    assert JudgeOfRuns("bank:total=20,accounts=2").check(story.history()).valid is True
    story.row("read", 3, extra={"value": {"0": 5, "1": 10}})
    found = JudgeOfRuns("bank:total=20,accounts=2").check(story.history())
    assert (found.checker, found.valid, kinds_of(found)) == ("bank", False, {"wrong-total"})
    assert found.anomalies[0].operations == (3,)
    assert "index 3 shows 15 in all where 20 should be" in found.anomalies[0].summary


def test_ids_are_values_of_the_column() -> None:
    story = Story("")
    for at, value in enumerate((7, 8, 7)):
        story.row("generate", at + 1, value=value)
    story.row("generate", 9, kind="fail")
    found = JudgeOfRuns("unique-ids").check(story.history())
    assert (found.valid, found.anomalies[0].operations) == (False, (0, 2))


def test_each_key_is_an_object_of_its_own() -> None:
    story = Story()
    for key, shown in (("one", [1]), ("other", [])):
        story.row("add", 1, value=1, key=key)
        story.row("read", 2, extra={"value": shown}, key=key)
    found = JudgeOfRuns("set-full").check(story.history())
    assert (found.valid, found.counts["object-count"], found.counts["lost-count"]) == (False, 2, 1)
    assert found.anomalies[0].summary.startswith("other: 1 was added (index 1)")


def test_concurrent_operations_are_in_the_order_of_the_clock() -> None:
    story = Story()
    story.row("add", 1, value=1, took=3)
    story.row("read", 2, extra={"value": 0}, value=0, process=1)
    story.row("read", 5, value=1, process=1)
    found = JudgeOfRuns("counter-bounds").check(story.history())
    assert (found.valid, found.counts["read-count"]) == (True, 2)
    story.row("read", 6, value=0, process=1)
    assert JudgeOfRuns("counter-bounds").check(story.history()).valid is False


def test_only_what_was_asked_for_is_judged() -> None:
    story = Story()
    story.row("generate", 1, value=1).row("generate", 2, value=1).row("fetch", 3, value=1)
    assert JudgeOfRuns("unique-ids", fs=("fetch",)).check(story.history()).valid == "unknown"
    assert check_safely(JudgeOfRuns("no-such-judge"), story.history()).valid == "unknown"


def test_replicas_are_the_nodes_that_were_asked() -> None:
    story = Story("log")
    for at, value in enumerate((1, 2)):
        story.row("append", at + 1, value=value)
    story.row("read", 5, extra={"value": [1, 2]}, node="n1")
    story.row("read", 6, extra={"value": [2]}, node="n2")
    found = JudgeOfRuns("replica-logs").check(story.history())
    assert (found.valid, kinds_of(found)) == (False, {"gap", "lost"} & kinds_of(found))
    assert '"n2"' in found.anomalies[0].summary


def test_the_headline_has_the_judges_own_nouns() -> None:
    story = Story("accounts")
    story.row("read", 2, extra={"value": {"0": 5, "1": 15}})
    sound = JudgeOfRuns("bank:total=20").check(story.history())
    assert headline([sound]) == "Valid: the same total in 1 read of the accounts."
    story.row("read", 3, extra={"value": {"0": 5, "1": 10}})
    wrong = JudgeOfRuns("bank:total=20").check(story.history())
    assert headline([wrong]).startswith("Invalid: 1 read of the accounts showed another total: the")
    story = Story().row("add", 1, value=1)
    unknown = JudgeOfRuns("final-set").check(story.history())
    assert headline([unknown]) == "Unknown: The set was never read."


def test_a_recording_that_was_cut_short_proves_no_loss() -> None:
    story = Story().row("add", 1, value=1).row("read", 2, extra={"value": []})
    whole = story.history()
    assert JudgeOfRuns("final-set").check(whole).valid is False
    found = JudgeOfRuns("final-set").check(replace(whole, complete=False))
    assert (found.valid, found.notes[0][:31]) == ("unknown", "The recording was cut short: wh")
