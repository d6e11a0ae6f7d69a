"""How an operator moves the mirrors of our queues: by a policy, and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from shalott.cluster.cluster import Cluster
from shalott.cluster.systems.management import api_path, management, policy_of, queue_path
from shalott.core.errors import Definite
from shalott.core.json_value import JsonObject
from shalott.core.plan import SystemPlan


class MovedMirrors:
    """See ``MovesMirrors`` (cluster/system.py)."""

    _plan: SystemPlan
    _vhost: str

    async def narrow_mirrors(self, cluster: Cluster, by: str, holders: Sequence[str]) -> None:
        """See ``MovesMirrors``."""
        here: JsonObject = {"ha-mode": "nodes", "ha-params": list(holders)}
        await self._set_policy(cluster, by, {**here, "ha-sync-mode": "manual"})

    async def widen_mirrors(self, cluster: Cluster, by: str) -> None:
        await self._set_policy(cluster, by, {"ha-sync-mode": "manual"})
        asked = management(cluster, by)
        for row in await asked.get(api_path("queues", self._vhost)):
            for action in ("sync", "cancel_sync"):
                with suppress(Definite):  # it has no mirrors, or no master just now
                    path = f"{queue_path(row['name'], self._vhost)}/actions"
                    await asked.post(path, {"action": action})
        await self._set_policy(cluster, by, {})

    async def _set_policy(self, cluster: Cluster, by: str, changes: JsonObject) -> None:
        path, body = policy_of(cluster, self._vhost, {**self._plan.policy, **changes})
        await management(cluster, by).put(path, body)
