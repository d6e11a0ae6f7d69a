"""Consumer groups on local nodes: members of every kind, while the master's process ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import shalott

pytestmark = pytest.mark.local


def test_groups_lose_nothing_when_a_master_is_killed(tmp_path: Path) -> None:
    done = shalott(
        ["test", "--cluster", "local", "--system", "master-slave", "--profile", "safe",
         "--workload", "group", "--groups", "concurrent,tagged-orderly,broadcast", "--later", "0.2",
         "--change", "1s", "--die", "0", "--nemesis", "kill", "--targets", "master",
         "--nemesis-interval", "3", "--nemesis-duration", "2", "--time-limit", "9",
         "--rate", "20", "--seed", "3"],
        tmp_path,
    )  # fmt: skip
    assert leftovers(done) == []
    assert done.exit_code == 0, done
    rows = [row for row in done.history.ops.to_pylist() if row["process"] >= 0]
    delivered = Counter(
        msgspec.json.decode(row["extra"])["group"] for row in rows if row["f"] == "deliver"
    )
    assert min(delivered[name] for name in ("concurrent", "tagged-orderly", "broadcast")) > 20
    assert done.counts("group-fates")["message-count"] > 0
    assert {row["type"] for row in rows if row["f"] == "final-offset"} == {"ok"}
