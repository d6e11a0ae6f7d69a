"""ComposeSystem: what runs on the nodes of a compose project, of which only the file is known.

A node is ready when its health check says so, the file's or else its image's, and when its port for
clients takes connections. What it believes of others is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from shalott.cluster.cluster import Cluster
from shalott.cluster.compose.project import CLIENT, Project
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.services import Service, StartsServices
from shalott.cluster.system import EventRow, Observation
from shalott.cluster.systems.settling import await_nodes
from shalott.core.errors import BootFailed, Unreachable

CONNECT_WITHIN_S = 2.0


class ComposeSystem:
    """See ``System`` and ``HasServices``."""

    name = "compose"
    image = ""  # each container has its own

    def __init__(self, project: Project) -> None:
        self._nodes = project.nodes
        self.services: Sequence[Service] = project.services
        self.volumes: Sequence[str] = project.volumes
        self.subnet = project.subnet
        ports = [spec.ports[CLIENT] for spec in self._nodes.values() if spec.ports]
        self.ports: Mapping[str, int] = {CLIENT: ports[0]} if ports else {}

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [*self._nodes.values()]

    def hosted_ports(self, node: str) -> Sequence[str]:
        """See ``NodesDiffer``."""
        return tuple(self._nodes[node].ports)

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        patience_ms = max((self._patience_ms(node) for node in nodes), default=timeout_ms)

        async def why_not(node: str) -> str:
            hosts = cluster.hosts
            why = await hosts.why_unhealthy(node) if isinstance(hosts, StartsServices) else ""
            if not why and self._nodes[node].ports:
                await _connect(cluster, node)
            return why

        restarts = any(self._nodes[node].restart_if_exits for node in nodes)
        await await_nodes(cluster, nodes, why_not, max(timeout_ms, patience_ms), may_exit=restarts)

    def _patience_ms(self, node: str) -> int:
        told = self._nodes[node].container
        return round(1000 * told.health.patience_s) if told is not None and told.health else 0

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """The project's own services do what has to be done."""

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        if self._nodes[node].ports:
            await _connect(cluster, node)
        return {"running": [node], "partitions": [], "claims": []}

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        try:
            await self.await_ready(cluster, cluster.nodes, timeout_ms)
        except BootFailed:
            return False
        return True

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        return ()


async def _connect(cluster: Cluster, node: str) -> None:
    """Raises Unreachable."""
    at = cluster.endpoint(node, CLIENT)
    try:
        async with asyncio.timeout(CONNECT_WITHIN_S):
            _, writer = await asyncio.open_connection(at.host, at.port)
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"its port {at.port} takes no connection: {error}") from error
    writer.close()
