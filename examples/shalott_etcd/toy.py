"""toy-register: registers for trying workloads and faults where etcd itself can't run, which is in
the simulation and in plain processes.

One node keeps everything (toy_node.py), so a register is linearizable, until a read is
``serializable`` or the profile ``upstream`` makes every read so: those come from a copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shalott.api import (
    BootFailed,
    Cluster,
    GatePlan,
    Machine,
    NodeSpec,
    Observation,
    Plan,
    Profile,
    Program,
    Registers,
    Search,
    SimProcess,
    SystemRecord,
    Topology,
    await_nodes,
    make_parameters,
)
from shalott_etcd.client import EtcdClient, ask, read_request
from shalott_etcd.toy_node import ASK_TIMEOUT_MS, JOURNAL, Node, NodeConfig


class ToyParameters(msgspec.Struct, frozen=True):
    stale_reads: bool = False


class ToySystem:
    """See ``cluster.system.System``."""

    name = "toy-register"
    ports: Mapping[str, int] = {"client": 2379}
    image = ""  # no containers

    def __init__(self, parameters: ToyParameters) -> None:
        self._stale_reads = parameters.stale_reads

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [self._spec(topology, node) for node in topology.listen]

    def _spec(self, topology: Topology, node: str) -> NodeSpec:
        first = next(iter(topology.listen))
        config = NodeConfig(
            name=node,
            listen=topology.listen[node]["client"],
            first=None if node == first else topology.dial[node][first]["client"],
            stale_reads=self._stale_reads,
        )
        return NodeSpec(
            name=node,
            image=self.image,
            command=("{python}", "-m", "shalott_etcd.toy_node", "{config}/node.json"),
            files={"node.json": msgspec.json.encode(config).decode()},
            collect=(JOURNAL,),
        )

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            at, read = cluster.endpoint(node, "client"), read_request("ready", serializable=False)
            await ask(at, "/v3/kv/range", read, ASK_TIMEOUT_MS)
            return ""

        await await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None: ...

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        status = await ask(cluster.endpoint(node, "client"), "/status", {}, ASK_TIMEOUT_MS)
        role = "master" if status["first"] else "mirror"
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


def program(spec: NodeSpec, seed: int, buggify: object) -> Program:
    """A simulated machine's, which is given its disk."""
    config = msgspec.json.decode(spec.files["node.json"], type=NodeConfig)

    async def live(machine: Machine, process: SimProcess, stop_asked: asyncio.Event) -> int:
        node = asyncio.ensure_future(Node(config, machine.disk).run())
        asked = asyncio.ensure_future(stop_asked.wait())
        done, _ = await asyncio.wait((node, asked), return_when=asyncio.FIRST_COMPLETED)
        if node in done:
            machine.output.append(f"it can't go on: {node.exception()}")
        return 1 if node in done else 0

    return live


def make(plan: Plan) -> ToySystem:
    return ToySystem(make_parameters(ToyParameters, plan.system.parameters))


# It does not tell what its copies hold, which therefore is not compared.
GATES = GatePlan(min_acked=20, must_settle=True)
# What it does not survive: it believes what its disk says, and never runs out of room.
DISK_FAULTS = ("disk-full", "disk-error", "disk-short", "disk-corrupt")
SYSTEM = SystemRecord(
    name="toy-register",
    summary="one node keeps registers, the others copy them: to try workloads without containers",
    make=make,
    speaks=("registers",),
    registers=lambda plan: Registers(port="client", make_client=EtcdClient),
    workload="register",
    profiles={"upstream": Profile(parameters={"stale_reads": True}), "safe": Profile()},
    parameters=ToyParameters,
    worlds=("local", "sim"),
    program=program,
    stays_up=True,
    search=dict.fromkeys(
        ("upstream", "safe"), Search(settings={"gates": GATES}, beyond=DISK_FAULTS)
    ),
)
