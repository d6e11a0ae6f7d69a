"""The tree of supervisors, and the state of a queue whose process ended."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.supervision.children import RESTARTS_MAX, QueueSup
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import Cluster, run, until

pytestmark = pytest.mark.unit

ALL = {"ha-mode": "all", "ha-sync-mode": "automatic"}


def sups(cluster: Cluster, node: str, queue: str) -> list[QueueSup]:
    supervisor = cluster[node].supervisor
    assert supervisor is not None
    return supervisor.children.tree().get(f"{queue}@/", [])


async def crash(cluster: Cluster, node: str, queue: str, times: int) -> None:
    for _ in range(times):
        await until(lambda: cluster[node].role(queue) == "master")
        await cluster.kill_process(node, queue)


def test_each_queue_process_has_a_supervisor_of_its_own_which_starts_it_again() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            await cluster["a"].declare("other")
            [sup], [other] = sups(cluster, "a", "q"), sups(cluster, "a", "other")
            assert (sup.mode, sup.is_marked, sup.life) == ("declare", True, "running")
            first = sup.child
            await crash(cluster, "a", "q", 1)
            await until(lambda: cluster["a"].role("q") == "master")
            assert sups(cluster, "a", "q") == [sup], "the same one has started it again"
            assert not sup.is_marked and sup.child != first and len(sup.restarts_ns) == 1
            assert sups(cluster, "a", "other") == [other] and not other.restarts_ns

    run(scenario())


def test_beyond_its_intensity_a_supervisor_gives_up_and_the_queue_is_crashed() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            await cluster["a"].declare("other")
            await crash(cluster, "a", "q", RESTARTS_MAX + 1)
            await until(lambda: (row := cluster["a"].row("q")) and row.state == "crashed")
            assert sups(cluster, "a", "q") == []
            assert cluster["a"].role("other") == "master"
            row = cluster["a"].row("other")
            assert row is not None and row.state == "live"
            # It is what a restart of the node mends.
            await cluster.kill("a")
            cluster.boot("a")
            await until(lambda: cluster["a"].role("q") == "master")
            row = cluster["a"].row("q")
            assert row is not None and row.state == "live"

    run(scenario())


def test_crashes_that_are_far_apart_are_within_the_intensity() -> None:
    async def scenario() -> None:
        async with Cluster("a") as cluster:
            await cluster["a"].declare("q")
            for _ in range(RESTARTS_MAX + 3):
                await crash(cluster, "a", "q", 1)
                await passes(3)
            assert cluster["a"].role("q") == "master"

    run(scenario())


def test_a_master_that_another_node_took_over_from_does_not_call_the_queue_crashed() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await cluster.set_policy(ALL)
            await cluster["a"].declare("q")
            await cluster.mirrored_on("q", "b", synchronised=True)
            await cluster.kill_process("a", "q")
            await until(lambda: cluster.master("q") == "b")
            await cluster.mirrored_on("q", "a", synchronised=True)
            [sup] = sups(cluster, "a", "q")
            assert sup.life == "running" and sup.child.node == "a"
            row = cluster["a"].row("q")
            assert row is not None and row.state == "live"

    run(scenario())


def test_a_queue_is_stopped_when_its_node_is_and_live_when_it_is_back() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await cluster["a"].declare("alone")
            await cluster.set_policy({"ha-mode": "all"}, pattern="^q")
            await cluster["a"].declare("q")
            await cluster.mirrored_on("q", "b", synchronised=True)
            supervisor = cluster["a"].supervisor
            assert supervisor is not None
            await supervisor.children.stop_all(5000)
            row = cluster["b"].row("alone")
            assert row is not None and row.state == "stopped"
            await until(lambda: cluster.master("q") == "b")
            row = cluster["b"].row("q")
            assert row is not None and row.state == "live", "a mirror took its place"
            await cluster.stop("a")
            cluster.boot("a")
            await until(lambda: cluster["a"].role("alone") == "master")
            row = cluster["b"].row("alone")
            assert row is not None and row.state == "live"

    run(scenario())


def test_a_queue_that_no_mirror_may_take_is_stopped_everywhere() -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await cluster["a"].declare("q")
            await cluster["a"].channel().publish_all("q", [b"before the mirror"])
            await cluster.set_policy({"ha-mode": "all"})
            await cluster.mirrored_on("q", "b", synchronised=False)
            supervisor = cluster["a"].supervisor
            assert supervisor is not None
            await supervisor.children.stop_all(5000)  # the mirror is not synchronised
            row = cluster["b"].row("q")
            assert row is not None and row.state == "stopped" and row.slave_pids == ()

    run(scenario())
