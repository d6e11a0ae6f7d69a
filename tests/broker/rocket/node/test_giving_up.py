"""A node whose disk fails gives itself up, with the exit code that says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.node.node import RocketNode
from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.backend import SimCluster
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.systems.broker_program import broker_program
from shalott.cluster.systems.rocket.rocketmq import RocketmqSystem
from shalott.core.plan import SimPlan, SystemPlan
from tests.world.clock.turns import until

if TYPE_CHECKING:
    from shalott.broker.nodes import AnyNode

pytestmark = pytest.mark.unit

GAVE_UP = 70
SEND = {"producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "queueId": "0"}


def plan(system: str) -> SystemPlan:
    return SystemPlan(
        name=system,
        profile="safe",
        policy={"raft.flush_interval_ms": 0} if system == "dledger" else {"store.flush": "sync"},
    )


@pytest.mark.parametrize("system", ["master-slave", "dledger", "controller"])
def test_a_node_that_can_not_sync_ends_and_acknowledges_nothing(system: str) -> None:
    loop = SimLoop()

    async def test() -> tuple[int | None, bool, list[str]]:
        cluster = SimCluster(("n1",), loop, SimPlan(seed=1), broker_program)
        await cluster.boot(RocketmqSystem(plan(system), 1))
        machine = cluster.machines["n1"]
        await until(lambda: is_master(machine.node), "it is master", step_s=0.1, within_s=60)
        client = RemotingClient(parse_address)
        send = Command(code=RequestCode.SEND_MESSAGE, ext=SEND, body=b"1")
        first = await client.invoke("n1:10911", send, 5000)
        assert first.code == ResponseCode.SUCCESS, first
        await cluster.disks.set("n1", DiskFaults(fail_sync=True))
        acknowledged = False
        try:
            answer = await client.invoke("n1:10911", send, 20_000)
            acknowledged = answer.code == ResponseCode.SUCCESS
        except Unanswered:
            pass
        async with asyncio.timeout(20):
            await machine.ended.wait()
        await client.close()
        crashes = [event.detail["reason"] for event in machine.events if event.kind == "crashed"]
        return machine.exit_code, acknowledged, crashes

    exit_code, acknowledged, crashes = loop.run(test(), SimProcess("harness", fenced=False))
    assert (exit_code, acknowledged) == (GAVE_UP, False)
    assert crashes


def is_master(node: AnyNode | None) -> bool:
    if not isinstance(node, RocketNode) or node.replica is None:
        return False
    return node.phase == "running" and node.replica.role == "master"
