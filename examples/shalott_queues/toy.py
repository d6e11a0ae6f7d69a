"""toy-queues: queues to try their workload without containers.

Under the profile ``safe`` it loses nothing. Every other profile breaks the rule that it is named
for (toy_node.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from shalott.api import (
    Cluster,
    Endpoint,
    Machine,
    NodeSpec,
    Observation,
    Plan,
    Profile,
    Program,
    Queues,
    Received,
    Search,
    SimProcess,
    SystemRecord,
    Topology,
    await_nodes,
    make_parameters,
)
from shalott_etcd.client import ask
from shalott_etcd.toy import DISK_FAULTS, GATES
from shalott_etcd.toy import ToySystem as Toy
from shalott_queues.toy_node import ASK_TIMEOUT_MS, JOURNAL, RULES, Node, NodeConfig, Rule


class ToyParameters(msgspec.Struct, frozen=True):
    breaks: Annotated[Rule, msgspec.Meta(description="The rule that it breaks.")] = "none"


class ToyClient:
    """See ``core.queued.Queued``. 412 says that it was refused, no answer says nothing."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._at, self._timeout_ms = Endpoint(host, port), timeout_ms

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, queue: str, body: bytes) -> None:
        await self._ask("/send", {"queue": queue, "body": body.hex()})

    async def receive(self, queue: str) -> Received | None:
        told = await self._ask("/receive", {"queue": queue})
        if not told:
            return None
        token = {"queue": queue, "token": told["token"]}
        return Received(bytes.fromhex(told["body"]), told["redelivered"], token)

    async def settle(self, received: Received) -> None:
        await self._ask("/settle", received.token)

    async def _ask(self, path: str, asked: object) -> Any:
        return await ask(self._at, path, asked, self._timeout_ms)


class ToySystem(Toy):
    """Its nodes are ready, and settled, as those of toy-register are."""

    name = "toy-queues"
    ports: Mapping[str, int] = {"client": 2384}

    def __init__(self, plan: Plan) -> None:
        self._breaks = make_parameters(ToyParameters, plan.system.parameters).breaks
        self._seed = plan.seed

    def _spec(self, topology: Topology, node: str) -> NodeSpec:
        leader = next(iter(topology.listen))
        config = NodeConfig(
            name=node,
            listen=topology.listen[node]["client"],
            leader=None if node == leader else topology.dial[node][leader]["client"],
            breaks=self._breaks,
            seed=self._seed,
        )
        return NodeSpec(
            name=node,
            image=self.image,
            command=("{python}", "-m", "shalott_queues.toy_node", "{config}/node.json"),
            files={"node.json": msgspec.json.encode(config).decode()},
            collect=(JOURNAL,),
        )

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            await ask(cluster.endpoint(node, "client"), "/status", {}, ASK_TIMEOUT_MS)
            return ""

        await await_nodes(cluster, nodes, why_not, timeout_ms)

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        status = await ask(cluster.endpoint(node, "client"), "/status", {}, ASK_TIMEOUT_MS)
        role = "master" if status["leader"] else "mirror"
        return {"claims": [{"group": self.name, "role": role, "epoch": 1}]}


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


PROFILES: Mapping[str, Profile] = {
    "safe" if rule == "none" else rule: Profile(parameters={"breaks": rule}) for rule in RULES
}
SYSTEM = SystemRecord(
    name="toy-queues",
    summary="one node keeps all queues: to try the workload queue without containers",
    make=ToySystem,
    speaks=("queues",),
    queues=lambda plan: Queues(port="client", make_client=ToyClient),
    workload="queue",
    profiles=PROFILES,
    parameters=ToyParameters,
    worlds=("local", "sim"),
    program=program,
    stays_up=True,
    search=dict.fromkeys(PROFILES, Search(settings={"gates": GATES}, beyond=DISK_FAULTS)),
)
