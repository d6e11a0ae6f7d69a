"""A node leaves its cluster, stands alone, joins again, and starts without the others."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pika
import pytest

from shalott.cluster.local.backend import HOST
from tests.world.processes.rabbit import NodeProcess, running_nodes
from tests.world.rabbit.typing_ctl import said, typed
from tests.world.waiting import until

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeProcess]]:
    with running_nodes(tmp_path_factory.mktemp("clustering"), ("n1", "n2")) as nodes:
        yield nodes


def running(node: NodeProcess) -> list[str]:
    lines = said(node, "cluster_status")
    at = lines.index("\x1b[1mRunning Nodes\x1b[0m")
    return lines[at + 2 : lines.index("", at + 2)]


def names(node: NodeProcess) -> list[str]:
    return said(node, "-s list_queues name")


def declare(node: NodeProcess, name: str) -> None:
    with pika.BlockingConnection(
        pika.ConnectionParameters(HOST, node.address.port, heartbeat=0)
    ) as connection:
        connection.channel().queue_declare(name, durable=True)


def test_a_node_leaves_and_joins(two: list[NodeProcess]) -> None:
    first, second = two
    declare(first, "stays")
    declare(second, "goes")
    for line in ("reset", "join_cluster n1", "force_boot", "force_reset"):
        done = typed(second, line)
        told = "requires the 'rabbit' app to be stopped on the target node. Stop it with"
        assert (done.exit_code, told in done.stderr) == (64, True), (line, done)
    said(second, "stop_app")
    assert said(second, "join_cluster n1")[1:] == ["The node is already a member of this cluster"]
    assert said(second, "reset")[0].startswith("Resetting node ")
    until(lambda: running(first) == ["n1"] and names(first) == ["stays"], "its queue is gone too")
    done = typed(second, "join_cluster rabbit@n9")
    assert (done.exit_code, "n9" in done.stderr) == (69, True)
    said(second, "start_app")
    assert (running(second), running(first), names(second)) == (["n2"], ["n1"], [])
    declare(second, "alone")
    said(second, "stop_app")
    assert said(second, "join_cluster rabbit@n1")[0].startswith("Clustering node ")
    said(second, "start_app")
    until(lambda: running(first) == ["n1", "n2"], "they are one cluster")
    assert (names(first), names(second)) == (["stays"], ["stays"])
    declare(second, "again")
    until(lambda: names(first) == ["again", "stays"], "the tables are one")


def test_the_last_but_one_starts_by_force(two: list[NodeProcess]) -> None:
    """The node that went first waits for the one that went last, unless it is forced."""
    first, second = two
    said(second, "stop_app")
    declare(first, "newer")
    first.end(signal.SIGKILL)
    done = typed(second, "-t 1 start_app")
    assert (done.exit_code, "timed out" in done.stderr) == (75, True)
    said(second, "stop_app")
    assert said(second, "force_boot") == []
    said(second, "start_app")
    assert running(second) == ["n2"]
    assert "newer" not in names(second)
