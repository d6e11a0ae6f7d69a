"""The whole report in a process of its own: what it prints, writes, and leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from shalott.checkers.runs.compose import check_all
from shalott.checkers.runs.standard import standard_checkers
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import render_results
from shalott.spark_analysis.report_rows import FleetReport
from tests.spark_analysis.conftest import broken_history, store_run
from tests.world.harness.report_run import example_plan

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from pathlib import Path
from rich.console import Console
from shalott.spark_analysis.findings import Wanted
from shalott.spark_analysis.report import run_report
run_report(Path(sys.argv[1]), None, Console(width=120), Wanted(engine="spark"))
"""
SEEDS = (3, 4, 5)


@dataclass(frozen=True)
class Ran:
    """A finished report. Run 005's stored verdict was falsified: it says one more was lost."""

    store: Path
    where: Path
    exit_code: int
    stdout: str
    stderr: bytes
    report: FleetReport


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    base = tmp_path_factory.mktemp("report")
    store, where = base / "store", base / "where"
    where.mkdir()
    no_cache = base / "no-cache"  # writing a class archive takes longer than all the rest
    no_cache.touch()
    for seed in SEEDS:
        history = broken_history(seed)
        results = check_all(standard_checkers(), history).results
        data = render_results(example_plan(), results, ReportMeta(command="", started_wall_ns=0))
        if seed == SEEDS[-1]:
            lost = int(results[0].counts["lost-count"])
            told = f'"lost-count": {lost}'.encode()
            assert told in data
            data = data.replace(told, f'"lost-count": {lost + 1}'.encode())
        store_run(store, f"run/{seed:03d}", history, data)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store)],
        cwd=where,
        env={**os.environ, "XDG_CACHE_HOME": str(no_cache)},
        capture_output=True,
        timeout=280,
        check=False,
    )
    report = msgspec.json.decode((store / "_report" / "report.json").read_bytes(), type=FleetReport)
    return Ran(store, where, done.returncode, done.stdout.decode(), done.stderr, report)


def test_it_is_silent_on_stderr_and_leaves_nothing_in_the_working_directory(ran: Ran) -> None:
    assert ran.stderr == b""
    assert ran.exit_code == 0
    assert list(ran.where.iterdir()) == []


def test_every_run_is_a_line_and_the_last_says_it_all(ran: Ran) -> None:
    for seed in SEEDS:
        assert f"run/{seed:03d}" in ran.stdout
    lost = sum(line.counts["lost"] for line in ran.report.runs)
    assert lost > 0
    assert f"{lost:,} lost in" in ran.stdout


def test_a_stored_verdict_that_counts_something_else_is_told(ran: Ran) -> None:
    differing = [line for line in ran.report.runs if line.differs]
    assert [line.run for line in differing] == [f"run/{SEEDS[-1]:03d}"]
    here, there = differing[0].differs["lost"]
    assert there == here + 1
    assert f"lost is {here} here and {there} in its results.json" in " ".join(ran.stdout.split())


def test_the_tables_are_written_as_parquet_and_as_text(ran: Ran) -> None:
    out = ran.store / "_report"
    lost = pq.read_table(out / "lost_messages.parquet")
    assert set(lost["run"].to_pylist()) == {f"run/{seed:03d}" for seed in SEEDS}
    dual = pq.read_table(out / "dual_masters.parquet")
    assert dual.num_rows == sum(
        line.counts["claimed"] + line.counts["effective"] for line in ran.report.runs
    )
    text = (out / "report.md").read_text()
    assert all(f"| run/{seed:03d} |" in text for seed in SEEDS)
    assert (out / "spark.log").exists()


def test_what_it_wrote_is_no_run_to_the_next_report(ran: Ran) -> None:
    from shalott.spark_analysis.stored_runs import find_runs

    assert len(find_runs(ran.store).runs) == len(SEEDS)
