"""One command sets up a plug-in of ours and runs it under faults, from a fresh clone."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.nightly("builds images, and minutes of runs")]


def systems() -> list[str]:
    """What the plug-ins offer, by name."""
    offered: list[str] = []
    for path in sorted((ROOT / "plugins").glob("*/pyproject.toml")):
        offered += tomllib.loads(path.read_text())["project"]["entry-points"]["shalott.systems"]
    return offered


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fresh") / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
    return place


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("system", systems())
def test_one_command_sets_up_and_runs(system: str, clone: Path) -> None:
    done = subprocess.run(
        ["scripts/demo", "--system", system, "--time-limit", "30"],
        cwd=clone, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0 and "\nValid: " in done.stdout, done.stdout[-4000:]
