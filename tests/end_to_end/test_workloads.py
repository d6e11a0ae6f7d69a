"""The workloads beside queue on local nodes: one short run each, and what a reader finds of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import Done, shalott

pytestmark = pytest.mark.local

SHORT = ("--time-limit", "5", "--rate", "60", "--net-tick", "1s", "--seed", "1")


def run(cwd: Path, *arguments: str) -> Done:
    done = shalott(["test", "--cluster", "local", *SHORT, *arguments], cwd)
    assert leftovers(done) == []
    return done


@pytest.mark.parametrize(
    ("arguments", "headline"),
    [
        (("--workload", "fifo", "--consumers", "single"), "nothing was lost of"),
        (
            ("--workload", "metadata", "--objects", "policy,queue"),
            "operations on 6 objects are linearizable",
        ),
    ],
    ids=["fifo", "metadata"],
)
def test_without_faults_it_is_valid(
    arguments: tuple[str, ...], headline: str, tmp_path: Path
) -> None:
    done = run(tmp_path, "--profile", "safe", "--nemesis", "none", *arguments)
    assert done.exit_code == 0, done
    assert headline in done.results.headline
    words = " ".join(arguments)
    assert f"shalott test {words.split(' --')[0]}" in done.stdout


def test_a_partition_gives_a_lock_two_holders(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("--workload", "lock", "--nemesis", "partition", "--time-limit", "9"),
        *("--nemesis-interval", "4", "--nemesis-duration", "4"),
    )
    assert done.exit_code == 1, done
    kinds = {anomaly.kind for result in done.results.results for anomaly in result.anomalies}
    assert "two-holders" in kinds, done
    assert "held the lock at once" in done.results.headline
    assert "held the lock at once" in (done.directory.path / "report.html").read_text()
