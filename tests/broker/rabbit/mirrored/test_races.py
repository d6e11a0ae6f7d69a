"""Starts that race, deaths in unlucky moments, members that lose their place."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.gm.group import RecordDead, apply_change
from shalott.broker.rabbit.mirrored.messages import UpdateMirroring
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror
from tests.world.clock.turns import passes, turns
from tests.world.rabbit.queues import Cluster, run, until

pytestmark = pytest.mark.unit

ALL: dict[str, Any] = {"ha-mode": "all"}
AUTO: dict[str, Any] = {"ha-mode": "all", "ha-sync-mode": "automatic"}


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


async def mirrored_queue(cluster: Cluster, definition: dict[str, Any] = ALL) -> None:
    await cluster.set_policy(definition)
    await until(lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values()))
    await cluster["a"].declare("q")
    await cluster.mirrored_on("q", "bc")


def test_a_master_whose_peers_supervisor_is_not_up_yet_neither_crashes_nor_stays_alone() -> None:
    """Seed 003 and rmq#2009: all stop and start; b has its tables before its supervisor."""

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            await cluster["a"].channel().publish_all("q", bodies(20))
            await cluster.kill_all()
            for name in "cb":
                cluster.boot(name, supervisor=False)
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") == "master")
            first = cluster["a"].process("q")
            await passes(0.05)
            assert cluster["a"].process("q") is first, "it did not crash"
            for name in "bc":
                cluster[name].start_supervisor()
            await cluster.mirrored_on("q", "bc")
            assert await cluster["b"].channel().drain("q") == bodies(20)
            masters = [e.node for e in cluster.events_of("role") if e.role == "master"]
            assert masters == ["a", "a"]

    run(scenario())


def test_a_crashed_master_finds_its_successor_and_becomes_a_mirror() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            await cluster["b"].channel().publish_all("q", bodies(20))
            await cluster.kill_process("a", "q")
            await until(lambda: cluster.master("q") in ("b", "c"))
            await until(lambda: cluster["a"].role("q") == "mirror")
            await until(lambda: cluster["a"].is_synchronised("q"))
            await cluster.in_step("q")
            assert len(cluster["a"].contents("q")) == 20

    run(scenario())


def test_a_member_that_others_recorded_dead_starts_anew() -> None:
    """rmq#714: a partial partition makes c believe that b is dead; b must not go on as if nothing
    was.
    """

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(10))
            process = cluster["b"].process("q")
            assert process is not None and process.state.ring.gm is not None
            dead = RecordDead(process.state.ring.gm.member.id, by=None)

            def bury(tx: Any) -> None:
                tx.write("gm_group", "q@/", apply_change(dead, tx.read("gm_group", "q@/")))

            await cluster["c"].metadata.transact(bury)
            for body in bodies(20, 10):
                channel.publish("q", body)
            await until(lambda: cluster["b"].process("q") not in (None, process))
            await cluster.mirrored_on("q", "bc")
            await until(lambda: not channel.owed)
            await cluster.in_step("q")
            assert len(cluster["b"].contents("q")) == 30

    run(scenario())


def test_a_mirror_that_is_not_in_the_row_any_more_stops_itself() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            row = cluster["a"].row("q")
            gone = cluster["b"].process("q")
            assert row is not None and gone is not None
            kept = [pid for pid in row.slave_pids if pid.node != "b"]
            changed = msgspec.structs.replace(row, slave_pids=tuple(kept), sync_slave_pids=())
            await cluster["c"].metadata.transact(lambda tx: tx.write("queue", row.key, changed))
            await until(lambda: cluster["b"].process("q") not in (None, gone))
            assert any(e.node == "b" for e in cluster.events_of("demoted"))
            await until(lambda: cluster["b"].role("q") == "mirror")

    run(scenario())


def test_policies_may_change_while_a_mirror_is_being_promoted() -> None:
    """rmq#803, and rmq#1007: a mirror that is told of a policy change doesn't mind."""

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            await cluster["b"].channel().publish_all("q", bodies(10))
            await cluster.kill("a")
            for size in range(1, 20):
                await cluster.set_policy({**AUTO, "ha-sync-batch-size": size})
                await passes(0.01)
            await until(lambda: cluster.master("q"))
            mirror = cluster[cluster.mirrors("q")[0]]
            process = mirror.process("q")
            assert process is not None
            mirror.runtime.send(process.pid, UpdateMirroring())
            await cluster.in_step("q")
            assert await mirror.channel().drain("q") == bodies(10)
            assert mirror.process("q") is process

    run(scenario())


def test_a_channel_that_dies_with_half_its_copies_sent_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            channel = cluster["b"].channel()
            await channel.publish_all("q", bodies(3))
            mirror = cluster["c"].process("q")
            assert mirror is not None
            lonely = qp.Content(1, "", "q", b"", b"lonely", True)
            cluster["b"].runtime.send(mirror.pid, qp.Publish(channel.pid, 99, lonely))
            await until(lambda: any(s.waiting for s in mirror.role.confirms._senders.values()))  # type: ignore[union-attr]
            await cluster["b"].runtime.kill(channel.pid)
            await until(lambda: not mirror.role.confirms._senders)  # type: ignore[union-attr]
            assert not mirror.role.confirms._statuses  # type: ignore[union-attr]
            await cluster.in_step("q")

    run(scenario())


def test_what_only_mirrors_got_from_a_channel_is_published_by_the_new_master() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            channel = cluster["b"].channel()
            await channel.publish_all("q", bodies(3))
            row = cluster["b"].row("q")
            assert row is not None and row.pid is not None
            cluster.cuts["a", "b"] = None  # silently: frames from b to a are lost
            channel.publish("q", b"3")
            await passes(0.02)
            assert (b"3", False) not in cluster["c"].contents("q")
            del cluster.cuts["a", "b"]
            await cluster.kill("a")
            await until(lambda: cluster.master("q"))
            await until(lambda: not channel.owed)
            assert channel.confirmed == bodies(4)
            await cluster.in_step("q")
            assert await channel.drain("q") == bodies(4)

    run(scenario())


def test_time_to_live_and_lengths_are_the_masters_business_and_mirrors_follow() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            node, channel = cluster["a"], cluster["b"].channel()
            for name, arguments in (
                ("short", {"x-message-ttl": 30}),
                ("full", {"x-max-length": 3, "x-overflow": "reject-publish"}),
                ("bytes", {"x-max-length-bytes": 5}),
            ):
                await node.declare(name, arguments=arguments)
                await cluster.mirrored_on(name, "bc")
            await channel.publish_all("short", bodies(5))
            await until(lambda: cluster["c"].contents("short") == [])
            for body in bodies(5):
                channel.publish("full", body)
            await until(lambda: not channel.owed)
            assert channel.nacked == bodies(2, 3)
            await channel.publish_all("bytes", bodies(8))
            channel.publish("q", b"expires", expiration_ms=20)
            channel.publish("q", b"stays")
            await until(lambda: cluster["c"].contents("q") == [(b"stays", False)])
            for name in ("short", "full", "bytes", "q"):
                await cluster.in_step(name)
            assert [b for b, _ in cluster["b"].contents("full")] == bodies(3)
            assert [b for b, _ in cluster["b"].contents("bytes")] == bodies(5, 3)
            for name in ("full", "bytes", "q"):
                assert cluster["b"].is_synchronised(name)

    run(scenario())


@pytest.mark.parametrize("copy", ["came first", "comes after the promotion"])
def test_what_a_dead_master_refused_is_not_confirmed_by_its_mirrors(copy: str) -> None:
    """Its refusal is lost with it; the mirrors have heard of it round the ring."""

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            arguments = {"x-max-length": 3, "x-overflow": "reject-publish"}
            await cluster["a"].declare("full", arguments=arguments)
            await cluster.mirrored_on("full", "bc")
            channel = cluster["c"].channel()
            await channel.publish_all("full", bodies(3))
            process = cluster["a"].process("full")
            assert process is not None and isinstance(process.role, Master)
            process.role.confirms.refuse = lambda message: None  # type: ignore[method-assign]
            heir, late = cluster["b"].process("full"), list[qp.Publish]()
            assert heir is not None and isinstance(heir.role, Mirror)
            if copy == "comes after the promotion":
                heir.role.confirms.publish = late.append  # type: ignore[method-assign]
                other = cluster["c"].process("full")
                assert other is not None and isinstance(other.role, Mirror)
                other.role.confirms.publish = lambda message: None  # type: ignore[method-assign]
            channel.publish("full", b"refused")
            await passes(0.05)
            await cluster.kill("a")
            await until(lambda: cluster.master("full") == "b")
            for message in late:
                heir.deliver(message)
            await until(lambda: not channel.owed)
            assert (channel.confirmed, channel.nacked) == (bodies(3), [b"refused"])
            assert [b for b, _ in cluster["b"].contents("full")] == bodies(3)

    run(scenario())


def test_mirrors_come_and_go_under_load_and_every_confirm_is_kept() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            channel, sent = cluster["a"].channel(), 0
            for round_ in range(6):
                name = "bc"[round_ % 2]
                await until(lambda name=name: cluster[name].process("q"))
                await cluster.kill_process(name, "q")
                for _ in range(30):
                    channel.publish("q", b"%d" % sent)
                    sent += 1
                    await turns()
            await until(lambda: not channel.owed)
            await cluster.mirrored_on("q", "bc")
            await cluster.in_step("q")
            assert channel.confirmed and not channel.nacked
            assert await channel.drain("q") == bodies(sent)

    run(scenario())


def test_a_node_that_is_cut_off_from_the_tables_can_still_stop() -> None:
    """In a minority that pauses, no transaction ends: processes that wait for one give up."""

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            await cluster["a"].channel().publish_all("q", bodies(5))
            never = asyncio.Event()

            async def transact(body: Any, **more: Any) -> Any:
                await never.wait()

            cluster["a"].metadata.transact = transact  # type: ignore[method-assign, assignment]
            cluster.partition("a", "bc")
            await until(lambda: cluster.master("q") == "a" and len(cluster.mirrors("q")) <= 1)
            await asyncio.wait_for(cluster.stop("a"), 4)
            assert cluster.disks["a"].names
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") != "none")

    run(scenario())
