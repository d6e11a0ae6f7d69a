"""Nodes that come to see each other late: every mirror that the policy wants is there in the end.

A master asks for mirrors on the nodes that it sees when it starts, and a node that comes up looks
at its queues once. After a start of all nodes two of them may link later than either did that, and
their tables may show each the other at different times.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, run, until

pytestmark = pytest.mark.unit

SAFE: dict[str, Any] = {
    "ha-mode": "all",
    "ha-sync-mode": "automatic",
    "ha-promote-on-failure": "when-synced",
}
SETTLED_S = 1.0  # long after all that follows from what happened


async def queue_on(cluster: Cluster, master: str, mirrors: str) -> None:
    await cluster.set_policy(SAFE)
    await until(lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values()))
    await cluster[master].declare("q")
    await cluster.mirrored_on("q", mirrors)


def is_mirrored_on(cluster: Cluster, names: str) -> bool:
    return sorted(cluster.mirrors("q")) == sorted(names) and all(
        cluster[name].is_synchronised("q") for name in names
    )


def link(cluster: Cluster, a: str, b: str) -> None:
    """They have a connection; neither counts the other as running yet."""
    del cluster.cuts[min(a, b), max(a, b)]
    for one, other in ((cluster[a], cluster[b]), (cluster[b], cluster[a])):
        one.runtime.link_up(other.name, other.env.incarnation)


def count_in(cluster: Cluster, node: str, other: str) -> None:
    """``node`` hears that ``other`` is a running member."""
    metadata = cluster[node].metadata
    cluster[node].inside(lambda: metadata.sees((*metadata.running, other)))


async def start_apart(cluster: Cluster, a: str, b: str) -> None:
    """Every node starts anew, and two of them do not see each other yet."""
    await cluster.kill_all()
    cluster.cuts[min(a, b), max(a, b)] = None
    for name in cluster.names:
        cluster.boot(name)


@pytest.mark.parametrize("order", ["bc", "cb", "b=c"])
def test_a_node_that_the_masters_node_sees_late_gets_its_mirror(order: str) -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await queue_on(cluster, "b", "ac")
            await cluster["a"].channel().publish_all("q", [b"1", b"2"])
            await start_apart(cluster, "b", "c")
            await until(lambda: is_mirrored_on(cluster, "a"))
            await passes(SETTLED_S)
            assert cluster["c"].role("q") == "none"
            link(cluster, "b", "c")
            for first, second in (("b", "c"), ("c", "b")):
                if order.startswith(first):
                    count_in(cluster, first, second)
                    await passes(0 if "=" in order else SETTLED_S)
                    count_in(cluster, second, first)
            await until(lambda: is_mirrored_on(cluster, "ac"), "c has its mirror")
            assert cluster.master("q") == "b"
            assert await cluster["c"].channel().drain("q") == [b"1", b"2"]

    run(scenario())


def test_a_node_that_came_up_between_a_masters_death_and_the_promotion_gets_its_mirror() -> None:
    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await queue_on(cluster, "a", "bc")
            await cluster.kill("a")
            await cluster.kill("c")
            cluster.cuts["b", "c"] = None
            cluster.boot("c")
            await passes(0.01)
            row = cluster["c"].row("q")
            assert row is not None and row.pid is not None and row.pid.node == "a", (
                "no promotion yet"
            )
            link(cluster, "b", "c")
            count_in(cluster, "b", "c")
            count_in(cluster, "c", "b")
            await until(lambda: cluster.master("q") == "b")
            await until(lambda: is_mirrored_on(cluster, "c"), "c has its mirror")

    run(scenario())


def test_a_node_comes_back_into_sight_again_and_again() -> None:
    """Also after its link has broken: the mirror that was there ends, and another one starts."""

    async def scenario() -> None:
        async with Cluster("abc") as cluster:
            await queue_on(cluster, "b", "ac")
            for _ in range(3):
                before = cluster["c"].process("q")
                for one, other in (("b", "c"), ("c", "b")):
                    cluster[one].inside(
                        lambda one=one, other=other: cluster[one].lose(  # type: ignore[misc]
                            other, cluster[other].env.incarnation, "flap"
                        )
                    )
                cluster.cuts["b", "c"] = None
                await passes(SETTLED_S)
                assert cluster["c"].role("q") == "none"
                link(cluster, "b", "c")
                count_in(cluster, "c", "b")
                count_in(cluster, "b", "c")
                await until(lambda: is_mirrored_on(cluster, "ac"), "c has its mirror")
                assert cluster["c"].process("q") is not before

    run(scenario())


def test_a_mirror_that_comes_before_the_ring_has_taken_its_master_in_is_synchronised() -> None:
    """A restarted master may find that its mirrors have made the ring already. It can't synchronise
    them before a member of it has told it what was said there.
    """

    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await cluster.set_policy({"ha-mode": "all"})
            await until(
                lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values())
            )
            await cluster["a"].declare("q")
            channel = cluster["a"].channel()
            await channel.publish_all("q", [b"1"])
            await cluster.kill("b")
            cluster.boot("b")
            await until(lambda: cluster.mirrors("q") == ["b"])
            master = cluster["a"].process("q")
            assert master is not None
            ring = master.state.ring
            assert ring.gm is not None
            # As it is between the answer to its joining and its neighbour's catchup.
            states, ring.gm.member.publishers.states = ring.gm.member.publishers.states, None
            ring.depth_requested = False
            await cluster.set_policy(SAFE)
            await passes(SETTLED_S)
            assert not cluster["b"].is_synchronised("q")
            ring.gm.member.publishers.states = states
            channel.publish("q", b"2")  # or by the next thing that it hears
            await until(lambda: cluster["b"].is_synchronised("q"), "b is synchronised")
            await cluster.in_step("q")

    run(scenario())
