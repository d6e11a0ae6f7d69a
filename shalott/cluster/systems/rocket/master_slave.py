"""MasterSlaveSystem: RocketMQ brokers whose master an operator replaces.

It can be asked what only a system without elections can be asked: to fail over (``FailsOver``), and
to take a report at its HA port (``TakesReports``); cluster/system.py has both protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shalott.cluster.cluster import Cluster
from shalott.cluster.systems.rocket import operator
from shalott.cluster.systems.rocket.config import brokers_of
from shalott.cluster.systems.rocket.rocketmq import RocketmqSystem
from shalott.core.errors import Definite


class MasterSlaveSystem(RocketmqSystem):
    """A ``RocketmqSystem`` that is a ``FailsOver`` and a ``TakesReports`` as well."""

    async def fail_over(self, cluster: Cluster, old: str, restarted: list[str]) -> None:
        self._check_broker(old)
        brokers = brokers_of(self._plan, cluster.nodes)
        await operator.fail_over(cluster, self._asker(cluster), old, brokers)

    async def rejoin(self, cluster: Cluster, node: str) -> None:
        self._check_broker(node)
        await operator.rejoin(cluster, self._asker(cluster), node)

    async def report_nonsense(self, cluster: Cluster, node: str) -> Callable[[], None]:
        self._check_broker(node)
        return await operator.report_nonsense(cluster, node)

    def _check_broker(self, node: str) -> None:
        """Raises Definite for a node without a broker."""
        if not brokers_of(self._plan, (node,)):
            raise Definite(f"{node} hosts no broker")

    def _asker(self, cluster: Cluster) -> operator.Ask:
        async def ask(node: str) -> Mapping[str, Any]:
            claims = (await self.observe(cluster, node))["claims"]
            if not claims:
                raise Definite(f"{node} has no broker yet")
            claim: Mapping[str, Any] = claims[0]
            return claim

        return ask
