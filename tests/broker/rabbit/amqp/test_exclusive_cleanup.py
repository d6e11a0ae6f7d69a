"""Queues whose connection is no more: they go with it, with its node, and at the latest before that
node takes clients again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pika
import pika.exceptions
import pytest

from tests.broker.rabbit.amqp.pika_flows import closes_channel, connected, drain, parameters
from tests.world.processes.rabbit import NodeProcess, nodes, running_nodes
from tests.world.waiting import until

pytestmark = pytest.mark.local

NAMES = ("n1", "n2", "n3")


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path_factory.mktemp("alone")) as (node,):
        yield node


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeProcess]]:
    with three(tmp_path_factory.mktemp("cluster"), "ignore") as made:
        yield made


@contextmanager
def three(
    directory: Path, mode: Literal["ignore", "pause_minority"]
) -> Iterator[list[NodeProcess]]:
    with nodes(directory, NAMES) as made:
        for node in made:
            node.config = msgspec.structs.replace(
                node.config, net_tick_ms=1000, partition_mode=mode
            )
            node.start()
        for node in made:
            node.await_running(NAMES)
        yield made


def await_dropped(node: NodeProcess) -> None:
    exclusive = {"ex.transient", "ex.durable"}
    until(lambda: not exclusive & set(queues(node)), f"{node.name} has dropped them")


def queues(node: NodeProcess) -> dict[str, Any]:
    listed = asyncio.run(node.management.get("/api/queues"))
    return {each["name"]: each for each in listed}


def declare_exclusive(node: NodeProcess) -> pika.BlockingConnection:
    """A connection with two exclusive queues, and a queue that stays; each has a message."""
    connection = pika.BlockingConnection(parameters(node.address))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("ex.auto", "fanout", auto_delete=True)
    persistent = pika.BasicProperties(delivery_mode=2)
    for name, exclusive, durable in (
        ("ex.transient", True, False),
        ("ex.durable", True, True),
        ("ex.stays", False, True),
    ):
        channel.queue_declare(name, exclusive=exclusive, durable=durable)
        channel.basic_publish("", name, b"m", persistent)
    channel.queue_bind("ex.durable", "ex.auto")
    return connection


def abandon(connection: pika.BlockingConnection) -> None:
    """The client's end, also if the node is gone."""
    if connection.is_open:
        try:
            connection.close()
        except pika.exceptions.AMQPError:
            pass


def names_are_free(node: NodeProcess) -> None:
    """Another connection may have the names, and finds nothing of the former queues in them."""
    with connected(node.address) as connection:
        channel = connection.channel()
        for name in ("ex.transient", "ex.durable"):
            assert channel.queue_declare(name, durable=False).method.message_count == 0
            channel.queue_delete(name)
        channel.exchange_declare("ex.auto", "direct")  # of another type: the former is gone
        channel.exchange_delete("ex.auto")


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_no_exclusive_queue_outlives_its_node(alone: NodeProcess, ending: signal.Signals) -> None:
    connection = declare_exclusive(alone)
    alone.end(ending)
    abandon(connection)
    alone.start()
    alone.await_running()
    # The first client of the new life must not find the names locked.
    names_are_free(alone)
    with connected(alone.address) as other:
        assert drain(other.channel(), "ex.stays") == [b"m"]
    if ending == signal.SIGKILL:
        assert "is deleted: its connection" in alone.last_words(), "found at boot"


def test_other_nodes_drop_the_exclusive_queues_of_a_node_that_died(
    cluster: list[NodeProcess],
) -> None:
    first, second, third = cluster
    connection = declare_exclusive(first)
    with connected(second.address) as other, closes_channel(405, "locked queue 'ex.durable'"):
        other.channel().queue_declare("ex.durable", durable=True, passive=True)
    first.end(signal.SIGKILL)
    abandon(connection)
    for node in (second, third):
        await_dropped(node)
    names_are_free(second)
    with connected(third.address) as other, closes_channel(404, "home node 'n1'"):
        other.channel().queue_declare("ex.stays", durable=True, passive=True)
    # Its node comes back to a cluster where another queue has the name now.
    with connected(second.address) as other:
        channel = other.channel()
        channel.queue_declare("ex.durable", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "ex.durable", b"new", pika.BasicProperties(delivery_mode=2))
        first.start()
        first.await_running(NAMES)
        until(lambda: queues(first).get("ex.stays", {}).get("state") == "running", "recovered")
        with connected(first.address) as through:
            assert drain(through.channel(), "ex.stays") == [b"m"]
            assert drain(through.channel(), "ex.durable") == [b"new"]
        assert queues(first)["ex.durable"]["node"] == "n2"


def test_exclusive_queues_are_never_mirrored(cluster: list[NodeProcess]) -> None:
    policy = {"pattern": "", "definition": {"ha-mode": "all"}, "apply-to": "queues"}
    asyncio.run(cluster[0].management.put("/api/policies/%2F/all", policy))
    connection = declare_exclusive(cluster[0])
    try:
        until(lambda: len(queues(cluster[1])["ex.stays"]["slave_nodes"]) == 2, "mirrored")
        assert queues(cluster[1])["ex.durable"]["slave_nodes"] == []
    finally:
        abandon(connection)
    until(lambda: list(queues(cluster[2])) == ["ex.stays"], "they went with their connection")


def test_a_node_that_paused_has_no_exclusive_queue_when_it_resumes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """pause_minority stops the broker, and its connections, but not the node's process."""
    with three(tmp_path_factory.mktemp("paused"), "pause_minority") as (first, *others):
        connection = declare_exclusive(first)
        for node in others:
            node.end(signal.SIGKILL)
        until(lambda: first.claims()["status"] == "paused", "n1 pauses alone")
        abandon(connection)
        for node in others:
            node.start()
        for node in (first, *others):
            node.await_running(NAMES)
        names_are_free(first)
        with connected(others[0].address) as other:
            assert drain(other.channel(), "ex.stays") == [b"m"]
