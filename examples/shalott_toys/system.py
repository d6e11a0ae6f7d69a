"""A toy as a system: nodes that are ours, of which the first is asked by the others.

A toy's own are the fields of its nodes' configuration, its client, and its node (node.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from shalott.api import (
    BootFailed,
    Cluster,
    Disk,
    GatePlan,
    Machine,
    NodeSpec,
    Observation,
    Program,
    Search,
    SimProcess,
    Topology,
    await_nodes,
)
from shalott_registers.client import ask
from shalott_toys.node import ASK_TIMEOUT_MS, JOURNAL, RunsAlone

WORLDS = ("local", "sim")
# It does not tell what its copies hold, which therefore is not compared.
GATES = GatePlan(min_acked=20, must_settle=True)
# What a toy does not survive: it believes what its disk says, and never runs out of room.
DISK_FAULTS = ("disk-full", "disk-error", "disk-short", "disk-corrupt")
Config = TypeVar("Config", bound=msgspec.Struct)


class ToySystem:
    """See ``cluster.system.System``."""

    image = ""  # no containers

    def __init__(
        self,
        name: str,
        port: int,
        module: str,
        ready: tuple[str, Mapping[str, object]],
        own: Mapping[str, object],
    ) -> None:
        """``module`` is the node's, ``ready`` a request that a ready node answers, ``own`` the
        toy's part of the configuration."""
        self.name = name
        self.ports: Mapping[str, int] = {"client": port}
        self._module, self._ready, self._own = module, ready, own

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [self._spec(topology, node) for node in topology.listen]

    def _spec(self, topology: Topology, node: str) -> NodeSpec:
        first, *_, last = topology.listen
        config = {
            "name": node,
            "listen": topology.listen[node]["client"],
            "leader": None if node == first else topology.dial[node][first]["client"],
            "is_last": node == last,
            **self._own,
        }
        return NodeSpec(
            name=node,
            image=self.image,
            command=("{python}", "-m", self._module, "{config}/node.json"),
            files={"node.json": msgspec.json.encode(config).decode()},
            collect=(JOURNAL,),
        )

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            path, body = self._ready
            await ask(cluster.endpoint(node, "client"), path, body, ASK_TIMEOUT_MS)
            return ""

        await await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None: ...

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        status = await ask(cluster.endpoint(node, "client"), "/status", {}, ASK_TIMEOUT_MS)
        role = "master" if status["leader"] else "mirror"
        return {"claims": [{"group": self.name, "role": role, "epoch": 1}]}

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        try:
            await self.await_ready(cluster, cluster.nodes, timeout_ms)
        except BootFailed:
            return False
        return True

    def read_events(
        self, collected: Path, run_start_wall_ns: int
    ) -> Sequence[Mapping[str, object]]:
        return ()


def program_of(
    config: type[Config], node: Callable[[Config, Disk], RunsAlone]
) -> Callable[[NodeSpec, int, object], Program]:
    """A simulated machine's, which is given its disk."""

    def program(spec: NodeSpec, seed: int, buggify: object) -> Program:
        own = msgspec.json.decode(spec.files["node.json"], type=config)

        async def live(machine: Machine, process: SimProcess, stop_asked: asyncio.Event) -> int:
            running = asyncio.ensure_future(node(own, machine.disk).run())
            asked = asyncio.ensure_future(stop_asked.wait())
            done, _ = await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
            if running in done:
                machine.output.append(f"it can't go on: {running.exception()}")
            return 1 if running in done else 0

        return live

    return program


def search_of(profiles: Iterable[str]) -> Mapping[str, Search]:
    return dict.fromkeys(profiles, Search(settings={"gates": GATES}, beyond=DISK_FAULTS))
