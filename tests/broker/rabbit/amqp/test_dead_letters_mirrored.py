"""Dead letters among nodes: to mirrored queues by both paths, from a promoted master, and the end
of the process that publishes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.amqp.counts import Counts
from shalott.broker.rabbit.amqp.dead_letters import DeadLetters
from shalott.broker.rabbit.metadata.records import PolicyRow, policy_key
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.replica.mirror import Mirror
from tests.world.rabbit.queues import Cluster, TestNode, run, until

pytestmark = pytest.mark.unit

TO_GRAVE = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}


@asynccontextmanager
async def cluster_of(names: str, mirrored: str) -> AsyncIterator[tuple[Cluster, dict[str, Pid]]]:
    """Nodes with dead letters, by their processes; queues that match ``mirrored`` are on all."""
    cluster = Cluster(names)
    publishers, counts = {}, Counts()
    for name in names:
        node = cluster.boot(name, supervisor=False)
        dead_letters = DeadLetters(node.env, node.metadata, node.queues, counts)
        publishers[name] = node.runtime.spawn(dead_letters)
        node.start_supervisor(dead_letters=dead_letters.of)
    policy = PolicyRow(vhost="/", name="ha", pattern=mirrored, definition={"ha-mode": "all"})
    await cluster[names[0]].metadata.transact(
        lambda tx: tx.write("policy", policy_key("/", "ha"), policy)
    )
    try:
        yield cluster, publishers
        assert counts.every(), "each test has some"
    finally:
        await cluster.__aexit__()


async def reject_all(node: TestNode, count: int) -> None:
    channel = node.channel()
    await channel.publish_all("work", [b"%d" % number for number in range(count)])
    for _ in range(count):
        got = await channel.get("work")
        assert got is not None
        channel.settle("work", [got.ack_id], "reject")


def senders(node: TestNode, queue: str) -> list[Pid]:
    process = node.process(queue)
    assert process is not None and isinstance(process.role, Mirror)
    return list(process.role.confirms._senders)


def test_dead_letters_are_on_every_mirror_and_outlive_the_master() -> None:
    async def scenario() -> None:
        async with cluster_of("abc", "^grave$") as (cluster, _):
            await cluster["b"].declare("grave")
            await cluster.mirrored_on("grave", "ac")
            await cluster["a"].declare("work", arguments=TO_GRAVE)
            await reject_all(cluster["a"], 20)
            await until(lambda: len(cluster["b"].contents("grave")) == 20, "20 dead letters")
            await cluster.in_step("grave")
            await cluster.kill("b")
            await until(lambda: cluster.master("grave") != "", "a mirror is promoted")
            buried = await cluster["c"].channel().drain("grave")
            assert buried == [b"%d" % number for number in range(20)]

    run(scenario())


def test_mirrors_forget_the_dead_letters_of_a_node_that_died() -> None:
    async def scenario() -> None:
        async with cluster_of("abc", "^grave$") as (cluster, publishers):
            await cluster["b"].declare("grave")
            await cluster.mirrored_on("grave", "ac")
            await cluster["a"].declare("work", arguments=TO_GRAVE)
            await reject_all(cluster["a"], 3)
            await until(lambda: len(cluster["c"].contents("grave")) == 3, "3 dead letters")
            assert publishers["a"] in senders(cluster["c"], "grave")
            await cluster.kill("a")
            await until(lambda: publishers["a"] not in senders(cluster["c"], "grave"), "forgotten")
            assert len(cluster["c"].contents("grave")) == 3

    run(scenario())


def test_a_promoted_master_passes_on_what_dies_under_it() -> None:
    async def scenario() -> None:
        async with cluster_of("ab", "^work$") as (cluster, _):
            await cluster["b"].declare("grave")
            await cluster["a"].declare("work", arguments=TO_GRAVE)
            await cluster.mirrored_on("work", "b")
            channel = cluster["b"].channel()
            await channel.publish_all("work", [b"0", b"1"])
            await cluster.in_step("work")
            await cluster.kill("a")
            await until(lambda: cluster.master("work") == "b", "the mirror is promoted")
            got = await channel.get("work")
            assert got is not None
            channel.settle("work", [got.ack_id], "reject")
            await until(lambda: len(cluster["b"].contents("grave")) == 1, "a dead letter")
            assert await channel.drain("work") == [b"1"]
            assert await channel.drain("grave") == [b"0"]

    run(scenario())


def test_only_the_master_buries_what_every_mirror_holds() -> None:
    async def scenario() -> None:
        async with cluster_of("abc", "") as (cluster, _):
            limits = {**TO_GRAVE, "x-message-ttl": 30, "x-max-length": 5}
            await cluster["a"].declare("grave")
            await cluster["b"].declare("work", arguments=limits)
            await cluster.mirrored_on("grave", "bc")
            await cluster.mirrored_on("work", "ac")
            channel = cluster["c"].channel()
            await channel.publish_all("work", [b"%d" % number for number in range(12)])
            await until(lambda: not cluster["b"].contents("work"), "all have died")
            await cluster.in_step("work")
            await until(lambda: len(cluster["a"].contents("grave")) == 12, "12 dead letters")
            await cluster.in_step("grave")
            buried = await channel.drain("grave")
            assert buried == [b"%d" % number for number in range(12)]

    run(scenario())


def test_a_dead_letter_wants_no_confirm_and_loses_its_expiration() -> None:
    async def scenario() -> None:
        async with cluster_of("a", "none") as (cluster, _):
            await cluster["a"].declare("grave")
            await cluster["a"].declare("work", arguments=TO_GRAVE)
            channel = cluster["a"].channel()
            channel.publish("work", b"short", expiration_ms=1)
            await until(lambda: len(cluster["a"].contents("grave")) == 1, "a dead letter")
            got = await channel.get("grave")
            assert isinstance(got, qp.Got)
            assert got.content.expiration_ms is None
            assert (got.content.exchange, got.content.routing_key) == ("", "grave")
            assert got.content.persistent

    run(scenario())
