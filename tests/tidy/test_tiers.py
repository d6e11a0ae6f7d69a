"""The tier rules of tests/conftest.py hold, and are shown on a small project with a copy of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TIERS, tiers_named
from tests.tidy.sources import ROOT, project_files

CONFIGURATION = """
[pytest]
addopts = --strict-markers -ra -p no:cacheprovider
markers =
    lint: h
    unit: a
    explore: g
    sim: e
    local: b
    docker: c
    spark: d
    browser: f
    nightly: i
"""


@pytest.mark.lint
def test_every_file_of_tests_names_its_tiers() -> None:
    files = [name for name in project_files() if name.rpartition("/")[2].startswith("test_")]
    assert len(files) > 200
    silent = [name for name in files if name.endswith(".py") and not tiers_named(ROOT / name)]
    assert silent == [], "with `-m TIER` these are not collected: name pytest.mark.TIER in them"


@pytest.mark.lint
def test_every_tier_is_run_by_tox_and_in_ci() -> None:
    tox = (ROOT / "tox.ini").read_text()
    listed = next(line for line in tox.splitlines() if line.startswith("env_list"))
    assert [name.strip() for name in listed.partition("=")[2].split(",")] == [*TIERS]
    ci = (ROOT / ".ci" / "run").read_text()
    lanes = re.findall(r"^[^#\n]*scripts/test -e (\S+)(?:$| (?!--notest)(.*)$)", ci, re.MULTILINE)
    run = [name for names, _ in lanes for name in names.split(",")]
    assert sorted(set(run)) == sorted(TIERS)
    halves = {rest for names, rest in lanes if names == "local"}
    assert halves == {"-- tests/end_to_end", "-- --ignore=tests/end_to_end"}
    assert len(run) == len(TIERS) + 1, "no tier is run twice"


def run_tests(directory: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest over one test file, on a machine whose Docker engine and Java are out of reach."""
    (directory / "test_sample.py").write_text("import pytest\n" + body)
    return run_pytest(directory, **environment)


def run_pytest(
    directory: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """pytest in a folder with the project's conftest.py and marker names."""
    shutil.copy(ROOT / "tests" / "conftest.py", directory / "conftest.py")
    (directory / "pytest.ini").write_text(CONFIGURATION)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("SHALOTT_")
    }
    unreachable = {
        "DOCKER_HOST": f"unix://{directory}/no-engine.sock",
        "PATH": str(directory),
        "JAVA_HOME": "",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=directory,
        env=inherited | unreachable | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.explore
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


@pytest.mark.explore
@pytest.mark.parametrize("tier", ["docker", "spark", "browser"])
def test_a_required_tier_that_cannot_run_fails(tmp_path: Path, tier: str) -> None:
    body = f"@pytest.mark.{tier}\ndef test_it(): pass\n"
    done = run_tests(tmp_path, body, **{f"SHALOTT_REQUIRE_{tier.upper()}": "1"})
    assert done.returncode == 1, done.stdout
    assert f"{tier} tests are required here, but" in done.stdout


@pytest.mark.explore
@pytest.mark.parametrize(
    ("decorators", "complaint"),
    [("", "has no tier"), ("@pytest.mark.unit\n@pytest.mark.local\n", "has unit and local")],
)
def test_each_test_has_exactly_one_tier(tmp_path: Path, decorators: str, complaint: str) -> None:
    done = run_tests(tmp_path, f"{decorators}def test_it(): pass\n")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert complaint in done.stdout + done.stderr


@pytest.mark.explore
@pytest.mark.parametrize(
    ("night", "outcome"), [({}, "1 skipped"), ({"SHALOTT_NIGHTLY": "1"}, "1 passed")]
)
def test_what_is_of_the_night_is_skipped_by_day(
    tmp_path: Path, night: dict[str, str], outcome: str
) -> None:
    body = "@pytest.mark.unit\n@pytest.mark.nightly('an hour')\ndef test_it(): pass\n"
    done = run_tests(tmp_path, body, **night)
    assert done.returncode == 0, done.stdout
    assert outcome in done.stdout
    assert ("an hour: set SHALOTT_NIGHTLY=1" in done.stdout) is not bool(night)


ASKED = """
@pytest.mark.unit
@pytest.mark.nightly('an hour')
def test_long(): pass
@pytest.mark.docker
def test_contained(): pass
"""


@pytest.mark.explore
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["-k", "long"], 0, "1 passed"),
        (["test_sample.py::test_long"], 0, "1 passed"),
        (["-k", "contained"], 5, "no test ran of those asked for: Skipped: no Docker engine"),
        (["test_sample.py"], 5, "no test ran of those asked for: Skipped: an hour"),
        (["-k", "nothing"], 5, "2 deselected"),
        ([], 0, "2 skipped"),
    ],
)
def test_who_asks_for_a_test_gets_it_or_is_told_why_not(
    tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    """Nothing is green that nobody looked at; and what is asked for by name runs by day, too."""
    (tmp_path / "test_sample.py").write_text("import pytest\n" + ASKED)
    done = run_pytest(tmp_path, *words)
    assert done.returncode == code, done.stdout
    assert says in done.stdout


@pytest.mark.explore
def test_a_unit_test_runs_whatever_is_missing(tmp_path: Path) -> None:
    done = run_tests(
        tmp_path, "@pytest.mark.unit\ndef test_it(): pass\n", SHALOTT_REQUIRE_DOCKER="1"
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.explore
def test_a_tier_imports_only_the_files_that_name_it(tmp_path: Path) -> None:
    deeper = tmp_path / "deeper"
    deeper.mkdir()
    broken = (
        'import pytest\nraise AssertionError("imported")\n@pytest.mark.unit\ndef test_it(): ...\n'
    )
    (tmp_path / "test_other.py").write_text(broken)
    (deeper / "test_other_too.py").write_text(broken)
    (deeper / "conftest.py").write_text('raise AssertionError("imported")\n')
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.sim\ndef test_it(): ...\n")
    done = run_pytest(tmp_path, "-m", "sim", str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    named = run_pytest(tmp_path, "-m", "sim", "test_other.py")
    assert "AssertionError: imported" in named.stdout


@pytest.mark.explore
@pytest.mark.parametrize(("tier", "ran"), [("unit", "test_small"), ("explore", "test_large")])
def test_the_marker_of_a_test_replaces_that_of_its_file(
    tmp_path: Path, tier: str, ran: str
) -> None:
    (tmp_path / "test_both.py").write_text(
        "import pytest\npytestmark = pytest.mark.unit\n"
        "def test_small(): ...\n@pytest.mark.explore\ndef test_large(): ...\n"
    )
    done = run_pytest(tmp_path, "-vv", "-m", tier, str(tmp_path))
    assert "1 passed, 1 deselected" in done.stdout
    assert f"::{ran} PASSED" in done.stdout


@pytest.mark.explore
def test_a_tier_that_its_file_does_not_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "marks.py").write_text("import pytest\nMARK = pytest.mark.sim\n")
    body = "import sys\nsys.path.append('.')\nimport marks\n@marks.MARK\ndef test_it(): ...\n"
    done = run_tests(tmp_path, body)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "its file does not name pytest.mark.sim" in done.stdout + done.stderr
