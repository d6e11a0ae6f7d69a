"""`shalott check` takes the judge that a history wants, and judges tell keys apart themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.harness.cli.checking import run_check
from tests.checkers.judges.test_planted import PLANTED, Planted
from tests.checkers.judges.written import text_of

pytestmark = pytest.mark.unit

# By what its operations are alone each of these is known; the others are named by who checks.
KNOWN = ("g2", "causal", "sequential", "replica-logs", "unique-ids", "total-queue", "set-full")


@pytest.mark.parametrize("judge", KNOWN)
def test_what_a_history_wants_is_judged(
    judge: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = next(each for each in PLANTED if each.judge == judge)
    assert _checked(planted, tmp_path) == 1
    said = capsys.readouterr().out
    assert planted.told in said
    assert f"judged as {judge}, in" in said


def test_keys_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The key of jepsen.tests.adya is one that the judge itself asks for."""
    planted = next(each for each in PLANTED if each.judge == "comments")
    assert _checked(planted, tmp_path) == 1
    assert 'key "k": the read at index 5 shows 2, but not 1' in capsys.readouterr().out


def _checked(planted: Planted, directory: Path) -> int:
    file = directory / "history.edn"
    file.write_bytes(text_of(planted.wrong))
    return run_check([str(file)])
