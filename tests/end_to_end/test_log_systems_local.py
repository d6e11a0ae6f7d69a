"""RocketMQ's systems as processes on this machine: one short run each."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.profiles import LOG_SYSTEMS
from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import shalott

pytestmark = pytest.mark.local


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_without_faults_it_is_valid(system: str, tmp_path: Path) -> None:
    done = shalott(
        ["test", "--cluster", "local", "--system", system, "--profile", "safe",
         "--nemesis", "none", "--time-limit", "5", "--rate", "40", "--seed", "1"],
        tmp_path,
    )  # fmt: skip
    assert leftovers(done) == []
    assert done.exit_code == 0, done
    assert "nothing was lost of" in done.results.headline
    assert (done.directory.path / "endpoints.json").is_file()
