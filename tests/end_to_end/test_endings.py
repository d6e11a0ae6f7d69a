"""A harness that is told to end, or killed, while a fault is in force: what it recorded can be read
and judged, and nothing of the run stays behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from shalott.core.recording import recover
from tests.end_to_end.leftovers import Harness, docker_leftovers, leftovers
from tests.end_to_end.runs import Done, Running, shalott

NIGHT = pytest.mark.nightly("each is done by day on the other backend")
LEFT: dict[str, Callable[[Harness], list[str]]] = {"local": leftovers, "docker": docker_leftovers}


def start(cluster: str, cwd: Path) -> Running:
    """A run with a long load and one fault, long and soon: a node is cut off, or frozen.

    In the safe profile the cut node stops serving, so nothing can be judged lost before the drain.
    """
    return Running(
        [
            "test",
            *("--cluster", cluster),
            *("--profile", "safe"),
            *("--nemesis", "partition-one,pause"),
            *("--time-limit", "90"),
            *("--nemesis-interval", "2"),
            *("--nemesis-duration", "70"),
            *("--net-tick", "2s"),
            *("--rate", "100"),
            *("--seed", "3"),
        ],
        cwd,
    )


@pytest.mark.parametrize(
    ("cluster", "number"),
    [
        pytest.param("local", signal.SIGINT, marks=pytest.mark.local),
        pytest.param("local", signal.SIGTERM, marks=[pytest.mark.local, NIGHT]),
        pytest.param("docker", signal.SIGINT, marks=[pytest.mark.docker, NIGHT]),
        pytest.param("docker", signal.SIGTERM, marks=pytest.mark.docker),
    ],
)
def test_a_signal_under_a_fault_heals_it_and_ends_in_order(
    cluster: str, number: signal.Signals, tmp_path: Path
) -> None:
    with start(cluster, tmp_path) as running:
        running.await_fault()
        done = running.end(number)
    assert done.exit_code == 2, done
    assert "Stopping: faults are healed, logs collected, nodes torn down." in done.stderr
    assert "The run was interrupted in the phase load." in done.stdout
    assert LEFT[cluster](done) == []
    assert done.history.complete
    for fault in (*done.rows("partition-one"), *done.rows("pause")):
        assert fault["extra"]["proved_healed"], fault
    assert done.rows("phase")[-1]["extra"]["phase"] == "load"
    assert_analyzed_alike(done)


def assert_analyzed_alike(done: Done) -> None:
    """`shalott analyze` comes to the run's own verdict."""
    before = done.results
    again = shalott(["analyze"], done.cwd)
    assert again.exit_code == done.exit_code, again
    assert again.results.headline == before.headline
    assert again.results.results == before.results


def clean(cluster: str, cwd: Path) -> Done:
    return shalott(["clean"], cwd)


def run_again(cluster: str, cwd: Path) -> Done:
    """A whole run, as short as can be."""
    arguments = ["test", "--cluster", cluster, "--nemesis", "none", "--time-limit", "1s"]
    return shalott([*arguments, "--min-acked", "1", "--nodes", "1"], cwd)


@pytest.mark.parametrize(
    ("cluster", "sweep"),
    [
        pytest.param("local", clean, marks=[pytest.mark.local, NIGHT]),
        pytest.param("local", run_again, marks=pytest.mark.local),
        pytest.param("docker", clean, marks=pytest.mark.docker),
        pytest.param("docker", run_again, marks=[pytest.mark.docker, NIGHT]),
    ],
)
def test_what_a_killed_harness_recorded_is_read_and_what_it_left_is_swept(
    cluster: str, sweep: Callable[[str, Path], Done], tmp_path: Path
) -> None:
    killed_in, swept_in = tmp_path / "killed", tmp_path / "swept"
    with start(cluster, killed_in) as running:
        running.await_fault()
        there = LEFT[cluster](running)
        done = running.end(signal.SIGKILL)
    assert there, "what isn't seen while it is there isn't missed when it is gone"
    recording = done.directory.recording
    history = recover(recording)
    assert not history.complete and history.ops.num_rows > 100
    analyzed = shalott(["analyze"], killed_in)
    assert analyzed.exit_code == 2, analyzed
    assert "The run did not come to its end: it was cut short in the phase load." in analyzed.stdout
    assert (done.directory.path / "report.html").stat().st_size > 0
    assert recording.exists(), "nothing that was recorded is discarded"
    swept = sweep(cluster, swept_in)
    assert swept.exit_code == 0, swept
    assert LEFT[cluster](done) == [], swept


@pytest.mark.docker
def test_a_harness_killed_under_faults_of_disks_packets_and_clocks_leaves_nothing(
    tmp_path: Path,
) -> None:
    """More of them, at random moments: benchmarks/harness_kills.py."""
    words = [
        *("test", "--cluster", "docker", "--profile", "safe", "--time-limit", "90"),
        *("--nemesis", "disk-slow,clock-skew,loss", "--nemesis-interval", "2"),
        *("--nemesis-duration", "70", "--rate", "100", "--seed", "3"),
    ]
    with Running(words, tmp_path / "killed") as running:
        running.await_fault()
        there = docker_leftovers(running)
        done = running.end(signal.SIGKILL)
    assert sum(line.startswith("mount ") for line in there) == 3, there
    assert recover(done.directory.recording).ops.num_rows > 100
    assert clean("docker", tmp_path / "swept").exit_code == 0
    assert docker_leftovers(done) == []
