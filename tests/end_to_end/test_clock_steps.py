"""The machine's wall clock is stepped while a run lasts: no verdict is false because of it.

libfaketime is preloaded into the harness and its nodes alike, and reads one file at every call: for
all of them that is one machine's clock. The monotonic clock is not touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shalott.cluster.faketime import environment, file_text
from tests.end_to_end.runs import ROOT, Done, Running, shalott

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(not LIBRARY.exists(), reason="no libfaketime (Debian's package)"),
]
NIGHTLY = pytest.mark.nightly("a run for each phase and step")

KILLED = (
    *("test", "--cluster", "local", "--profile", "safe", "--nemesis", "kill"),
    *("--nemesis-interval", "2", "--nemesis-duration", "2", "--time-limit", "9"),
    *("--rate", "50", "--seed", "3"),
)
# The last one, end, takes milliseconds: a step can't be aimed at it.
PHASES = ("boot", "load", "heal", "settle", "drain")


def step_in(phase: str, by_s: float, cwd: Path) -> Done:
    """A safe run whose machine's clock is stepped once that phase has begun."""
    cwd.mkdir(parents=True, exist_ok=True)
    clock = cwd / "clock"
    clock.write_text(file_text(0))
    faked = {**environment(str(cwd)), "LD_PRELOAD": str(LIBRARY)}
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), **faked}

    def has_begun(records: list[dict[str, Any]]) -> bool:
        return any(
            record.get("f") == "phase" and json.loads(record["extra"])["phase"] == phase
            for record in records
        )

    with Running(KILLED, cwd, environment=surroundings) as running:
        running.await_recorded(has_begun, f"the phase {phase}")
        descriptor = os.open(clock, os.O_WRONLY)
        os.write(descriptor, file_text(by_s * 1000).encode())
        os.close(descriptor)
        return running.wait()


def is_right(done: Done, by_s: float) -> None:
    assert done.exit_code == 0, done
    assert done.counts("deaths")["died-count"] == 0, done
    (row,) = done.rows("clock-step")
    assert abs(row["extra"]["by_ns"] / 1e9 - by_s) < 0.1 and row["node"] == ""
    assert f"stepped by {by_s:+.3f}"[:-2] in done.stdout, done
    times = done.history.events["run_ns"].to_pylist()
    assert None not in times and min(times) >= 0
    assert max(times) <= max(done.history.ops["complete_ns"].drop_null().to_pylist())
    again = shalott(["analyze"], done.cwd)
    assert again.exit_code == 0, again


def test_a_step_while_nodes_boot_is_no_death(tmp_path: Path) -> None:
    is_right(step_in("boot", 13.5, tmp_path), 13.5)


@NIGHTLY
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("by_s", [-60, -13.5, 13.5, 60])
def test_a_step_in_any_phase_changes_no_verdict(phase: str, by_s: float, tmp_path: Path) -> None:
    is_right(step_in(phase, by_s, tmp_path), by_s)
