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


def test_a_node_that_was_stopped_is_forgotten_and_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As the documents do it: stop_app there, forget_cluster_node here, reset and join there."""
    with running_nodes(tmp_path_factory.mktemp("forgotten"), ("n1", "n2")) as (first, second):
        declare(first, "stays")
        declare(second, "goes")
        done = typed(first, "forget_cluster_node rabbit@n2")
        assert (done.exit_code, "must be stopped before" in done.stderr) == (69, True)
        said(second, "stop_app")
        until(lambda: running(first) == ["n1"], "the other one knows that it is stopped")
        assert said(first, "forget_cluster_node rabbit@n2") == [
            "Removing node rabbit@n2 from the cluster"
        ]
        assert names(first) == ["stays"]
        lines = said(first, "cluster_status")
        assert lines[lines.index("\x1b[1mDisk Nodes\x1b[0m") + 2 :][:2] == ["n1", ""]
        said(second, "reset")
        said(second, "join_cluster rabbit@n1")
        said(second, "start_app")
        until(lambda: running(first) == ["n1", "n2"], "they are one cluster again")
        assert names(second) == ["stays"]
        done = typed(first, "await_online_nodes 2 -t 20")
        assert done.exit_code == 0
        done = typed(first, "await_online_nodes 3 -t 1")
        assert (done.exit_code, "Not enough nodes joined" in done.stderr) == (70, True)


def test_verbs_of_a_stopped_node(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_nodes(tmp_path_factory.mktemp("stopped"), ("n1", "n2")) as (first, second):
        said(second, "stop_app")
        assert said(second, "update_cluster_nodes rabbit@n1") == [
            "Will seed n2 from rabbit@n1 on next start"
        ]
        assert typed(second, "update_cluster_nodes n9").exit_code == 69
        assert said(second, "change_cluster_node_type disc") == ["Turning n2 into a disc node"]
        for line, exit_code, text in (
            ("change_cluster_node_type ram", 69, "there are no RAM nodes here"),
            ("change_cluster_node_type wood", 65, "must be either disc or ram"),
            ("join_cluster rabbit@n2", 70, "cannot cluster node with itself"),
            ("await_startup -t 1", 69, "rabbit_is_not_running"),
            ("node_health_check", 64, "requires the 'rabbit' app to be running"),
        ):
            done = typed(second, line)
            assert (done.exit_code, text in done.stderr) == (exit_code, True), (line, done)
        assert said(second, "-q ping") == ["Ping succeeded"]
        said(second, "start_app")
        assert said(second, "await_startup") == []
        assert said(second, "shutdown")[0] == "Shutting down RabbitMQ node n2"
        assert second.process is not None
        assert second.process.wait(30) == 0
        until(lambda: running(first) == ["n1"], "it is gone")
