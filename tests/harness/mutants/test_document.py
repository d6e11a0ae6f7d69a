"""Scores, and docs/evidence/detection.md, which is written from what was measured."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shalott.core.errors import StoreError
from shalott.harness.mutants.catalogue import WRITTEN
from shalott.harness.mutants.document import (
    DATA,
    DOCUMENT,
    load_document,
    render,
    that_count,
    write_document,
)
from shalott.harness.mutants.outcomes import Outcome, curve, score, survivors
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit


def outcome(name: str, cpu_s: float, seed: int | None = None, **facts: object) -> Outcome:
    made = Outcome(
        name=f"dledger/{name}", system="dledger", operator="by-hand", breaks=f"{name} breaks",
        code="c", seeds="1-100", budget_s=60, workloads=("log",), seed=seed, workload="log", ran=4,
        cpu_s=cpu_s, entered=4,
    )  # fmt: skip
    return msgspec.structs.replace(made, **facts)


FOUND = outcome("soon", 3, 2, checkers=("log",), classes=("lost-write",), faults=("power",))
LATE = outcome("late", 45, 20, checkers=("log",), classes=("order",), faults=("kill",))
LEFT = outcome("left", 61)
UNMET = outcome("unmet", 61, entered=0)
BROKEN = outcome("broken", 61, failed=4, failure="KeyError: x")
SAME = outcome("same", 61, equivalent="nobody looks")
CONTROL = outcome("control", 61, operator="control", void=(7,), classes=("stuck",))
ALL = {each.name: each for each in (FOUND, LATE, LEFT, UNMET, BROKEN, SAME, CONTROL)}


def test_the_score_counts_those_that_prove_something_as_far_as_they_were_searched() -> None:
    of = list(ALL.values())
    assert str(score(of, 30)) == "1 of 4: 25% (5% to 70%)"
    assert (score(of, 60).found, score(of, 60).of) == (2, 4)
    assert (score(of, 300).found, score(of, 300).of) == (2, 2)
    assert [each.cpu_s for each in curve(of)] == [1, 2, 5, 10, 30, 60]
    assert survivors(of) == [LEFT, UNMET]
    assert str(score([], 30)) == "none measured"


def test_what_is_no_more_or_changes_nothing_does_not_count() -> None:
    sound, equal = (
        next(each for each in WRITTEN if bool(each.equivalent) is wanted)
        for wanted in (False, True)
    )
    measured = {
        each.name: msgspec.structs.replace(LEFT, name=each.name, equivalent="")
        for each in (sound, equal)
    }
    assert [*that_count({**measured, **ALL})] == [sound.name, CONTROL.name]


def test_the_document_says_who_found_what_and_what_is_missing() -> None:
    text = render(ALL)
    assert "| dledger | 2 of 4: 50% (15% to 85%) | 1 of 4: 25% (5% to 70%) |" in text
    assert "- By checker: log 2." in text
    assert "- By fault in the run: power 1, kill 1." in text
    assert "| `dledger/soon` | soon breaks | log (lost-write), log | 2 | 4 | 3 |" in text
    assert "`dledger/left`: left breaks: 4 of 4 runs" in text
    assert "`dledger/unmet`: unmet breaks: no run" in text
    assert "`dledger/broken` proves nothing" in text
    assert "stuck in 1 (seeds 7) was found" in text
    assert "This is a part" in text


def test_both_files_are_written_and_read_back(tmp_path: Path) -> None:
    assert load_document(tmp_path) == {}
    write_document(tmp_path, ALL)
    assert load_document(tmp_path) == ALL
    assert (tmp_path / DOCUMENT).read_text() == render(ALL)
    (tmp_path / DATA).write_text("{")
    with pytest.raises(StoreError, match="cannot read"):
        load_document(tmp_path)


def test_the_page_is_of_what_was_measured() -> None:
    docs = ROOT / "docs"
    assert (docs / DOCUMENT).read_text() == render(load_document(docs))
