"""A helper of the harness's own is killed while a run lasts: the run is unknown or failed wherever
one looks, and nothing of it is told as the node's.

Those of hosts are killed by ``benchmarks/safe_runs.py``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.compute as pc
import pytest

from shalott.harness.report.results import read_results
from shalott.harness.store.runs_table import read_table
from tests.end_to_end.runs import Done, Running, shalott
from tests.world.cluster.helpers import engines_of, file_systems_of, relays_of
from tests.world.waiting import until

SAFE = ("test", "--profile", "safe", "--nodes", "3", "--rate", "50", "--seed", "5")
SLOW_DISK = ("--nemesis", "disk-slow", "--nemesis-duration", "2", "--time-limit", "7")
DELAY = ("--nemesis", "delay", "--nemesis-duration", "2", "--time-limit", "7")


def is_served(records: list[dict[str, Any]]) -> bool:
    return sum(record["type"] == "ok" for record in records) > 100


def told(done: Done) -> None:
    """Unknown or failed, everywhere at once."""
    assert done.exit_code in (2, 255), done
    stored = read_results(done.directory.path / "results.json")
    assert stored.valid == "unknown", done
    assert stored.headline.startswith("Unknown: ") and "Invalid" not in done.stdout, done
    assert all(result.valid is not False for result in stored.results), done
    suites = ElementTree.parse(done.directory.path / "junit.xml")
    assert not suites.findall(".//failure") and suites.findall(".//error"), done
    table = read_table(done.cwd / "store")
    (row,) = table.filter(pc.equal(table["kind"], "run")).to_pylist()
    assert row["valid"] == "unknown" and not row["failed_checkers"], row
    assert "Invalid" not in (done.directory.path / "report.html").read_text()
    again = shalott(["analyze"], done.cwd)
    assert again.exit_code == 2 and "Invalid" not in again.stdout, again


@pytest.mark.parametrize(
    ("world", "helper", "find", "words"),
    [
        pytest.param(
            *("local", "relays", relays_of, ("--nemesis", "none", "--time-limit", "6")),
            marks=[pytest.mark.local, pytest.mark.nightly("the file system is killed by day")],
        ),
        pytest.param("local", "file system", file_systems_of, SLOW_DISK, marks=pytest.mark.local),
        pytest.param(
            *("docker", "file system", file_systems_of, SLOW_DISK),
            marks=[pytest.mark.docker, pytest.mark.nightly("that of processes is killed by day")],
        ),
        pytest.param(
            *("docker", "packet engine", engines_of, DELAY),
            marks=[pytest.mark.docker, pytest.mark.nightly("the file system is killed by day")],
        ),
    ],
)
def test_a_killed_helper_is_told_as_the_harness_s(
    world: str,
    helper: str,
    find: Callable[[int], list[int]],
    words: Sequence[str],
    tmp_path: Path,
) -> None:
    with Running([*SAFE, "--cluster", world, *words], tmp_path) as running:
        running.await_recorded(is_served, "clients were served")
        until(lambda: find(running.pid), f"{helper} runs")
        os.kill(find(running.pid)[0], signal.SIGKILL)
        done = running.wait()
    told(done)
    (row,) = done.rows("helper-ended")
    assert row["extra"]["helper"] == helper
    assert row["extra"]["reason"].rstrip(".") in done.results.headline or done.exit_code == 255
    assert done.counts("deaths")["died-count"] == 0, done
