"""The tier rules of tests/conftest.py, shown on a small project that has a copy of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

CONFIGURATION = """
[pytest]
addopts = --strict-markers -ra -p no:cacheprovider
markers =
    unit: a
    sim: e
    local: b
    docker: c
    spark: d
    browser: f
"""


def run_tests(directory: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest over one test file, on a machine whose Docker engine and Java are out of reach."""
    shutil.copy(ROOT / "tests" / "conftest.py", directory / "conftest.py")
    (directory / "pytest.ini").write_text(CONFIGURATION)
    (directory / "test_sample.py").write_text("import pytest\n" + body)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("SHALOTT_")
    }
    unreachable = {
        "DOCKER_HOST": f"unix://{directory}/no-engine.sock",
        "PATH": str(directory),
        "JAVA_HOME": "",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(directory)],
        cwd=directory,
        env=inherited | unreachable | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("tier", "reason"),
    [
        ("docker", "no Docker engine on this machine: install one with"),
        ("spark", "no Java; install it with"),
        ("browser", "no chromium; install it with"),
    ],
)
def test_a_tier_that_cannot_run_is_skipped_with_the_reason(
    tmp_path: Path, tier: str, reason: str
) -> None:
    if tier == "spark":
        pytest.importorskip("pyspark")
    done = run_tests(tmp_path, f"@pytest.mark.{tier}\ndef test_it(): raise AssertionError('ran')\n")
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert reason in done.stdout


@pytest.mark.parametrize("tier", ["docker", "spark", "browser"])
def test_a_required_tier_that_cannot_run_fails(tmp_path: Path, tier: str) -> None:
    body = f"@pytest.mark.{tier}\ndef test_it(): pass\n"
    done = run_tests(tmp_path, body, **{f"SHALOTT_REQUIRE_{tier.upper()}": "1"})
    assert done.returncode == 1, done.stdout
    assert f"{tier} tests are required here, but" in done.stdout


@pytest.mark.parametrize(
    ("decorators", "complaint"),
    [("", "has no tier"), ("@pytest.mark.unit\n@pytest.mark.local\n", "has unit and local")],
)
def test_each_test_has_exactly_one_tier(tmp_path: Path, decorators: str, complaint: str) -> None:
    done = run_tests(tmp_path, f"{decorators}def test_it(): pass\n")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert complaint in done.stdout + done.stderr


def test_a_unit_test_runs_whatever_is_missing(tmp_path: Path) -> None:
    done = run_tests(
        tmp_path, "@pytest.mark.unit\ndef test_it(): pass\n", SHALOTT_REQUIRE_DOCKER="1"
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
