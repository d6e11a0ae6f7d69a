"""toy-partitions: logs in partitions, to try their workload without containers.

Under the profile ``safe`` it keeps what Kafka promises. Every other profile
breaks the rule that it is named for (toy_node.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

import msgspec

from shalott.api import (
    BootFailed,
    Cluster,
    Definite,
    Endpoint,
    GatePlan,
    Machine,
    NodeSpec,
    Observation,
    Partitions,
    Plan,
    Profile,
    Program,
    Search,
    SimProcess,
    SystemRecord,
    Topology,
    await_nodes,
    make_parameters,
)
from shalott_etcd.client import ask
from shalott_partitions.toy_node import ASK_TIMEOUT_MS, JOURNAL, RULES, Node, NodeConfig, Rule


class ToyParameters(msgspec.Struct, frozen=True):
    breaks: Annotated[Rule, msgspec.Meta(description="The rule that it breaks.")] = "none"
    groups: Annotated[bool, msgspec.Meta(description="Its clients can be a group.")] = False


class ToyClient:
    """A transaction is one request: 412 says that it was aborted, no answer says nothing."""

    def __init__(self, host: str, port: int, *, timeout_ms: int, numbers: Iterator[int]) -> None:
        self._at, self._timeout_ms = Endpoint(host, port), timeout_ms
        self._keys: Sequence[int] = ()
        self._name = f"{host}-{next(numbers)}"

    async def open(self) -> None: ...

    async def close(self) -> None:
        if self._keys:
            await self.subscribe(())

    async def subscribe(self, keys: Sequence[int]) -> None:
        asked = {"member": self._name, "keys": list(keys)}
        await ask(self._at, "/subscribe", asked, self._timeout_ms)
        self._keys = keys

    async def commit(self, places: Mapping[int, int]) -> None:
        await self._ask("/commit", {"places": places})

    async def _ask(self, path: str, asked: Mapping[str, object]) -> object:
        member = {"member": self._name} if self._keys else {}
        try:
            return await ask(self._at, path, {**asked, **member}, self._timeout_ms)
        except Definite as refused:
            if "unknown member" in str(refused):
                await self.subscribe(self._keys)
            raise

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Sequence[tuple[int, int]]]]:
        answer = await self._ask("/txn", {"mops": mops, "places": places})
        return msgspec.convert(
            answer, list[tuple[int, int] | dict[int, list[tuple[int, int]]]], strict=False
        )


class ToySystem:
    """See ``cluster.system.System``."""

    name = "toy-partitions"
    ports: Mapping[str, int] = {"client": 2382}
    image = ""  # no containers

    def __init__(self, plan: Plan) -> None:
        self._breaks = make_parameters(ToyParameters, plan.system.parameters).breaks
        self._seed = plan.seed

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [self._spec(topology, node) for node in topology.listen]

    def _spec(self, topology: Topology, node: str) -> NodeSpec:
        leader, *_, last = topology.listen
        config = NodeConfig(
            name=node,
            listen=topology.listen[node]["client"],
            leader=None if node == leader else topology.dial[node][leader]["client"],
            is_last=node == last,
            breaks=self._breaks,
            seed=self._seed,
        )
        return NodeSpec(
            name=node,
            image=self.image,
            command=("{python}", "-m", "shalott_partitions.toy_node", "{config}/node.json"),
            files={"node.json": msgspec.json.encode(config).decode()},
            collect=(JOURNAL,),
        )

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            await ask(cluster.endpoint(node, "client"), "/txn", {"mops": []}, ASK_TIMEOUT_MS)
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


def partitions(plan: Plan) -> Partitions:
    return Partitions(
        port="client",
        make_client=partial(ToyClient, numbers=count()),
        groups=make_parameters(ToyParameters, plan.system.parameters).groups,
    )


# It does not tell what its copies hold, which therefore is not compared.
GATES = GatePlan(min_acked=20, must_settle=True)
# What it does not survive: it believes what its disk says, and never runs out of room.
DISK_FAULTS = ("disk-full", "disk-error", "disk-short", "disk-corrupt")
PROFILES: Mapping[str, Profile] = {
    "safe" if rule == "none" else rule: Profile(
        parameters={"breaks": rule, **({"groups": True} if rule == "commits-ahead" else {})}
    )
    for rule in RULES
} | {"groups": Profile(parameters={"groups": True})}
SYSTEM = SystemRecord(
    name="toy-partitions",
    summary="one node keeps all logs: to try the workload partitions without containers",
    make=ToySystem,
    speaks=("partitions",),
    partitions=partitions,
    workload="partitions",
    profiles=PROFILES,
    parameters=ToyParameters,
    worlds=("local", "sim"),
    program=program,
    stays_up=True,
    search=dict.fromkeys(PROFILES, Search(settings={"gates": GATES}, beyond=DISK_FAULTS)),
)
