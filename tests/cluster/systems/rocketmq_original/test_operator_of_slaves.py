"""What an operator of the original's masters and slaves does, and what he waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from tenacity import wait_fixed

from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import CommandResult
from shalott.cluster.systems.rocketmq_original import operator
from shalott.cluster.systems.rocketmq_original.operator import MasterSlaveOriginal
from shalott.core.errors import Definite, Indefinite
from shalott.core.plan import SystemPlan

pytestmark = pytest.mark.unit

PLAN = SystemPlan(
    name="rocketmq",
    profile="safe",
    parameters={"version": "4.9.7", "replication": "master-slave"},
    policy={"brokerRole": "SYNC_MASTER"},
)


class Nodes:
    """A cluster and its views: three nodes, of which those in ``roles`` answer, and a look that
    changes with the number of looks."""

    nodes = ("n1", "n2", "n3")

    def __init__(self) -> None:
        self.roles = {"n2": "slave", "n3": "slave"}
        self.ends = {"n2": 100, "n3": 900}
        self.told: list[str] = []
        self.processes = self
        self.looks = 0
        self.named_after, self.followed_after = 0, 0

    async def run_command(
        self, node: str, words: Sequence[str], timeout_ms: int = 0
    ) -> CommandResult:
        is_slave = "brokerRole=SLAVE" in words[-1]
        self.told.append(f"{node} {'slave' if is_slave else 'master'}")
        marks = [mark for mark in ("empty-store", "promoted") if mark in words[-1]]
        self.told += [f"{node} {mark}" for mark in marks]
        self.roles[node] = "slave" if is_slave else "master"
        return CommandResult(0, "")

    async def stop(self, node: str) -> None:
        self.told.append(f"stop {node}")

    async def start(self, node: str) -> None:
        self.told.append(f"start {node}")

    async def observe(self, cluster: object, node: str) -> Mapping[str, Any]:
        if node not in self.roles:
            raise Indefinite(f"{node} does not answer")
        self.looks += 1
        masters = [name for name, role in self.roles.items() if role == "master"]
        slaves = [name for name in self.roles if name not in masters]
        claim = {
            "role": self.roles[node], "end_offset": self.ends.get(node, 0),
            "broker_id": {"n1": 0, "n2": 1, "n3": 0}[node],
            "synchronised": slaves if self.looks > self.followed_after else slaves[1:],
        }  # fmt: skip
        known = masters if self.looks > self.named_after else ["n1"]
        return {"claims": [claim], "name_server": {"master": "".join(known)}}

    observe_with_slaves = observe

    @property
    def cluster(self) -> Cluster:
        return cast(Cluster, self)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    monkeypatch.setattr(operator, "RETRY", wait_fixed(0.001))
    return Nodes()


def of(nodes: Nodes) -> MasterSlaveOriginal:
    system = MasterSlaveOriginal(PLAN)
    system._views = nodes  # type: ignore[assignment]
    return system


@pytest.mark.parametrize("looks", [0, 25])
def test_a_failover_is_over_when_the_name_servers_name_the_new_master(
    nodes: Nodes, looks: int
) -> None:
    nodes.named_after = looks
    restarted: list[str] = []
    asyncio.run(of(nodes).fail_over(nodes.cluster, "n1", restarted))
    assert restarted == ["n3"]
    assert nodes.told == ["n3 master", "n3 promoted", "stop n3", "start n3"]
    assert nodes.looks > looks


def test_whom_he_restarts_in_vain_is_told_too(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "WITHIN_S", 0.05)

    async def stays_away(node: str) -> None:
        del nodes.roles[node]

    monkeypatch.setattr(nodes, "start", stays_away)
    restarted: list[str] = []
    with pytest.raises(Indefinite, match="n3 does not answer"):
        asyncio.run(of(nodes).fail_over(nodes.cluster, "n1", restarted))
    assert restarted == ["n3"]


def test_nobody_is_made_master_beside_another(nodes: Nodes) -> None:
    nodes.roles["n2"] = "master"
    with pytest.raises(Definite, match="another master"):
        asyncio.run(of(nodes).fail_over(nodes.cluster, "n1", []))
    assert nodes.told == []


@pytest.mark.parametrize("looks", [0, 25])
def test_the_former_master_joins_when_the_others_have_found_the_new_one(
    nodes: Nodes, looks: int
) -> None:
    nodes.roles["n3"] = "master"
    nodes.followed_after = looks
    asyncio.run(of(nodes).rejoin(nodes.cluster, "n1"))
    assert nodes.told == ["n1 slave", "n1 empty-store", "stop n1", "start n1"]
    assert nodes.looks > looks


def test_it_joins_also_if_they_never_do(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "FOUND_WITHIN_S", 0.05)
    nodes.roles["n3"] = "master"
    nodes.followed_after = 10**9
    asyncio.run(of(nodes).rejoin(nodes.cluster, "n1"))
    assert nodes.roles["n1"] == "slave"


def test_a_master_whose_place_nobody_took_is_left_as_it_is(nodes: Nodes) -> None:
    asyncio.run(of(nodes).rejoin(nodes.cluster, "n1"))
    assert nodes.told == []
