"""Priorities of messages and times to live, through mirrors, synchronisations, promotions and
restarts."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.replica.mirror import Mirror
from tests.world.clock.latency import sim
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, TestChannel, run, until

pytestmark = pytest.mark.unit

LEVELS = {"x-max-priority": 5}


async def mirrored(cluster: Cluster, arguments: dict[str, Any], definition: Any = None) -> None:
    await cluster.set_policy({"ha-mode": "all", **(definition or {})})
    await cluster["a"].declare("q", arguments=arguments)
    await cluster.mirrored_on("q", "".join(name for name in cluster.names if name != "a"))


def send(channel: TestChannel, **priorities: int) -> None:
    for body, priority in priorities.items():
        channel.publish("q", body.encode(), priority=priority)


async def confirmed(channel: TestChannel) -> None:
    await until(lambda: not channel.owed, "confirms")


async def promote(cluster: Cluster, name: str) -> None:
    await cluster.kill("a")
    await until(lambda: cluster.master("q") == name, "the mirror is promoted")


# -- priorities ------------------------------------------------------------------------------------


def test_a_promoted_mirror_goes_by_priority_too() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await mirrored(cluster, LEVELS)
            channel = cluster["b"].channel()
            send(channel, low=0, high=9, low2=0, mid=3, high2=5)
            await confirmed(channel)
            for body in (b"high", b"high2"):
                got = await channel.get("q")
                assert got is not None and got.content.body == body
            await cluster.in_step("q")
            send(channel, high3=7)
            await confirmed(channel)
            await promote(cluster, "b")
            assert await channel.drain("q") == [
                b"high",
                b"high2",
                b"high3",
                b"mid",
                b"low",
                b"low2",
            ]

    run(scenario())


def test_a_recovered_queue_goes_by_priority() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q", arguments=LEVELS)
            channel = cluster["a"].channel()
            send(channel, low=0, high=5, low2=0, mid=1)
            await confirmed(channel)
            await cluster.kill("a")
            cluster.boot("a")
            await until(lambda: cluster.master("q") == "a", "recovered")
            bodies = await cluster["a"].channel().drain("q")
            assert bodies == [b"high", b"mid", b"low", b"low2"]

    run(scenario())


def test_a_mirror_without_the_old_messages_does_not_take_others_for_them() -> None:
    """What is at its master's head may be new there, and is not always the oldest: a mirror that
    counted on that would call itself synchronised without a message that waits."""

    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster.set_policy({"ha-mode": "all", "ha-sync-mode": "manual"})
            await cluster["a"].declare("q", arguments=LEVELS)
            channel = cluster["a"].channel()
            send(channel, old=0)
            await confirmed(channel)
            cluster.boot("b")
            await cluster.mirrored_on("q", "b", synchronised=False)
            send(channel, new=5, other=5)
            await until(lambda: len(cluster["b"].contents("q")) == 2, "the new ones are mirrored")
            got = await channel.get("q")
            assert got is not None and got.content.body == b"new"
            await until(lambda: (b"new", True) in cluster["b"].contents("q"), "it is told")
            channel.settle("q", [got.ack_id])
            gone = await channel.get("q", no_ack=True)
            assert gone is not None and gone.content.body == b"other"
            await until(lambda: cluster["b"].contents("q") == [], "both are gone")
            process = cluster["b"].process("q")
            assert process is not None and isinstance(process.role, Mirror)
            assert process.role.depth_delta == 1
            assert not cluster["b"].is_synchronised("q")
            assert await channel.drain("q") == [b"old"]
            await until(lambda: cluster["b"].is_synchronised("q"), "nothing is missing any more")

    run(scenario())


def test_a_synchronisation_keeps_priorities_and_places() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster.set_policy({"ha-mode": "all", "ha-sync-mode": "automatic"})
            await cluster["a"].declare("q", arguments=LEVELS)
            channel = cluster["a"].channel()
            send(channel, low=0, high=4, low2=0, high2=4)
            await confirmed(channel)
            assert await channel.get("q") is not None
            cluster.boot("b")
            await cluster.mirrored_on("q", "b")
            await cluster.in_step("q")
            other = cluster["b"].channel()
            await promote(cluster, "b")
            assert await other.drain("q") == [b"high", b"high2", b"low", b"low2"]

    run(scenario())


def test_a_length_limit_drops_the_highest_priority_first() -> None:
    """The head is what is delivered next. RabbitMQ documents that higher priorities may be dropped
    to make way for lower ones."""

    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await mirrored(cluster, {**LEVELS, "x-max-length": 2})
            channel = cluster["b"].channel()
            send(channel, low=0, high=5, low2=0)
            await confirmed(channel)
            await cluster.in_step("q")
            await promote(cluster, "b")
            assert await channel.drain("q") == [b"low", b"low2"]

    run(scenario())


def test_what_is_overdue_behind_a_higher_priority_waits_for_its_turn() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q", arguments=LEVELS)
            channel = cluster["a"].channel()
            channel.publish("q", b"low", expiration_ms=20)
            channel.publish("q", b"high", priority=1)
            await confirmed(channel)
            await passes(0.1)
            assert len(cluster["a"].contents("q")) == 2
            got = await channel.get("q")
            assert got is not None and got.content.body == b"high"
            await until(lambda: len(cluster["a"].contents("q")) == 1, "it expired as the head")

    run(scenario())


# -- times to live ---------------------------------------------------------------------------------


def expired_at_ms(cluster: Cluster, name: str) -> Any:
    async def wait() -> float:
        await until(lambda: cluster[name].contents("q") == [], "it expires")
        return sim().time() * 1000

    return wait()


def test_a_promotion_does_not_prolong_a_time_to_live() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await mirrored(cluster, {"x-message-ttl": 1000})
            channel = cluster["b"].channel()
            began_ms = sim().time() * 1000
            channel.publish("q", b"waits")
            channel.publish("q", b"unacked")
            await confirmed(channel)
            assert await channel.get("q") is not None
            await cluster.in_step("q")
            await passes(0.7)
            await promote(cluster, "b")
            assert len(cluster["b"].contents("q")) == 2
            took_ms = await expired_at_ms(cluster, "b") - began_ms
            assert 1000 <= took_ms < 1100

    run(scenario())


def test_a_synchronised_copy_has_what_is_left_of_the_time() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster.set_policy({"ha-mode": "all", "ha-sync-mode": "automatic"})
            await cluster["a"].declare("q")
            channel = cluster["a"].channel()
            began_ms = sim().time() * 1000
            channel.publish("q", b"0", expiration_ms=1000)
            await confirmed(channel)
            await passes(0.5)
            cluster.boot("b")
            await cluster.mirrored_on("q", "b")
            await promote(cluster, "b")
            took_ms = await expired_at_ms(cluster, "b") - began_ms
            assert 1000 <= took_ms < 1100

    run(scenario())


@pytest.mark.parametrize("down_s", [0.2, 3.0])
def test_time_goes_on_while_a_node_is_down(down_s: float) -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q", arguments={"x-message-ttl": 1000})
            channel = cluster["a"].channel()
            began_ms = sim().time() * 1000
            channel.publish("q", b"0")
            await confirmed(channel)
            await passes(0.3)
            await cluster.kill("a")
            await passes(down_s)
            restarted_ms = sim().time() * 1000
            cluster.boot("a")
            await until(lambda: cluster.master("q") == "a", "recovered")
            at_ms = await expired_at_ms(cluster, "a")
            due_ms = max(began_ms + 1000, restarted_ms)
            assert due_ms <= at_ms < due_ms + 100

    run(scenario())


def test_a_message_that_never_waited_expires_after_a_requeue() -> None:
    """It went straight to a consumer: the time counted from its publish all the same."""

    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q", arguments={"x-message-ttl": 500})
            consumer, channel = cluster["a"].channel(), cluster["a"].channel()
            await consumer.ask("q", qp.Consume(consumer.pid, "t", False, False, 1))
            began_ms = sim().time() * 1000
            channel.publish("q", b"0")
            await until(lambda: len(consumer.deliveries) == 1, "a delivery")
            await consumer.ask("q", qp.CancelConsumer(consumer.pid, "t"))
            consumer.settle("q", [consumer.deliveries[0].ack_id], "requeue")
            took_ms = await expired_at_ms(cluster, "a") - began_ms
            assert 500 <= took_ms < 600

    run(scenario())


def test_a_message_that_becomes_the_head_expires_though_nobody_asks() -> None:
    """The timer is set for the message at the head, also if that changes, and also if another one
    is set for later already."""

    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            channel = cluster["a"].channel()
            began_s = sim().time()
            channel.publish("q", b"long", expiration_ms=60_000)
            channel.publish("q", b"short", expiration_ms=200)
            channel.publish("q", b"for ever")
            await confirmed(channel)
            assert await channel.get("q", no_ack=True) is not None
            await until(lambda: len(cluster["a"].contents("q")) == 1, "the second one expires")
            assert sim().time() < began_s + 1
            consumer = cluster["a"].channel()
            channel.publish("q", b"short", expiration_ms=200)
            await consumer.ask("q", qp.Consume(consumer.pid, "t", False, False, 1))
            await until(lambda: cluster["a"].contents("q") == [(b"for ever", True)], "it expires")

    run(scenario())


def test_what_is_overdue_behind_another_is_not_delivered_with_it() -> None:
    """A consumer with room takes all that is ready at once: the dead among it are left out."""

    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            channel, consumer = cluster["a"].channel(), cluster["a"].channel()
            channel.publish("q", b"first")
            channel.publish("q", b"dead", expiration_ms=50)
            channel.publish("q", b"last")
            await confirmed(channel)
            await passes(0.2)  # virtual time
            await consumer.ask("q", qp.Consume(consumer.pid, "t", False, False, 0))
            await until(lambda: len(consumer.deliveries) >= 2, "deliveries")
            bodies = [delivery.content.body for delivery in consumer.deliveries]
            assert bodies == [b"first", b"last"]

    run(scenario())
