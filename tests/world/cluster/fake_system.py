"""FakeSystem: the fake node as a System, for the contract tests of the backends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shalott.cluster.cluster import Cluster
from shalott.cluster.http import Management
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.core.errors import BootFailed, ClientError

PROGRAM = Path(__file__).with_name("fake_node.py").read_text()


NODES = ("n1", "n2", "n3")


class FakeSystem:
    name = "fake"
    ports: Mapping[str, int] = MappingProxyType({"management": 8501, "cluster": 7301})
    image = "python"
    runs_locally = True

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [
            NodeSpec(
                name=node,
                image=self.image,
                command=("{python}", "{config}/fake_node.py", "{config}/node.json"),
                files={"fake_node.py": PROGRAM, "node.json": _config(topology, node)},
                ports={name: at.port for name, at in listen.items()},
                collect=("events.jsonl", "absent.log"),
            )
            for node, listen in topology.listen.items()
        ]

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        for node in nodes:
            while not await answers(cluster, node):
                if loop.time() > deadline:
                    raise BootFailed(f"{node}: {await cluster.files.output(node)}")
                await asyncio.sleep(0.01)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None: ...

    async def declare_queue(self, cluster: Cluster, node: str, queue: str) -> None: ...

    async def delete_queue(
        self, cluster: Cluster, node: str, queue: str, timeout_ms: int
    ) -> None: ...

    async def fail_over(self, cluster: Cluster, old: str, restarted: list[str]) -> None: ...

    async def rejoin(self, cluster: Cluster, node: str) -> None: ...

    async def report_nonsense(self, cluster: Cluster, node: str) -> Callable[[], None]:
        return lambda: None

    async def observe(self, cluster: Cluster, node: str) -> Mapping[str, Any]:
        return {"running": [node]} if await answers(cluster, node) else {}

    async def mend_partition(self, cluster: Cluster) -> Sequence[str]:
        return []

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        return True

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[Mapping[str, Any]]:
        return []


def _config(topology: Topology, node: str) -> str:
    ports = {name: (at.host, at.port) for name, at in topology.listen[node].items()}
    peers = {
        peer: (ports["cluster"].host, ports["cluster"].port)
        for peer, ports in topology.dial[node].items()
    }
    return json.dumps(
        {"name": node, "data_dir": topology.data_dir[node], "ports": ports, "peers": peers}
    )


def management(cluster: Cluster, node: str, timeout_ms: int = 3000) -> Management:
    return Management(cluster.endpoint(node, "management"), timeout_ms=timeout_ms)


async def answers(cluster: Cluster, node: str, timeout_ms: int = 300) -> bool:
    """Whether the node's process answers a client."""
    try:
        await management(cluster, node, timeout_ms).get("/starts")
    except ClientError:
        return False
    return True


async def starts(cluster: Cluster, node: str) -> int:
    count: int = await management(cluster, node).get("/starts")
    return count


async def echoes(cluster: Cluster, source: str, destination: str, *, held: bool = False) -> bool:
    """Whether a round trip between two nodes works, over a fresh connection or the one that is
    kept."""
    path = f"/{'held' if held else 'echo'}/{destination}"
    response = await management(cluster, source).request("GET", path)
    return response.status == 200


async def bulk_seconds(cluster: Cluster, source: str, destination: str) -> float:
    """How long 128 KiB take from one node to the other and back."""
    path = f"/bulk/{destination}"
    seconds: float = await management(cluster, source, timeout_ms=20000).get(path)
    return seconds
