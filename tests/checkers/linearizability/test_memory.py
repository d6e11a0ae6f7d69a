"""What docs/how-to/check-a-history.md says a check takes of memory is an upper bound, valid or
not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.histories import Load, make
from shalott.checkers.linearizability.checking import check

pytestmark = pytest.mark.explore

DOCS = Path(__file__).parents[3] / "docs" / "evidence" / "checking.md"
OPERATIONS = 20_000
SMALL = 64 * 1024  # what does not grow with the history
VIOLATION = {
    "fifo-queue": "order",
    "unordered-queue": "repeated",
    "register": "stale",
    "set": "fresh",
    "mutex": "overlap",
    "log": "differs",
    "cas-register": "stale",
}


def stated() -> dict[str, int]:
    """Bytes an operation by model, from the table."""
    table = DOCS.read_text().partition("| bytes an operation |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", table, re.MULTILINE)
    return {model: int(bytes_) for model, bytes_ in rows}


def test_every_kind_of_history_has_a_bound() -> None:
    assert stated().keys() == VIOLATION.keys()


@pytest.mark.parametrize("model", VIOLATION)
@pytest.mark.parametrize("crashed", [0.0, 0.01])
@pytest.mark.parametrize("is_valid", [True, False])
def test_a_check_takes_no_more_memory_than_is_said(
    model: str, crashed: float, is_valid: bool
) -> None:
    violation = "" if is_valid else VIOLATION[model]
    history = make(model, Load(OPERATIONS, 10, crashed, violation))
    verdict = check(history, model)
    assert verdict.valid is is_valid
    assert 0 < verdict.memory_peak_bytes <= stated()[model] * OPERATIONS + SMALL
