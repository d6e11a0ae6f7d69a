"""Elle's own cases, and the histories of elle-cli, as our judges see them."""

from __future__ import annotations

import pytest

from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource
from tests.checkers.transactions.elle_cases import CASES, ElleCase

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.judge} {case.name}")
def test_each_case_of_elles_tests_is_judged_as_elle_does(case: ElleCase) -> None:
    source = EntrySource.of_text(case.edn().encode())
    result = make_judge(f"{case.judge}:{case.options}").judge(source, Limits())
    assert result.valid == case.valid, result
    assert set(result.detail["anomaly-types"]) == set(case.types.split()), result.detail
    assert set(result.detail["violated"]) == set(case.violated.split()), result.detail
    assert bool(case.elle) <= bool(case.differs)


def test_there_is_a_case_for_each_of_elles() -> None:
    assert len(CASES) >= 60
    assert len({(case.judge, case.name) for case in CASES}) == len(CASES)
