"""A search on containers: warm machines between plans, a command that goes on, and no leftovers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shalott.harness.search.summary import Summary
from tests.end_to_end.leftovers import docker_leftovers
from tests.end_to_end.runs import Done, shalott

pytestmark = [
    pytest.mark.docker,
    pytest.mark.nightly("three plans take minutes"),
]
SEARCH = (
    *("search", "--cluster", "docker", "--system", "master-slave", "--nemesis", "kill,partition"),
    *("--jobs", "1", "--repeat", "0", "--seeds"),
)


def search(cwd: Path, seeds: str) -> tuple[Done, Summary]:
    done = shalott([*SEARCH, seeds], cwd)
    assert docker_leftovers(done) == []
    assert done.exit_code in (0, 1, 2), done
    (path,) = cwd.glob("store/search/*/summary.json")
    return done, msgspec.json.decode(path.read_bytes(), type=Summary)


def test_plans_share_machines_and_the_same_command_goes_on(tmp_path: Path) -> None:
    done, summary = search(tmp_path, "2")
    assert summary.real is not None
    assert (summary.ran, summary.real.warm, summary.real.cold) == (2, 1, 1), done
    assert not summary.errors, done
    done, summary = search(tmp_path, "3")
    assert "2 seeds were run before; going on." in done.stderr
    assert summary.real is not None
    assert (summary.ran, summary.real.warm, summary.real.cold) == (3, 1, 2), done
