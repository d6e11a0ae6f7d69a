"""A project's own tests of a plug-in's system: side by side, and stopped by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shalott.core.plan import load_plan
from shalott.harness.report.results import read_results
from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import Done
from tests.world.waiting import until

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[2]
OURS = ("-p", "shalott.harness.testing.pytest_plugin", "-p", "no:shalott")
PYTEST = (sys.executable, "-m", "pytest", *OURS, "-q")
BODY = """
import pytest

TOY = dict(
    system="toy-register", load=["shalott_registers.toy"], seed=1, rate=100,
    nemesis_interval=2, nemesis_duration="1s",
)

@pytest.mark.shalott_world("sim")
def test_stale_reads_are_found(shalott):
    run = shalott.run(**TOY, nemesis="pause", time_limit="4s")
    run.assert_invalid("not-linearizable")

@pytest.mark.shalott_world("local")
@pytest.mark.shalott_nemeses("pause", "kill")
def test_safe(shalott):
    shalott.run(**TOY, profile="safe", time_limit="4s").assert_valid()

def test_long(shalott):
    shalott.run(**TOY, profile="safe", nemesis="pause", cluster="local", time_limit="60s")
"""


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'examples'}"}


def logs(project: Path) -> list[Path]:
    return list(project.glob("kept/test_long/2*/log.txt"))


@pytest.mark.nightly("three runs and their workers take half a minute")
def test_runs_side_by_side_keep_out_of_each_others_way(tmp_path: Path) -> None:
    (tmp_path / "test_toy.py").write_text(BODY)
    done = subprocess.run(
        [*PYTEST, "-n", "2", "--shalott-store", "kept", "-k", "not long"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    plans = [load_plan(path) for path in tmp_path.glob("kept/*/2*/plan.json")]
    assert sorted(plan.name for plan in plans) == [
        "test_safe-local-kill",
        "test_safe-local-pause",
        "test_stale_reads_are_found-sim",
    ]
    assert (tmp_path / "kept" / "runs.parquet").exists()


@pytest.mark.parametrize(
    "workers",
    [(), pytest.param(("-n", "1"), marks=pytest.mark.nightly("it is the same but for one layer"))],
    ids=["alone", "xdist"],
)
def test_ctrl_c_heals_and_tears_down(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_toy.py").write_text(BODY)
    child = subprocess.Popen(
        [*PYTEST, *workers, "--shalott-store", "kept", "-k", "long"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    until(lambda: any("phase load" in log.read_text() for log in logs(tmp_path)), "the load")
    os.killpg(child.pid, signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert child.returncode == pytest.ExitCode.INTERRUPTED, said
    (log,) = logs(tmp_path)
    assert "tearing down" in log.read_text()
    assert any("interrupted" in note for note in read_results(log.with_name("results.json")).notes)
    assert leftovers(Done(child.pid, child.returncode, said, "", tmp_path)) == []
