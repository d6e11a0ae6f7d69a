"""The workload consume on real nodes: our broker's processes, and RabbitMQ in containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.leftovers import docker_leftovers, leftovers
from tests.end_to_end.runs import Done, shalott

COMMON = ("test", "--workload", "consume", "--profile", "safe", "--seed", "1", "--rate", "60")


def assert_consumed(done: Done) -> None:
    """Nothing was lost, and consumers did more than to stay."""
    assert done.exit_code == 0, done
    ended = {row["extra"].get("ended") for row in done.rows("consumer")}
    assert {"cancelled", "channel-closed", "hung-up"} <= ended, done
    assert any(row["redelivered"] for row in done.rows("deliver")), done
    acks = done.rows("ack")
    proved = [row for row in acks if row["type"] == "ok"]
    assert len(proved) > 0.8 * len(acks) > 80, done
    assert done.counts("consumer-fates")["lost-count"] == 0, done


@pytest.mark.local
def test_our_broker_serves_consumers(tmp_path: Path) -> None:
    done = shalott(
        [*COMMON, "--cluster", "local", "--nemesis", "none", "--time-limit", "8"], tmp_path
    )
    assert leftovers(done) == []
    assert_consumed(done)


@pytest.mark.docker
@pytest.mark.nightly("ours serves consumers by day")
def test_rabbitmq_serves_consumers_while_a_node_dies(tmp_path: Path) -> None:
    done = shalott(
        [
            *(*COMMON, "--cluster", "docker", "--system", "rabbitmq", "--time-limit", "15"),
            *("--nemesis", "kill", "--nemesis-interval", "6", "--nemesis-duration", "2"),
        ],
        tmp_path,
    )
    assert docker_leftovers(done) == []
    assert_consumed(done)
