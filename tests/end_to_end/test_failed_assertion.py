"""What a failed assertion on a run shows: where its report is, and what the broker itself said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import Done

pytestmark = pytest.mark.unit


def test_it_shows_the_report_s_absolute_path_and_the_broker_s_exceptions(tmp_path: Path) -> None:
    run = tmp_path / "store" / "x" / "20260101T000000.000Z"
    (run / "nodes" / "n2").mkdir(parents=True)
    (tmp_path / "store" / "latest").symlink_to(run)
    (run / "log.txt").write_text("phase boot\n")
    (run / "report.html").write_text("")
    calm = [f"line {number}" for number in range(500)]
    trouble = ["Traceback (most recent call last):", "  File x", "KeyError: 'planted'"]
    words = [*calm[:100], *trouble, *calm[100:]]
    (run / "nodes" / "n2" / "output.log").write_text("\n".join(words))
    shown = str(Done(pid=1, exit_code=1, stdout="Invalid", stderr="", cwd=tmp_path))
    assert f"the report: {run.resolve()}/report.html" in shown
    assert "KeyError: 'planted'" in shown and "phase boot" in shown
    assert "line 499" in shown and "line 300" not in shown
    (run / "report.html").unlink()
    assert f"no report in {run.resolve()}" in str(
        Done(pid=1, exit_code=255, stdout="", stderr="", cwd=tmp_path)
    )
