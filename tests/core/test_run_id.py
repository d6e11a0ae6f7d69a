"""Short ids of runs: what they are of, and what happens when two runs have one."""

from __future__ import annotations

import pytest

from shalott.core.errors import UsageError
from shalott.core.run_id import run_id, run_of_id

pytestmark = pytest.mark.unit

RUNS = ("mirrored-safe-queue/20260101T000000.000Z", "a-search/findings/7")


def test_it_is_of_the_name_and_the_time_wherever_the_store_is() -> None:
    assert run_id(RUNS[0]) == run_id(f"/elsewhere/store/{RUNS[0]}") == "83cc3c"
    assert run_of_id("83cc3c", RUNS) == RUNS[0]
    assert run_of_id(run_id(RUNS[1]), RUNS) == RUNS[1]


@pytest.mark.parametrize("word", ["000000", "83cc3", "83cc3c0", "83CC3C", "latest", ""])
def test_what_is_no_id_of_a_run(word: str) -> None:
    assert run_of_id(word, RUNS) is None


def test_an_id_that_two_runs_have_is_refused() -> None:
    twins = ("x/1", "other/x/1")
    with pytest.raises(UsageError, match="is the id of x/1 and of other/x/1: give the directory"):
        run_of_id(run_id("x/1"), twins)
