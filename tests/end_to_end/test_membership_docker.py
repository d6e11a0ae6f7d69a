"""Nodes of the real RabbitMQ leave its cluster and join it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.leftovers import docker_leftovers
from tests.end_to_end.runs import shalott

pytestmark = pytest.mark.docker


@pytest.mark.nightly("RabbitMQ joins a cluster in most of two minutes")
def test_rabbitmq_forgets_a_node_and_takes_an_empty_one(tmp_path: Path) -> None:
    run = shalott(
        [
            *("test", "--cluster", "docker", "--system", "rabbitmq", "--profile", "safe"),
            *("--nemesis", "replace-node", "--nemesis-duration", "3", "--nemesis-interval", "40"),
            *("--time-limit", "40", "--rate", "50", "--seed", "3"),
        ],
        tmp_path,
    )
    assert run.exit_code == 0, run
    (fault,) = [row["extra"] for row in run.rows("replace-node")]
    assert fault["proved_effective"] and fault["proved_healed"]
    assert run.counts("total-queue")["lost-count"] == 0
    assert docker_leftovers(run) == []
