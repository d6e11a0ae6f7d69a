"""What a master owes its consumers: turns, limits, the single active one, and the flag redelivered
after a promotion."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.processes.messages import Done, Pid
from shalott.broker.rabbit.replica.consumers import UNWRITTEN_MAX
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, TestChannel, run, until

pytestmark = pytest.mark.unit


def consume(channel: TestChannel, tag: str, prefetch: int = 0, **more: bool) -> qp.Consume:
    return qp.Consume(channel.pid, tag, more.pop("no_ack", False), False, prefetch, **more)


def bodies(channel: TestChannel) -> list[bytes]:
    return [each.content.body for each in channel.deliveries]


# -- turns and limits ------------------------------------------------------------------------------


def test_when_the_single_active_consumer_is_cancelled_the_next_gets_what_waits() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q", arguments={"x-single-active-consumer": True})
            publisher, one, two = (cluster["a"].channel() for _ in range(3))
            await one.ask("q", consume(one, "one", 1))
            await two.ask("q", consume(two, "two", 1))
            await publisher.publish_all("q", [b"0", b"1"])
            await until(lambda: bodies(one) == [b"0"], "the first gets one")
            assert isinstance(await one.ask("q", qp.CancelConsumer(one.pid, "one")), Done)
            await until(lambda: bodies(two) == [b"1"], "the second gets what waits")

    run(scenario())


def test_what_a_former_consumer_of_that_tag_holds_does_not_count_for_the_new_one() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            publisher, channel = cluster["a"].channel(), cluster["a"].channel()
            await publisher.publish_all("q", [b"0", b"1", b"2"])
            await channel.ask("q", consume(channel, "t", 1))
            await until(lambda: bodies(channel) == [b"0"], "one")
            await channel.ask("q", qp.CancelConsumer(channel.pid, "t"))
            await channel.ask("q", consume(channel, "t", 1))
            await until(lambda: bodies(channel) == [b"0", b"1"], "two")
            channel.settle("q", [channel.deliveries[0].ack_id])
            await passes(0.1)
            assert bodies(channel) == [b"0", b"1"]  # it still holds one
            channel.settle("q", [channel.deliveries[1].ack_id])
            await until(lambda: bodies(channel) == [b"0", b"1", b"2"], "three")

    run(scenario())


@pytest.mark.parametrize("no_ack", [True, False])
def test_what_a_channel_has_not_written_stays_in_the_queue(no_ack: bool) -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            publisher, channel = cluster["a"].channel(), cluster["a"].channel()
            await publisher.publish_all("q", [b"%d" % number for number in range(300)])
            await channel.ask("q", consume(channel, "t", no_ack=no_ack))
            await until(lambda: len(bodies(channel)) == UNWRITTEN_MAX, "as much as it may have")
            await passes(0.1)
            assert len(bodies(channel)) == UNWRITTEN_MAX
            channel.send("q", qp.Written(channel.pid, 50))
            await until(lambda: len(bodies(channel)) == UNWRITTEN_MAX + 50, "50 more")
            await channel.ask("q", qp.CancelConsumer(channel.pid, "t"))
            channel.send("q", qp.Written(channel.pid, 50))
            await passes(0.1)
            assert len(bodies(channel)) == UNWRITTEN_MAX + 50

    run(scenario())


# -- the flag --------------------------------------------------------------------------------------


async def promoted(cluster: Cluster) -> TestChannel:
    await cluster.kill("a")
    await until(lambda: cluster.master("q") == "b", "the mirror is promoted")
    return cluster["b"].channel()


async def flags(channel: TestChannel) -> dict[bytes, bool]:
    found = {}
    while (got := await channel.get("q", no_ack=True)) is not None:
        found[got.content.body] = got.redelivered
    return found


def test_after_a_promotion_every_message_may_have_been_delivered() -> None:
    """The news of a delivery may have died with the master (rabbit_mirror_queue_slave publishes
    everything as delivered)."""

    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await cluster.set_policy({"ha-mode": "all"})
            await cluster["a"].declare("q")
            await cluster.mirrored_on("q", "b")
            channel = cluster["b"].channel()
            await channel.publish_all("q", [b"0", b"1"])
            survivor = await promoted(cluster)
            await survivor.publish_all("q", [b"new"])
            assert await flags(survivor) == {b"0": True, b"1": True, b"new": False}

    run(scenario())


def test_a_copy_that_came_by_synchronisation_is_flagged_after_a_promotion() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster.set_policy({"ha-mode": "all", "ha-sync-mode": "automatic"})
            await cluster["a"].declare("q")
            await cluster["a"].channel().publish_all("q", [b"0"])
            cluster.boot("b")
            await cluster.mirrored_on("q", "b")
            assert await flags(await promoted(cluster)) == {b"0": True}

    run(scenario())


def mirror_of(cluster: Cluster) -> Pid:
    row = cluster["a"].row("q")
    assert row is not None
    return row.slave_pids[0]


def test_what_only_its_channel_told_a_mirror_is_flagged_too() -> None:
    """The dead master may have given it straight to a consumer."""

    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await cluster.set_policy({"ha-mode": "all"})
            await cluster["a"].declare("q")
            await cluster.mirrored_on("q", "b")
            cluster["b"].channel().publish("q", b"0", to=(mirror_of(cluster),))
            assert await flags(await promoted(cluster)) == {b"0": True}

    run(scenario())
