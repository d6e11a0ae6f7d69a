"""Three nodes: mirrors follow, take over, and synchronise."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.mirrored import messages as mm
from shalott.broker.rabbit.processes.messages import Done, Failed
from tests.world.rabbit.queues import Cluster, run, until

pytestmark = pytest.mark.unit

ALL: dict[str, Any] = {"ha-mode": "all"}
AUTO: dict[str, Any] = {"ha-mode": "all", "ha-sync-mode": "automatic"}
SAFE: dict[str, Any] = {**AUTO, "ha-promote-on-failure": "when-synced"}


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


async def mirrored_queue(cluster: Cluster, definition: dict[str, Any] = ALL) -> None:
    """``q`` with its master on a and synchronised mirrors on b and c."""
    await cluster.set_policy(definition)
    await until(lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values()))
    await cluster["a"].declare("q")
    await cluster.mirrored_on("q", "bc")


# -- replication -----------------------------------------------------------------------------------


def test_a_mirrored_queue_is_declared_with_its_mirrors() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await cluster.set_policy(ALL)
            await cluster["a"].declare("q")
            row = cluster["a"].row("q")
            assert row is not None and len(row.slave_pids) == 2
            await cluster.mirrored_on("q", "bc")
            row = cluster["a"].row("q")
            assert row is not None and row.policy == "ha"
            assert sorted(pid.node for pid in row.gm_pids) == ["a", "b", "c"]

    run(scenario())


def test_every_process_takes_a_publish_and_confirms_it() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            channel = cluster["b"].channel()
            await channel.publish_all("q", bodies(200))
            for name in "abc":
                assert cluster[name].contents("q") == [(body, False) for body in bodies(200)]
            other = cluster["c"].channel()
            got = [await other.get("q") for _ in range(20)]
            await cluster.in_step("q")
            assert [unacked for _, unacked in cluster["b"].contents("q")][:21] == [True] * 20 + [
                False
            ]
            other.settle("q", [g.ack_id for g in got if g is not None][:10])
            await until(lambda: len(cluster["b"].contents("q")) == 190)
            await cluster["c"].runtime.kill(other.pid)
            await until(lambda: not any(unacked for _, unacked in cluster["b"].contents("q")))
            await cluster.in_step("q")
            assert await channel.drain("q") == bodies(190, 10)
            await cluster.in_step("q")

    run(scenario())


def test_consumers_through_any_node() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            consumer, publisher = cluster["b"].channel(), cluster["c"].channel()
            await consumer.ask("q", qp.Consume(consumer.pid, "t", False, False, 10))
            await publisher.publish_all("q", bodies(30))
            await until(lambda: len(consumer.deliveries) == 10)
            await cluster.in_step("q")
            for start in range(0, 30, 10):
                await until(lambda start=start: len(consumer.deliveries) == start + 10)
                consumer.settle("q", [d.ack_id for d in consumer.deliveries[start:]])
            await until(lambda: cluster["c"].contents("q") == [])
            await cluster.in_step("q")

    run(scenario())


def test_deleting_a_queue_ends_every_process_and_wipes_every_disk() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            channel = cluster["b"].channel()
            await channel.publish_all("q", bodies(10))
            row = cluster["b"].row("q")
            assert row is not None
            assert await cluster["b"].queues.remove(row) == 10
            await until(lambda: all(n.process("q") is None for n in cluster.nodes.values()))
            assert all(node.row("q") is None for node in cluster.nodes.values())
            assert not any(node.disk.names for node in cluster.nodes.values())
            await until(lambda: cluster["a"].metadata.read("gm_group", "q@/") is None)
            await mirrored_queue(cluster)
            await channel.publish_all("q", bodies(3))

    run(scenario())


# -- failover --------------------------------------------------------------------------------------


def test_the_oldest_mirror_is_promoted_and_no_confirmed_message_is_lost() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            row = cluster["a"].row("q")
            assert row is not None
            oldest = row.slave_pids[0].node
            channel = cluster["c" if oldest == "b" else "b"].channel()
            await channel.publish_all("q", bodies(100))
            for body in bodies(100, 100):
                channel.publish("q", body)
            await cluster.kill("a")
            await until(lambda: cluster[oldest].role("q") == "master")
            await until(lambda: not channel.owed, "every publish is decided")
            await cluster.in_step("q")
            held = [body for body, _ in cluster[oldest].contents("q")]
            assert held == sorted(dict.fromkeys(held), key=int)
            assert {*channel.confirmed} <= {*held}
            promoted = cluster.events_of("promoted")
            assert [(e.node, e.detail["synchronised"]) for e in promoted] == [(oldest, True)]
            assert promoted[0].detail["master_was"] == "a"
            await channel.publish_all("q", [b"after"])
            assert (await channel.drain("q"))[-1] == b"after"

    run(scenario())


def test_promotion_keeps_other_mirrors_in_step_about_unacknowledged_messages() -> None:
    """rmq#7579: the new master requeues what the old one's consumers held, and must tell."""

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            channel = cluster["b"].channel()
            await channel.publish_all("q", bodies(20))
            for _ in range(5):
                await channel.get("q")
            await cluster.kill("a")
            await until(lambda: cluster.master("q") if cluster.mirrors("q") != ["b", "c"] else 0)
            await cluster.in_step("q")
            master = cluster.master("q")
            assert cluster[master].contents("q") == [(body, False) for body in bodies(20)]
            got = await channel.get("q")
            assert got is not None and (got.content.body, got.redelivered) == (b"0", True)

    run(scenario())


def test_masters_die_one_after_the_other() -> None:
    async def scenario() -> None:
        async with Cluster("abcd") as cluster:
            await cluster.set_policy(SAFE)
            await cluster["a"].declare("q")
            await cluster.mirrored_on("q", "bcd")
            sent = 0
            for _ in range(3):
                master = cluster.master("q")
                node = next(n for n in cluster.nodes if n != master)
                channel = cluster[node].channel()
                await channel.publish_all("q", bodies(10, sent))
                sent += 10
                await cluster.kill(master)
                await until(lambda: any(n.role("q") == "master" for n in cluster.nodes.values()))
            (last,) = cluster.nodes
            assert [b for b, _ in cluster[last].contents("q")] == bodies(30)

    run(scenario())


def test_a_mirror_that_crashes_comes_back_and_synchronises() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(50))
            before = cluster["a"].row("q")
            await cluster.kill_process("b", "q")
            await until(lambda: cluster["a"].row("q").slave_pids != before.slave_pids)  # type: ignore[union-attr]
            await cluster.mirrored_on("q", "bc")
            await channel.publish_all("q", bodies(50, 50))
            await cluster.in_step("q")
            assert cluster["b"].contents("q") == [(body, False) for body in bodies(100)]

    run(scenario())


def test_a_restarted_node_takes_its_place_as_a_mirror_and_wipes() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, AUTO)
            channel = cluster["b"].channel()
            await channel.publish_all("q", bodies(30))
            await cluster.kill("a")
            await until(lambda: cluster.master("q"))
            await channel.publish_all("q", bodies(30, 30))
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") == "mirror")
            await until(lambda: cluster["a"].is_synchronised("q"))
            await cluster.in_step("q")
            assert [b for b, _ in cluster["a"].contents("q")] == bodies(60)
            wiped = [e.detail["count"] for e in cluster.events_of("wiped") if e.node == "a"]
            assert wiped == [30]
            (discarded,) = [e for e in cluster.events_of("discarded") if e.node == "a"]
            assert discarded.detail["count"] == 30

    run(scenario())


# -- synchronisation -------------------------------------------------------------------------------


async def restart_mirrors(cluster: Cluster) -> None:
    """Both mirrors lose everything, one after the other; with manual sync they stay behind."""
    for name in "bc":
        await cluster.kill(name)
        cluster.boot(name)
        await until(lambda name=name: cluster[name].role("q") == "mirror")
        await until(lambda name=name: cluster[name].process("q").role.depth_delta is not None)  # type: ignore[union-attr]


def test_unsynchronised_mirrors_catch_up_as_old_messages_are_consumed() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, ALL)
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(10))
            await restart_mirrors(cluster)
            assert not cluster["b"].is_synchronised("q")
            await channel.publish_all("q", bodies(5, 10))
            assert [b for b, _ in cluster["b"].contents("q")] == bodies(5, 10)
            held = [await channel.get("q") for _ in range(9)]
            channel.settle("q", [g.ack_id for g in held if g is not None])
            await channel.get("q", no_ack=True)
            await cluster.mirrored_on("q", "bc", synchronised=True)
            await cluster.in_step("q")

    run(scenario())


def test_an_unsynchronised_mirror_is_promoted_by_default_and_messages_are_lost() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, ALL)
            await cluster["a"].channel().publish_all("q", bodies(10))
            await restart_mirrors(cluster)
            await cluster.kill("a")
            await until(lambda: cluster.events_of("promoted"))
            (promoted,) = cluster.events_of("promoted")
            assert promoted.detail["synchronised"] is False
            assert promoted.detail["depth"] == 0
            assert "L1" in promoted.detail["reason"]
            assert await cluster["b"].channel().drain("q") == []

    run(scenario())


def test_when_synced_the_queue_waits_for_its_old_master() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, {**ALL, "ha-promote-on-failure": "when-synced"})
            await cluster["a"].channel().publish_all("q", bodies(10))
            await restart_mirrors(cluster)
            await cluster.kill("a")
            await until(lambda: len(cluster.events_of("not_promoted")) == 2)
            assert not cluster.events_of("promoted")
            row = cluster["b"].row("q")
            assert row is not None and not cluster["b"].queues.is_available(row)
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") == "master")
            await cluster.mirrored_on("q", "bc", synchronised=False)
            assert await cluster["b"].channel().drain("q") == bodies(10)

    run(scenario())


def test_an_operator_synchronises_by_hand() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, {**ALL, "ha-sync-batch-size": 7})
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(40))
            held = [await channel.get("q") for _ in range(4)]
            await restart_mirrors(cluster)
            assert await channel.ask("q", mm.SyncQueue()) == Done()
            refused = await channel.ask("q", mm.SyncQueue())
            assert isinstance(refused, Failed) and refused.kind == "syncing"
            await cluster.mirrored_on("q", "bc", synchronised=True)
            await cluster.in_step("q")
            assert cluster["b"].contents("q")[:5] == [
                *((body, True) for body in bodies(4)),
                (b"4", False),
            ]
            channel.settle("q", [g.ack_id for g in held if g is not None])
            await until(lambda: len(cluster["c"].contents("q")) == 36)

    run(scenario())


def test_publishes_during_a_synchronisation_wait_and_are_not_lost() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, {**ALL, "ha-sync-batch-size": 2})
            channel = cluster["b"].channel()
            await channel.publish_all("q", bodies(60))
            await cluster.kill("c")
            cluster.boot("c")
            await until(lambda: cluster["c"].role("q") == "mirror")
            await channel.ask("q", mm.SyncQueue())
            assert cluster["a"].process("q").state.activity == "syncing"  # type: ignore[union-attr]
            for body in bodies(20, 60):
                channel.publish("q", body)
            got = await channel.get("q")  # answered when it is over
            assert got is not None and got.content.body == b"0"
            await until(lambda: not channel.owed)
            assert len(channel.confirmed) == 80
            await cluster.in_step("q")
            assert len(cluster["c"].contents("q")) == 80

    run(scenario())


def test_a_cancelled_synchronisation_leaves_mirrors_empty_and_the_queue_running() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, {**ALL, "ha-sync-batch-size": 2})
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(200))
            await restart_mirrors(cluster)
            await channel.ask("q", mm.SyncQueue())
            await until(lambda: len(cluster["b"].contents("q")) > 10)
            assert await channel.ask("q", mm.CancelSync()) == Done()
            await channel.publish_all("q", [b"new"])
            assert cluster["b"].contents("q") == [(b"new", False)]
            assert not cluster["b"].is_synchronised("q")
            refused = await channel.ask("q", mm.CancelSync())
            assert isinstance(refused, Failed) and refused.kind == "not_syncing"
            await channel.ask("q", mm.SyncQueue())
            await cluster.mirrored_on("q", "bc", synchronised=True)
            await cluster.in_step("q")

    run(scenario())


def test_a_synchronisation_that_follows_one_cancelled_at_its_begin_comes_to_its_end() -> None:
    """Mirrors answer the first when the second runs already: they must hear that it is over."""

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, {**ALL, "ha-sync-batch-size": 2})
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(20))
            await restart_mirrors(cluster)
            for request in (mm.SyncQueue(), mm.CancelSync(), mm.SyncQueue()):
                assert await channel.ask("q", request) == Done()
            await cluster.mirrored_on("q", "bc", synchronised=True)
            await cluster.in_step("q")

    run(scenario())


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_death_in_the_middle_of_a_synchronisation(victim: str) -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, {**ALL, "ha-sync-batch-size": 2})
            channel = cluster["c"].channel()
            await channel.publish_all("q", bodies(200))
            await cluster.kill("b")
            cluster.boot("b")
            await until(lambda: cluster["b"].role("q") == "mirror")
            await channel.ask("q", mm.SyncQueue())
            await until(lambda: len(cluster["b"].contents("q")) > 10)
            await cluster.kill(victim)
            if victim == "a":  # the oldest mirror is c, which holds everything
                await until(lambda: cluster["c"].role("q") == "master")
                assert cluster["b"].contents("q") == []
                await channel.publish_all("q", [b"new"])
                await channel.ask("q", mm.SyncQueue())
                await until(lambda: cluster["b"].is_synchronised("q"))
            else:
                await channel.publish_all("q", [b"new"])
            await cluster.in_step("q")
            assert len(cluster["c"].contents("q")) == 201

    run(scenario())


# -- orderly stops ---------------------------------------------------------------------------------


def test_an_orderly_stop_hands_over_to_a_synchronised_mirror() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            await cluster["b"].channel().publish_all("q", bodies(10))
            await cluster.stop("a")
            await until(lambda: cluster.master("q"))
            assert await cluster["c"].channel().drain("q") == bodies(10)

    run(scenario())


def test_an_orderly_stop_without_a_synchronised_mirror_stops_them_all() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            await cluster["a"].channel().publish_all("q", bodies(10))
            await restart_mirrors(cluster)
            await cluster.stop("a")
            await until(lambda: all(n.process("q") is None for n in cluster.nodes.values()))
            assert not cluster.events_of("promoted")
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") == "master")
            assert await cluster["b"].channel().drain("q") == bodies(10)

    run(scenario())


def test_promote_on_shutdown_always_loses_what_the_mirrors_lack() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, {**ALL, "ha-promote-on-shutdown": "always"})
            await cluster["a"].channel().publish_all("q", bodies(10))
            await restart_mirrors(cluster)
            await cluster.stop("a")
            await until(lambda: cluster.events_of("promoted"))
            assert any("L8" in e.detail["reason"] for e in cluster.events_of("loss_window"))
            assert await cluster["b"].channel().drain("q") == []

    run(scenario())


def test_all_stop_and_all_start() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster, SAFE)
            await cluster["b"].channel().publish_all("q", bodies(40))
            for name in "abc":
                await cluster.kill(name)
            for name in "cab":
                cluster.boot(name)
            await until(lambda: cluster["a"].role("q") == "master")
            await cluster.mirrored_on("q", "bc")
            assert await cluster["c"].channel().drain("q") == bodies(40)

    run(scenario())


# -- policies --------------------------------------------------------------------------------------


def test_a_policy_mirrors_an_existing_queue_and_its_removal_unmirrors_it() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            channel = cluster["a"].channel()
            await cluster["a"].declare("q")
            await channel.publish_all("q", bodies(20))
            await cluster.set_policy(AUTO)
            await cluster.mirrored_on("q", "bc")
            await cluster.in_step("q")
            await cluster.clear_policy()
            await cluster.mirrored_on("q", "")
            await until(lambda: not cluster["a"].row("q").slave_pids)  # type: ignore[union-attr]
            await channel.publish_all("q", bodies(5, 20))
            assert await channel.drain("q") == bodies(25)
            assert not cluster["b"].disk.names

    run(scenario())


def test_exactly_two_replaces_a_dead_mirror() -> None:
    async def scenario() -> None:
        async with Cluster("abcd") as cluster:
            await cluster.set_policy({**AUTO, "ha-mode": "exactly", "ha-params": 2})
            await cluster["a"].declare("q")
            await until(lambda: len(cluster.mirrors("q")) == 1)
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(10))
            (mirror,) = cluster.mirrors("q")
            await cluster.kill(mirror)
            await until(lambda: len(cluster.mirrors("q")) == 1)
            (mirror,) = cluster.mirrors("q")
            await until(lambda: cluster[mirror].is_synchronised("q"))
            await cluster.in_step("q")

    run(scenario())


def test_mode_nodes_moves_the_master_once_its_new_node_is_synchronised() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await cluster["a"].declare("q")
            await cluster["a"].channel().publish_all("q", bodies(10))
            await cluster.set_policy({**AUTO, "ha-mode": "nodes", "ha-params": ["b", "c"]})
            await until(lambda: cluster["a"].role("q") == "none")
            await until(
                lambda: cluster["b"].role("q") != "none" and cluster["c"].role("q") != "none"
            )
            await until(lambda: any(n.role("q") == "master" for n in cluster.nodes.values()))
            assert await cluster["a"].channel().drain("q") == bodies(10)

    run(scenario())


# -- partitions ------------------------------------------------------------------------------------


def test_a_partition_makes_two_masters_in_mode_ignore() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            minority, majority = cluster["a"].channel(), cluster["b"].channel()
            await minority.publish_all("q", bodies(10))
            cluster.partition("a", "bc")
            await until(
                lambda: cluster["b"].role("q") == "master" or cluster["c"].role("q") == "master"
            )
            assert cluster["a"].role("q") == "master"
            await until(lambda: not cluster["a"].row("q").slave_pids)  # type: ignore[union-attr]
            await minority.publish_all("q", [b"left"])
            await majority.publish_all("q", [b"right"])
            assert (await minority.drain("q"))[-1] == b"left"
            assert (await majority.drain("q"))[-1] == b"right"

    run(scenario())


def test_a_master_that_finds_another_one_recorded_ends_without_deleting_the_queue() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await mirrored_queue(cluster)
            await cluster["a"].channel().publish_all("q", bodies(10))
            row = cluster["a"].row("q")
            assert row is not None
            import msgspec

            usurper = row.slave_pids[0]
            changed = msgspec.structs.replace(row, pid=usurper, slave_pids=row.slave_pids[1:])
            await cluster["b"].metadata.transact(lambda tx: tx.write("queue", row.key, changed))
            await until(lambda: any(e.node == "a" for e in cluster.events_of("demoted")))
            assert cluster["b"].row("q") is not None

    run(scenario())
