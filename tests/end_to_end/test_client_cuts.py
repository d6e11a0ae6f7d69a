"""Clients that are cut off from a container, and a world that can't do that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import shalott

ARGUMENTS = (
    *("test", "--nemesis", "client-cut,client-cut-one-way", "--targets", "n2", "--profile", "safe"),
    *("--time-limit", "20", "--nemesis-interval", "8", "--nemesis-duration", "4"),
    *("--op-timeout", "2", "--rate", "50", "--seed", "4"),
)


@pytest.mark.docker
def test_operations_at_that_node_are_unknown_and_the_run_is_valid(tmp_path: Path) -> None:
    done = shalott((*ARGUMENTS, "--cluster", "docker"), tmp_path)
    assert done.exit_code == 0, done
    faults = [*done.rows("client-cut"), *done.rows("client-cut-one-way")]
    assert len({row["f"] for row in faults}) == 2
    for fault in faults:
        told = fault["extra"]
        assert told["proved_effective"] and told["proved_healed"], done
        rows = [row for row in done.history.ops.to_pylist() if row["node"] == "n2"]
        during = [r for r in rows if told["effective_ns"] < r["invoke_ns"] < told["healed_ns"]]
        clients = [row for row in during if row["process"] >= 0]
        assert clients and all(row["type"] != "ok" for row in clients[:2]), done
        asked = [row for row in during if row["f"] == "observe"]
        assert asked and all(row["type"] == "ok" for row in asked), "the management answers"


@pytest.mark.local
def test_local_nodes_can_not_be_cut_off_from_clients(tmp_path: Path) -> None:
    done = shalott((*ARGUMENTS, "--cluster", "local"), tmp_path)
    assert done.exit_code == 254
    (sentence,) = done.complaints
    assert "the local backend can't part clients from nodes (cut-clients) here" in sentence
