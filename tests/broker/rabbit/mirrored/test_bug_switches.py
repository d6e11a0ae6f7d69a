"""Masters and mirrors with historical faults switched on, and the same stories without them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.supervision import maintenance, queues_service
from shalott.broker.rabbit.supervision.maintenance import hand_over
from tests.world.rabbit.queues import Cluster, run, until

pytestmark = pytest.mark.unit

ALL: dict[str, Any] = {"ha-mode": "all"}
AUTO: dict[str, Any] = {**ALL, "ha-sync-mode": "automatic"}
WHEN_SYNCED: dict[str, Any] = {"ha-promote-on-failure": "when-synced"}

both = pytest.mark.parametrize("on", [True, False], ids=["switched on", "off"])


def cluster_with(names: str, bug: str, on: bool) -> Cluster:
    return Cluster(names, bugs=(bug,) if on else ())


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


async def mirrored_queue(cluster: Cluster, definition: dict[str, Any], mirrors: str = "bc") -> None:
    await cluster.set_policy(definition)
    await until(lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values()))
    await cluster["a"].declare("q")
    await cluster.mirrored_on("q", mirrors)


# -- KB-RMQ-20 -------------------------------------------------------------------------------------


async def restart_broker(cluster: Cluster, name: str) -> None:
    """Stop the queues of a node that goes on, and start them again."""
    node = cluster[name]
    assert node.supervisor is not None
    await node.supervisor.children.stop_all(5000)
    await node.runtime.kill(node.supervisor.pid)
    await until(lambda: all(pid.node != name for pid in cluster["a"].row("q").slave_pids))  # type: ignore[union-attr]
    node.start_supervisor(restarted=True)
    await until(lambda: node.supervisor.pid in node.metadata._subscribers)  # type: ignore[union-attr]


@both
def test_kb_rmq_20_a_broker_that_starts_again_in_its_node_adds_no_mirrors(on: bool) -> None:
    async def scenario() -> None:
        async with cluster_with("abc", "KB-RMQ-20", on) as cluster:
            await mirrored_queue(cluster, AUTO)
            await restart_broker(cluster, "b")
            if on:
                await cluster["c"].channel().publish_all("q", bodies(20))
                assert cluster["b"].role("q") == "none"
                assert cluster.mirrors("q") == ["c"]
                await cluster.set_policy({**AUTO, "ha-sync-batch-size": 2})  # as operators did
            await cluster.mirrored_on("q", "bc")

    run(scenario())


def test_kb_rmq_20_masters_and_whole_nodes_come_back_all_the_same() -> None:
    async def scenario() -> None:
        async with cluster_with("abc", "KB-RMQ-20", True) as cluster:
            await mirrored_queue(cluster, AUTO)
            await cluster["c"].channel().publish_all("q", bodies(5))
            await cluster.kill("b")
            cluster.boot("b")
            await cluster.mirrored_on("q", "bc")
            await cluster.kill("b")
            await cluster.kill("c")
            node = cluster["a"]
            assert node.supervisor is not None
            await node.supervisor.children.stop_all(5000)
            await node.runtime.kill(node.supervisor.pid)
            node.start_supervisor(restarted=True)
            await until(lambda: cluster["a"].role("q") == "master")
            assert await cluster["a"].channel().drain("q") == bodies(5)

    run(scenario())


# -- KB-RMQ-21 -------------------------------------------------------------------------------------


async def dead_queue(cluster: Cluster) -> None:
    """q's only replica was on a, which is gone."""
    await mirrored_queue(cluster, {"ha-mode": "nodes", "ha-params": ["a"]}, mirrors="")
    await cluster["a"].channel().publish_all("q", bodies(3))
    await cluster.kill("a")


def test_kb_rmq_21_a_queue_without_a_master_is_deleted_by_force() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await dead_queue(cluster)
            row = cluster["b"].row("q")
            assert row is not None
            assert await cluster["b"].queues.remove(row) == 0
            assert cluster["b"].row("q") is None
            again = await cluster["b"].declare("q")
            assert again.pid is not None and again.pid.node == "b"

    run(scenario())


def test_kb_rmq_21_with_the_switch_its_deletion_hangs_until_the_master_is_back() -> None:
    async def scenario() -> None:
        async with cluster_with("ab", "KB-RMQ-21", True) as cluster:
            await dead_queue(cluster)
            row = cluster["b"].row("q")
            assert row is not None
            removal = asyncio.create_task(cluster["b"].queues.remove(row))
            await asyncio.wait([removal], timeout=0.1)
            assert not removal.done() and cluster["b"].row("q") is not None
            cluster.boot("a")
            assert await removal == 3
            await until(lambda: cluster["b"].row("q") is None)

    run(scenario())


def test_kb_rmq_21_with_the_switch_its_deletion_fails_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with cluster_with("ab", "KB-RMQ-21", True) as cluster:
            await dead_queue(cluster)
            row = cluster["b"].row("q")
            assert row is not None
            with pytest.raises(MetadataUnavailable, match="no master"):
                await cluster["b"].queues.remove(row)
            assert cluster["b"].row("q") is not None

    monkeypatch.setattr(queues_service, "DECLARE_TIMEOUT_MS", 100)
    run(scenario())


# -- KB-RMQ-22 -------------------------------------------------------------------------------------


@both
def test_kb_rmq_22_a_broker_that_does_not_know_when_synced_promotes_whoever_is_left(
    on: bool,
) -> None:
    async def scenario() -> None:
        async with cluster_with("ab", "KB-RMQ-22", on) as cluster:
            await mirrored_queue(cluster, {**ALL, **WHEN_SYNCED}, mirrors="b")
            await cluster["a"].channel().publish_all("q", bodies(10))
            await cluster.kill("b")
            cluster.boot("b")
            await cluster.mirrored_on("q", "b", synchronised=False)
            await cluster.kill("a")
            if on:
                await until(lambda: cluster["b"].role("q") == "master")
                (promoted,) = cluster.events_of("promoted")
                assert promoted.detail["synchronised"] is False
                assert await cluster["b"].channel().drain("q") == []
            else:
                await until(lambda: cluster.events_of("not_promoted"))
                cluster.boot("a")
                await until(lambda: cluster["a"].role("q") == "master")
                assert await cluster["a"].channel().drain("q") == bodies(10)

    run(scenario())


# -- KB-RMQ-25 -------------------------------------------------------------------------------------


class LastOfAll:
    """A random source that always draws the last of those to choose from."""

    def random(self) -> float:
        return 0.999

    def getrandbits(self, k: int, /) -> int:
        return (1 << k) - 1


async def take_out_of_service(cluster: Cluster, name: str) -> None:
    node = cluster[name]
    assert node.supervisor is not None
    context = node.supervisor._context
    env = dataclasses.replace(context.env, rng=LastOfAll())
    await hand_over(dataclasses.replace(context, env=env), node.runtime)
    await cluster.stop(name)


@both
@pytest.mark.parametrize("promotion", [{}, WHEN_SYNCED], ids=["always", "when-synced"])
def test_kb_rmq_25_a_master_that_moves_to_a_node_without_a_replica_leaves_nothing(
    on: bool, promotion: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "NEW_MASTER_LOOKS", 5)

    async def scenario() -> None:
        async with cluster_with("ab", "KB-RMQ-25", on) as cluster:
            exactly = {**AUTO, **promotion, "ha-mode": "exactly", "ha-params": 2}
            await mirrored_queue(cluster, exactly, mirrors="b")
            cluster.boot("c")
            await cluster["a"].channel().publish_all("q", bodies(10))
            await take_out_of_service(cluster, "a")
            if on and promotion:
                await until(lambda: not cluster.mirrors("q") and not cluster.master("q"))
                cluster.boot("a")
            await until(lambda: cluster.master("q"))
            left = await cluster[cluster.master("q")].channel().drain("q")
            assert left == ([] if on else bodies(10))

    run(scenario())


# -- KB-RMQ-29 -------------------------------------------------------------------------------------


@both
def test_kb_rmq_29_mirrors_are_not_told_what_a_promoted_one_requeued(on: bool) -> None:
    async def scenario() -> None:
        async with cluster_with("abc", "KB-RMQ-29", on) as cluster:
            await mirrored_queue(cluster, AUTO)
            channel = cluster["c"].channel()
            await channel.publish_all("q", bodies(5))
            for _ in range(2):
                await channel.get("q")
            await until(lambda: (b"1", True) in cluster["c"].contents("q"))
            await until(lambda: (b"1", True) in cluster["b"].contents("q"))
            await cluster.kill("a")
            await until(lambda: cluster.master("q"))
            await until(lambda: cluster["b"].row("q").pid.node == cluster.master("q"))  # type: ignore[union-attr]
            master, (mirror,) = cluster.master("q"), cluster.mirrors("q")
            await cluster[mirror].channel().publish_all("q", [b"5"])
            assert cluster[master].contents("q") == [(body, False) for body in bodies(6)]
            waiting = [body for body, unacked in cluster[mirror].contents("q") if unacked]
            assert waiting == (bodies(2) if on else [])
            assert await cluster[master].channel().drain("q") == bodies(6)
            if on:  # what is dropped there was never ready here: the count breaks
                await until(lambda: crashes(cluster), "the mirror's crash")
            else:
                await cluster.in_step("q")
                assert not crashes(cluster)

    run(scenario())


def crashes(cluster: Cluster) -> list[str]:
    return [e.node for e in cluster.events_of("stopped") if e.detail["reason"].startswith("crash")]


# -- KB-RMQ-34 -------------------------------------------------------------------------------------


@both
def test_kb_rmq_34_a_master_that_nobody_follows_any_more_confirms_what_reaches_it(on: bool) -> None:
    """What a suspended master finds when it wakes: the others went on without it. Nothing stops it,
    with the switch or without: there is no code to this bug.
    """

    async def scenario() -> None:
        async with cluster_with("abc", "KB-RMQ-34", on) as cluster:
            await mirrored_queue(cluster, AUTO)
            channel = cluster["a"].channel()
            await channel.publish_all("q", bodies(3))
            channel.publish("q", b"in its socket")
            cluster.partition("a", "bc")
            await until(lambda: cluster["b"].role("q") == "master")
            await until(lambda: not channel.owed)
            assert channel.confirmed[-1] == b"in its socket"
            await cluster["c"].channel().publish_all("q", [b"the successor's"])
            assert cluster["a"].role("q") == cluster["b"].role("q") == "master"

    run(scenario())


# -- OUR-02 ----------------------------------------------------------------------------------------


def ring_is_quiet(cluster: Cluster, names: str) -> bool:
    """All that was said in q's ring has settled with everybody."""
    for process in (cluster[name].process("q") for name in names):
        assert process is not None and process.state.ring.gm is not None
        member = process.state.ring.gm.member
        if not member.publishers.states or not all(
            state.is_settled for state in member.publishers.states.values()
        ):
            return False
    return True


@both
def test_our_02_a_message_that_only_the_ring_carries_is_confirmed_before_it_went_round(
    on: bool,
) -> None:
    async def scenario() -> None:
        async with cluster_with("abcd", "OUR-02", on) as cluster:
            await mirrored_queue(cluster, {**AUTO, "ha-mode": "nodes", "ha-params": [*"abc"]})
            process, channel = cluster["a"].process("q"), cluster["d"].channel()
            assert process is not None and isinstance(process.role, Master)
            master = process.role
            await until(lambda: ring_is_quiet(cluster, "abc"))
            for mirror in "bc":  # silently: what the ring carries is lost
                cluster.cuts["a", mirror] = None
            channel.publish("q", b"x", to=(process.pid,))  # d's tables do not show the mirrors yet
            if on:
                await until(lambda: channel.confirmed == [b"x"])
            else:
                await until(
                    lambda: list(master.confirms._in_ring.values()) == [True],
                    "safe but for mirrors",
                )
                assert list(channel.owed.values()) == [b"x"]
            cluster.cuts.clear()
            await cluster.kill("a")
            await until(lambda: cluster.master("q"))
            await until(lambda: not channel.owed)
            assert channel.nacked == ([] if on else [b"x"])
            assert await cluster[cluster.master("q")].channel().drain("q") == []

    run(scenario())
