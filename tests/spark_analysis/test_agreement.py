"""A report over simulated runs of every system tells what their results say, figure by figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fleet_agreement import CELLS, make_runs, report_on

pytestmark = pytest.mark.sim


@pytest.mark.nightly("takes minutes")
@pytest.mark.timeout(1500)
def test_report_and_results_agree(tmp_path: Path) -> None:
    store = tmp_path / "store"
    codes = make_runs(3 * len(CELLS), store)
    assert max(codes) <= 2
    report, compared, differing = report_on(store, tmp_path / "report")
    assert len(report.runs) == len(codes)
    assert compared > 14 * len(codes)
    assert differing == []
    assert [(line.run, line.differs) for line in report.runs if line.differs] == []
    assert report.unreadable == ()
