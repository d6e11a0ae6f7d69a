"""A broker that is not in the project, by shalott.api alone: what is tried of it, and its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

plugin = pytest.importorskip("shalott.harness.testing.pytest_plugin")
pytestmark = [pytest.mark.docker, pytest.mark.nightly("builds an image, and minutes of runs")]

HOW = {
    "system": "beanstalkd", "load": "shalott_beanstalkd", "cluster": "docker", "rate": 50,
    "op_timeout": "1s", "nemesis_interval": "4s", "nemesis_duration": "3s", "seed": 1,
}  # fmt: skip
LINES_MAX = 200


@pytest.mark.shalott_nemeses("kill", "pause")
def test_no_job_is_lost(shalott: plugin.Shalott) -> None:  # type: ignore[name-defined]
    run = shalott.run(**HOW, profile="safe", time_limit="15s")
    run.assert_valid()
    assert "acknowledged jobs was lost" in run.headline


def test_a_loss_of_power_takes_nothing_that_was_synced(shalott: plugin.Shalott) -> None:  # type: ignore[name-defined]
    power = {**HOW, "nemesis": "power-all", "power_loss": "drop", "time_limit": "12s"}
    shalott.run(**power, profile="safe").assert_valid()


def test_it_keeps_every_point(tmp_path: Path) -> None:
    words = ["try-plugin", "shalott_beanstalkd", "--cluster", "docker", "--store", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "shalott.harness.cli.main", *words], cwd=tmp_path, check=False,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'examples'}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "acknowledged jobs was lost" in done.stdout


def test_it_is_plugged_in_by_few_lines() -> None:
    files = (ROOT / "examples" / "shalott_beanstalkd").glob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= LINES_MAX
