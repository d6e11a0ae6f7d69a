"""ControllerSystem: RocketMQ brokers under controllers, which brokers join and leave.

A broker that the controllers have not heard of gets an id of theirs and registers; nobody has to
let it in. One that is gone for good is taken out by an operator (CLEAN_BROKER_DATA, 1011), which
the controllers refuse while it lives. Only brokers come and go: the controllers are a fixed group
(broker/raft), so a node that hosts one stays. So do the logs of ``dledger``, which are such a group
themselves; brokers of ``master-slave`` are not registered anywhere that remembers them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.cluster.cluster import Cluster
from shalott.cluster.systems.management import management
from shalott.cluster.systems.rocket.config import services_of
from shalott.cluster.systems.rocket.rocketmq import RocketmqSystem
from shalott.core.plan import SystemPlan

MEMBERS = "/api/shalott/members"
TIMEOUT_MS = 10_000  # the controllers may have to elect a leader first


class ControllerSystem(RocketmqSystem):
    """A ``RocketmqSystem`` that is a ``ChangesMembers`` as well."""

    def __init__(self, plan: SystemPlan, seed: int) -> None:
        super().__init__(plan, seed)
        self.left_out: tuple[str, ...] = ()

    def why_not_leave(self, node: str) -> str:
        services = services_of(self._plan, node)
        if "controller" in services:
            return "it hosts a controller, and the controllers are a fixed group"
        return "" if "broker" in services else "it hosts no broker"

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        found: Sequence[str] = (await management(cluster, node).get(MEMBERS))["members"]
        return found

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        found: Sequence[str] = (await management(cluster, node).get(MEMBERS))["running_nodes"]
        return found

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        if node in await self.members(cluster, by):
            await management(cluster, by, TIMEOUT_MS).delete(f"{MEMBERS}/{node}")
        self.left_out = (*self.left_out, node)

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        """It registers by itself when it starts."""
        self.left_out = tuple(other for other in self.left_out if other != node)
