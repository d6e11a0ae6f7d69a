"""Refusals name all that is wrong at once, and cost no more than they must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shalott.core.errors import UsageError
from shalott.harness.cli.main import run_command
from shalott.harness.run.request import refuse_quickly
from shalott.harness.run.world import _why_missing

HEAVY = ("pyarrow", "numpy", "typer", "docker", "rich", "jinja2")


@pytest.mark.unit
def test_all_that_is_wrong_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    wrong = ["--nemesis", "meteor", "--cluster", "docker", "--time-limit=soon", "--nodes", "0"]
    assert run_command(["test", *wrong, "--profile", "brave", "--concurrency", "x"]) == 254
    (told,) = capsys.readouterr().err.splitlines()
    for part in (
        "unknown nemesis meteor",
        "cluster docker can't be used: no Docker engine on this machine",
        "--time-limit soon: give a time",
        "a cluster needs at least one node",
        "unknown profile brave",
        "--concurrency x: give a number",
    ):
        assert told.count(part) == 1, part


@pytest.mark.unit
def test_a_missing_engine_is_told_where_only_containers_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    with pytest.raises(
        UsageError,
        match="^rabbitmq runs .* only, and no Docker engine",
    ):
        refuse_quickly(["--system", "rabbitmq"])
    refuse_quickly(["--system", "mirrored"])  # processes would do


@pytest.mark.unit
def test_what_is_in_a_plan_is_not_judged_by_the_flags() -> None:
    refuse_quickly(["--plan", "x.json", "--nemesis", "meteor"])


@pytest.mark.unit
def test_the_doctor_is_named_for_what_it_knows() -> None:
    assert "doctor" in _why_missing("docker", ["delay", "throttle"])
    assert "doctor" not in _why_missing("docker", ["delay", "power"])
    assert "doctor" not in _why_missing("local", ["throttle"])


@pytest.mark.explore
def test_a_refusal_imports_nothing_heavy(tmp_path: Path) -> None:
    """What it costs is importing: 1 s with these, 0.3 s without."""
    script = (
        "import sys, shalott.harness.cli.main as main\n"
        "code = main.run_command(['test', '--nemesis', 'meteor', '--cluster', 'docker'])\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "254 []\n", done.stderr
