"""What an operator sees of a queue's process: #q{} under its names, and the 200 ms timer."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.mirrored.storage import QueueStorage
from tests.world.clock.latency import sim
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, TestChannel, run, until

pytestmark = pytest.mark.unit

# The record's fields (rabbit_amqqueue_process.erl), the backing queue's state among them.
FIELDS = [
    "q",
    "exclusive_consumer",
    "has_had_consumers",
    "backing_queue",
    "backing_queue_state",
    "consumers",
    "expires",
    "sync_timer_ref",
    "rate_timer_ref",
    "expiry_timer_ref",
    "stats_timer",
    "msg_id_to_channel",
    "ttl",
    "ttl_timer_ref",
    "ttl_timer_expiry",
    "senders",
    "dlx",
    "dlx_routing_key",
    "max_length",
    "max_bytes",
    "args_policy_version",
    "status",
]


async def inspected(channel: TestChannel) -> dict[str, Any]:
    answer = await channel.ask("q", qp.Inspect())
    assert isinstance(answer, qp.Stats)
    return answer.detail


def consume(channel: TestChannel, tag: str, **more: Any) -> qp.Consume:
    return qp.Consume(channel.pid, tag, no_ack=False, exclusive=False, prefetch=1, **more)


def test_the_record_is_shown_with_every_field() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            arguments = {
                "x-max-length": 10, "x-max-length-bytes": 9000, "x-message-ttl": 60_000,
                "x-expires": 120_000, "x-dead-letter-exchange": "dlx",
                "x-dead-letter-routing-key": "dead",
            }  # fmt: skip
            await cluster["a"].declare("q", arguments=arguments)
            channel = cluster["a"].channel()
            await channel.publish_all("q", [b"12345", b"678"])
            await channel.get("q")
            shown = await inspected(channel)
            q = shown["q"]
            assert set(FIELDS) <= set(q)
            assert (q["max_length"], q["max_bytes"], q["ttl"], q["expires"]) == (
                10, 9000, 60_000, 120_000,
            )  # fmt: skip
            assert (q["dlx"], q["dlx_routing_key"]) == ("dlx", "dead")
            assert q["ttl_timer_ref"] is True and q["ttl_timer_expiry"] > sim().now_ns
            assert q["expiry_timer_ref"] is True and q["senders"] == [str(channel.pid)]
            assert q["backing_queue"] == "rabbit_variable_queue" and q["status"] == "running"
            assert shown["message_bytes_ready"] == 3 and shown["message_bytes_unacknowledged"] == 5
            status = shown["backing_queue_status"]
            assert (status["mode"], status["len"], status["pending_acks"]) == ("default", 1, 1)

    run(scenario())


def test_priorities_of_consumers_and_of_messages_are_shown_and_kept() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q", arguments={"x-max-priority": 5})
            channel = cluster["a"].channel()
            for body, priority in ((b"low", 1), (b"high", 4), (b"higher", 5)):
                channel.publish("q", body, priority=priority)
            await until(lambda: not channel.owed)
            status = (await inspected(channel))["backing_queue_status"]
            assert status["priority_lengths"] == {"1": 1, "4": 1, "5": 1}
            await channel.ask("q", consume(channel, "second", priority=1))
            await channel.ask("q", consume(channel, "first", priority=9))
            await until(lambda: len(channel.deliveries) == 2)
            q = (await inspected(channel))["q"]
            assert [(c["consumer_tag"], c["priority"]) for c in q["consumers"]] == [
                ("first", 9), ("second", 1),
            ]  # fmt: skip
            assert q["has_had_consumers"] and q["exclusive_consumer"] == "none"
            assert q["backing_queue"] == "rabbit_priority_queue"
            assert channel.deliveries[0].content.body == b"higher"

    run(scenario())


def test_an_exclusive_consumer_is_named() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            channel = cluster["a"].channel()
            request = qp.Consume(channel.pid, "mine", no_ack=True, exclusive=True, prefetch=0)
            await channel.ask("q", request)
            shown = await inspected(channel)
            assert shown["exclusive_consumer_tag"] == shown["q"]["exclusive_consumer"] == "mine"

    run(scenario())


@pytest.mark.parametrize("interval_ms", [0, 200])
def test_a_confirm_waits_for_the_sync_timer_and_no_longer(interval_ms: int) -> None:
    async def scenario() -> None:
        async with Cluster("") as cluster:
            node = cluster.boot("a", supervisor=False)
            storage = QueueStorage(node.disk, node.env.clock, sync_interval_ms=interval_ms)
            node.start_supervisor(storage=storage)
            await node.declare("q")
            channel = node.channel()
            began = sim().time()
            channel.publish("q", b"first")
            await passes(0.01)
            if interval_ms:
                assert (await inspected(channel))["q"]["sync_timer_ref"] is True
                assert (await inspected(channel))["q"]["msg_id_to_channel"] == 1
            channel.publish("q", b"in its company")
            await until(lambda: len(channel.confirmed) == 2)
            took_ms = (sim().time() - began) * 1000
            assert interval_ms <= took_ms < interval_ms + 50
            assert (await inspected(channel))["q"]["sync_timer_ref"] is False

    run(scenario())
