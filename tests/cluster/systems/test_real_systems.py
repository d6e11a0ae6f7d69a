"""The real systems on real nodes, once each: boot, policy and queues, a partition, an operator, a
settled end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shalott.cluster.cluster import Cluster
from shalott.cluster.docker.backend import DockerCluster
from shalott.cluster.local.backend import LocalCluster
from shalott.cluster.system import MendsPartitions, System
from shalott.cluster.systems.rabbit.mirrored import MirroredSystem
from shalott.cluster.systems.rabbit.rabbitmq import RabbitmqSystem
from shalott.core.errors import ClientError
from shalott.core.plan import SystemPlan
from tests.world.cluster.backends import fresh_run_id
from tests.world.cluster.fake_system import NODES

QUEUES = ("q1", "q2", "q3")
BOOT_MS = 120000
ISOLATION = [("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1")]
NOTICED_WITHIN_S = 60


def system_plan(name: str) -> SystemPlan:
    return SystemPlan(
        name=name,
        profile="upstream",
        parameters={"partition_mode": "ignore", "net_tick_ms": 2000},
        policy={"ha-mode": "all", "ha-sync-mode": "automatic"},
    )


async def masters(system: System, cluster: Cluster, queue: str) -> list[str]:
    """The nodes that claim to be the queue's master now."""
    found = []
    for node in NODES:
        try:
            claims = (await system.observe(cluster, node))["claims"]
        except ClientError:
            continue
        found += [node for c in claims if c["group"] == queue and c["role"] == "master"]
    return found


async def live(system: System, cluster: Cluster, collected: Path) -> None:
    try:
        await cluster.boot(system)
        await system.await_ready(cluster, NODES, BOOT_MS)
        await system.configure(cluster, QUEUES)
        assert await system.await_settled(cluster, QUEUES, 30000)
        rulers = [await masters(system, cluster, queue) for queue in QUEUES]
        assert rulers == [["n1"], ["n2"], ["n3"]], "queues are spread over the nodes"

        await cluster.links.cut(ISOLATION)
        async with asyncio.timeout(NOTICED_WITHIN_S):
            while len(await masters(system, cluster, "q1")) < 2:
                assert not await cluster.links.reach("n1", "n2", 100)
        await cluster.heal()
        assert isinstance(system, MendsPartitions)
        assert await system.mend_partition(cluster) == ("n1",)
        assert await system.await_settled(cluster, QUEUES, 60000)
        for queue in QUEUES:
            assert len(await masters(system, cluster, queue)) == 1
        await cluster.files.collect(collected)
    finally:
        await cluster.teardown()
    promoted = [e for e in system.read_events(collected, 0) if e["kind"] == "promoted"]
    assert {event["node"] for event in promoted} & {"n2", "n3"}
    assert {event["group"] for event in promoted} <= set(QUEUES)


@pytest.mark.local
def test_mirrored_nodes_as_local_processes(tmp_path: Path) -> None:
    cluster = LocalCluster(NODES, fresh_run_id(), tmp_path / "work")
    asyncio.run(live(MirroredSystem(system_plan("mirrored"), 7), cluster, tmp_path / "nodes"))


@pytest.mark.docker
def test_mirrored_nodes_in_containers(tmp_path: Path) -> None:
    cluster = DockerCluster(NODES, fresh_run_id())
    asyncio.run(live(MirroredSystem(system_plan("mirrored"), 7), cluster, tmp_path / "nodes"))


@pytest.mark.docker
def test_the_real_rabbitmq(tmp_path: Path) -> None:
    cluster = DockerCluster(NODES, fresh_run_id())
    asyncio.run(live(RabbitmqSystem(system_plan("rabbitmq")), cluster, tmp_path / "nodes"))
