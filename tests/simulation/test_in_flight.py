"""What was on its way to a master when it was killed is decided as soon as its successor rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import shalott

pytestmark = pytest.mark.sim

KILL = (
    *("test", "--system", "mirrored", "--profile", "safe", "--workload", "queue"),
    *("--cluster", "sim", "--nemesis", "kill", "--targets", "master", "--seed", "3"),
    *("--nemesis-interval", "4", "--nemesis-duration", "2", "--time-limit", "10"),
    *("--rate", "100", "--op-timeout", "40s"),
)
FAILOVER_NS = 4_000_000_000  # a net tick


def test_no_publish_waits_for_a_process_that_is_out_of_its_queues_row(tmp_path: Path) -> None:
    """Its channel must look again by itself: nothing else may be going on there."""
    run = shalott(KILL, tmp_path)
    assert run.exit_code == 0, run
    publishes = run.rows("enqueue")
    assert len(publishes) > 300
    late = [row for row in publishes if row["complete_ns"] - row["invoke_ns"] > FAILOVER_NS]
    assert late == []
