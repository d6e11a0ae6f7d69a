"""The harness's own clock: a step is a row, a slew is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shalott.core.recording import HistoryWriter
from shalott.harness.run.clock_watch import ClockWatch

pytestmark = pytest.mark.unit

S = 1_000_000_000
START_NS = 1_700_000_000 * S


class Clock:
    """Monotonic time, and how far the wall clock is ahead of it."""

    def __init__(self) -> None:
        self.now_ns, self.ahead_ns = 50 * S, START_NS - 50 * S

    def monotonic(self) -> int:
        return self.now_ns

    def wall(self) -> int:
        return self.now_ns + self.ahead_ns

    def beside(self) -> int:
        return self.ahead_ns


def watched(place: Path, clock: Clock) -> tuple[ClockWatch, HistoryWriter]:
    record = HistoryWriter(place / "h.jsonl", clock_ns=clock.monotonic, wall_ns=clock.wall)
    cluster = cast(Any, SimpleNamespace(nodes=()))
    watch = ClockWatch(cluster, record, beside_ns=clock.beside, monotonic_ns=clock.monotonic)
    return watch, record


def steps(record: HistoryWriter) -> int:
    record.close()
    return record.history().ops["f"].to_pylist().count("clock-step")


@pytest.mark.parametrize("by_s", [-60, -13.5, 0.5, 13.5, 60])
def test_a_step_is_one_row_and_what_was_written_on_either_side_is_placed(
    tmp_path: Path, by_s: float
) -> None:
    clock = Clock()
    watch, record = watched(tmp_path, clock)
    written = []
    for number in range(1, 400):
        clock.now_ns += S // 10
        if number == 200:
            clock.ahead_ns += round(by_s * S)
        watch.look()
        written.append((clock.now_ns - 50 * S, clock.wall()))
    placed = watch.start().place_log("n1", [wall for _, wall in written])
    assert all(abs(at - run) < S // 5 for at, (run, _) in zip(placed, written, strict=True))
    assert steps(record) == 1


def test_a_slew_is_no_step(tmp_path: Path) -> None:
    clock = Clock()
    watch, record = watched(tmp_path, clock)
    for _ in range(3000):  # five minutes at 500 ppm
        clock.now_ns += S // 10
        clock.ahead_ns += S // 20_000
        watch.look()
    (placed,) = watch.start().place_log("n1", [clock.wall()])
    assert abs(placed - 300 * S) < 25_000_000
    assert steps(record) == 0
