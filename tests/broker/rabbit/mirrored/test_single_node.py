"""One node, no mirrors: the life of a queue and its messages."""

from __future__ import annotations

import asyncio

import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.processes.messages import Done, Failed
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, run, until

pytestmark = pytest.mark.unit


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def test_declare_publish_get_ack() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            node, channel = cluster["a"], cluster["a"].channel()
            row = await node.declare("q")
            assert row.pid is not None and row.pid.node == "a"
            assert (await node.declare("q")).pid == row.pid
            await channel.publish_all("q", bodies(10))
            got = await channel.get("q")
            assert got is not None
            assert (got.content.body, got.redelivered, got.remaining) == (b"0", False, 9)
            stats = await channel.ask("q", qp.Stat())
            assert stats == qp.Stats(9, 1, 0, "running")
            channel.settle("q", [got.ack_id])
            assert await channel.drain("q") == bodies(9, 1)
            stats = await channel.ask("q", qp.Stat())
            assert stats == qp.Stats(0, 0, 0, "running")
            assert sum(e.detail["count"] for e in cluster.events_of("acked")) in (0, 10)
            await until(lambda: sum(e.detail["count"] for e in cluster.events_of("acked")) == 10)

    run(scenario())


def test_requeued_messages_come_back_in_place_and_redelivered() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            await channel.publish_all("q", bodies(4))
            first, second = await channel.get("q"), await channel.get("q")
            assert first is not None and second is not None
            channel.settle("q", [first.ack_id], "requeue")
            again = await channel.get("q")
            assert again is not None
            assert (again.content.body, again.redelivered) == (b"0", True)
            channel.settle("q", [again.ack_id], "reject")
            await cluster["a"].runtime.kill(channel.pid)
            other = cluster["a"].channel()
            assert await other.drain("q") == bodies(3, 1)

    run(scenario())


def test_consumers_get_messages_within_their_prefetch_in_turn() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            for tag in ("x", "y"):
                request = qp.Consume(channel.pid, tag, False, False, 2)
                assert await channel.ask("q", request) == Done()
            await channel.publish_all("q", bodies(6))
            await until(lambda: len(channel.deliveries) == 4)
            assert [d.tag for d in channel.deliveries] == ["x", "y", "x", "y"]
            channel.settle("q", [channel.deliveries[1].ack_id])
            await until(lambda: len(channel.deliveries) == 5)
            assert (channel.deliveries[4].tag, channel.deliveries[4].content.body) == ("y", b"4")
            await channel.ask("q", qp.CancelConsumer(channel.pid, "y"))
            channel.settle("q", [channel.deliveries[0].ack_id])
            await until(lambda: len(channel.deliveries) == 6)
            assert channel.deliveries[5].tag == "x"

    run(scenario())


def test_exclusive_consumers_clash_and_higher_priority_goes_first() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            low = qp.Consume(channel.pid, "low", True, False, 0, priority=0)
            high = qp.Consume(channel.pid, "high", True, False, 0, priority=5)
            alone = qp.Consume(channel.pid, "alone", True, True, 0)
            assert await channel.ask("q", low) == Done()
            assert await channel.ask("q", high) == Done()
            answer = await channel.ask("q", alone)
            assert isinstance(answer, Failed) and answer.kind == "access_refused"
            await channel.publish_all("q", bodies(3))
            assert [d.tag for d in channel.deliveries] == ["high"] * 3

    run(scenario())


def test_a_channels_limit_holds_over_all_its_consumers() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            row = cluster["a"].row("q")
            assert row is not None and row.pid is not None
            cluster["a"].runtime.send(row.pid, qp.ChannelLimit(channel.pid, 3))
            for tag in ("x", "y"):
                await channel.ask("q", qp.Consume(channel.pid, tag, False, False, 0))
            await channel.publish_all("q", bodies(9))
            for count in (1, 2, 3):

                def has_come(wanted: int = count) -> bool:
                    return len(channel.deliveries) == wanted

                await until(has_come)
                taken = qp.Taken(channel.pid, channel.deliveries[-1].ack_id)
                cluster["a"].runtime.send(row.pid, taken)
            stats = await channel.ask("q", qp.Stat())
            assert isinstance(stats, qp.Stats) and stats.ready == 6

    run(scenario())


def test_what_a_full_channel_returns_is_the_next_ones_as_if_it_had_never_been_out() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            full, other = cluster["a"].channel(), cluster["a"].channel()
            await cluster["a"].declare("q")
            row = cluster["a"].row("q")
            assert row is not None and row.pid is not None
            await full.ask("q", qp.Consume(full.pid, "x", False, False, 0))
            await full.publish_all("q", bodies(2))
            await until(lambda: len(full.deliveries) == 2)
            for each in full.deliveries:
                back = qp.Returned(full.pid, each.ack_id, each.redelivered)
                cluster["a"].runtime.send(row.pid, back)
            await full.publish_all("q", [b"more"])
            await other.ask("q", qp.Consume(other.pid, "y", False, False, 0))
            await until(lambda: len(other.deliveries) == 3)
            assert [each.content.body for each in other.deliveries] == [*bodies(2), b"more"]
            assert not any(each.redelivered for each in other.deliveries)
            assert len(full.deliveries) == 2
            cluster["a"].runtime.send(row.pid, qp.Resume(full.pid))
            await full.publish_all("q", bodies(2))
            await until(lambda: len(full.deliveries) + len(other.deliveries) == 7)
            assert len(full.deliveries) == 3

    run(scenario())


def test_nothing_overtakes_a_delivery_for_which_a_channel_may_have_no_room() -> None:
    """Neither what waits nor what is published, to whichever consumer."""

    async def scenario() -> None:
        async with Cluster("a") as cluster:
            full, other = cluster["a"].channel(), cluster["a"].channel()
            await cluster["a"].declare("q")
            row = cluster["a"].row("q")
            assert row is not None and row.pid is not None
            cluster["a"].runtime.send(row.pid, qp.ChannelLimit(full.pid, 2))
            await full.ask("q", qp.Consume(full.pid, "x", False, False, 0))
            await other.ask("q", qp.Consume(other.pid, "y", False, False, 0))
            await other.publish_all("q", bodies(3))
            await until(lambda: len(full.deliveries) == 1)
            stats = await other.ask("q", qp.Stat())
            assert isinstance(stats, qp.Stats) and stats.ready == 2 and not other.deliveries
            (asked,) = full.deliveries
            assert asked.asks
            back = qp.Returned(full.pid, asked.ack_id, asked.redelivered)
            cluster["a"].runtime.send(row.pid, back)
            await until(lambda: len(other.deliveries) == 3)
            assert [each.content.body for each in other.deliveries] == bodies(3)
            cluster["a"].runtime.send(row.pid, qp.Resume(full.pid))
            await other.publish_all("q", bodies(1))
            await until(lambda: len(full.deliveries) == 2)
            taken = qp.Taken(full.pid, full.deliveries[1].ack_id)
            cluster["a"].runtime.send(row.pid, taken)
            await other.publish_all("q", bodies(2))
            await until(lambda: len(full.deliveries) + len(other.deliveries) == 7)

    run(scenario())


def test_purge_delete_and_their_conditions() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            await channel.publish_all("q", bodies(5))
            got = await channel.get("q")
            assert got is not None
            refused = await channel.ask("q", qp.Delete(False, True))
            assert isinstance(refused, Failed) and refused.kind == "not_empty"
            assert await channel.ask("q", qp.Purge()) == qp.Count(4)
            await channel.ask("q", qp.Consume(channel.pid, "t", False, False, 0))
            refused = await channel.ask("q", qp.Delete(True, False))
            assert isinstance(refused, Failed) and refused.kind == "in_use"
            channel.publish("q", b"last")
            row = cluster["a"].row("q")
            assert row is not None
            await cluster["a"].queues.remove(row)
            await until(lambda: cluster["a"].process("q") is None)
            assert [c.tag for c in channel.cancelled] == ["t"]
            assert cluster["a"].row("q") is None
            assert cluster["a"].metadata.read("durable_queue", row.key) is None
            assert not cluster["a"].disk.names

    run(scenario())


def test_auto_delete_and_exclusive_queues_go_with_their_user() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            node = cluster["a"]
            channel, owner = node.channel(), node.channel()
            await node.declare("auto", auto_delete=True)
            await node.declare("mine", exclusive_owner=owner.pid, durable=False)
            await channel.ask("auto", qp.Consume(channel.pid, "t", True, False, 0))
            assert node.row("auto") is not None
            assert await channel.ask("auto", qp.CancelConsumer(channel.pid, "t")) == Done()
            assert node.row("auto") is None, "a client that is answered may rely on it"
            await node.runtime.kill(owner.pid)
            await until(lambda: node.row("mine") is None)

    run(scenario())


def test_a_killed_node_recovers_what_it_confirmed() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            await cluster["a"].declare("transient", durable=False)
            await channel.publish_all("q", bodies(50))
            await cluster.kill("a")
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") == "master")
            assert cluster["a"].row("transient") is None
            channel = cluster["a"].channel()
            assert await channel.drain("q") == bodies(50)

    run(scenario())


def test_a_crashed_queue_process_is_started_again_and_keeps_its_messages() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            first = await cluster["a"].declare("q")
            await channel.publish_all("q", bodies(20))
            await cluster.kill_process("a", "q")
            await until(lambda: cluster["a"].role("q") == "master")
            row = cluster["a"].row("q")
            assert row is not None and row.pid != first.pid
            assert await channel.drain("q") == bodies(20)

    run(scenario())


def test_a_queue_that_crashes_too_often_is_left_alone() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            for _ in range(6):
                await until(lambda: cluster["a"].role("q") == "master")
                await cluster.kill_process("a", "q")
            await passes(0.1)
            assert cluster["a"].process("q") is None

    run(scenario())


def test_an_orderly_stop_keeps_the_queue() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            await channel.publish_all("q", bodies(5))
            await channel.get("q")
            await cluster.stop("a")
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") == "master")
            channel = cluster["a"].channel()
            got = await channel.get("q")
            assert got is not None
            assert (got.content.body, got.redelivered) == (b"0", True)

    run(scenario())


def test_roles_and_epochs_are_in_the_event_log() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            version = cluster["a"].metadata.version("queue", "q@/")
            await cluster.stop("a")
            roles = [(e.group, e.role, e.epoch) for e in cluster.events_of("role")]
            assert roles == [("q", "master", version), ("q", "none", version)]

    run(scenario())


def test_what_a_channel_acknowledged_before_it_died_stays_so_when_its_queue_was_busy() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            node, channel, other = cluster["a"], cluster["a"].channel(), cluster["a"].channel()
            await node.declare("q")
            await channel.publish_all("q", bodies(2))
            first, second = await channel.get("q"), await channel.get("q")
            assert first is not None and second is not None
            process = node.process("q")
            assert process is not None
            process.state.sync.as_master = object()  # type: ignore[assignment]
            channel.settle("q", [first.ack_id])
            await node.runtime.kill(channel.pid)
            waiting = asyncio.ensure_future(other.get("q"))  # stands behind the channel's death
            await passes(0.05)
            assert not waiting.done()
            process.state.sync.as_master = None
            other.publish("q", b"2")  # any message lets the process go on
            got = await waiting
            assert got is not None
            assert (got.content.body, got.redelivered) == (b"1", True)
            assert await other.drain("q") == [b"2"]

    run(scenario())
