"""WholeNodes: nodes of one cluster with everything that runs in them, in virtual time, on simulated
disks and a simulated network that can be cut; asked as the management API is."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

from shalott.broker.base.env import Platform
from shalott.broker.base.http_api import Request, Response
from shalott.broker.rabbit.amqp.queue_protocol import Content, Publish
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.broker.rabbit.management.api import respond
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.node.node import Node, NodeView
from shalott.broker.rabbit.processes.process import Process
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork
from shalott.core.rng import Stream
from tests.world.clock.turns import answered
from tests.world.env import NoEvents
from tests.world.rabbit.asking import GUEST

T = TypeVar("T")

DEADLINE_S = 60  # virtual
AGAIN_S = 0.01


class WholeNodes:
    """``network`` cuts and mends. Nodes run until the simulation is taken apart."""

    def __init__(self, loop: SimLoop, network: SimNetwork, names: Sequence[str]) -> None:
        self.loop = loop
        self.network = network
        self.names = tuple(names)
        self.nodes: dict[str, Node] = {}
        self.views: dict[str, NodeView] = {}
        self._lives: dict[str, SimProcess] = {}

    async def inside(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run something as a part of that node."""
        return await self.loop.create_task(work, context=self._lives[name].context)

    async def start(self, name: str, **config: Any) -> None:
        self._lives[name] = SimProcess(name)
        self.loop.add_process(self._lives[name])
        await self.inside(name, self._start(name, config))

    async def _start(self, name: str, config: dict[str, Any]) -> None:
        async def open_events(incarnation: int) -> Any:
            return NoEvents()

        peers = tuple(Peer(each, each, 25672) for each in self.names if each != name)
        platform = Platform(
            clock=NodeClock(self.loop, wall_origin_ns=0),
            make_rng=lambda incarnation: Stream(1, name, incarnation),
            disk=SimDisk(self.loop, 1, name),
            open_events=open_events,
        )
        made = NodeConfig(
            name=name, data_dir="", bind_host=name, peers=peers, loopback_users=(), **config
        )
        node = await Node.open(made, platform)
        self.nodes[name] = node
        self.views[name] = NodeView(node)
        await node.start()

    async def ask(self, name: str, method: str, path: str, body: Any = None) -> Response:
        request = Request(
            method=method,
            segments=tuple(unquote(part) for part in path.strip("/").split("/")),
            headers={"authorization": GUEST},
            body=b"" if body is None else json.dumps(body).encode(),
        )
        return await self.inside(name, respond(self.views[name], request))

    async def get(self, name: str, path: str) -> Any:
        response = await self.ask(name, "GET", path)
        assert response.status == 200, response.body
        return json.loads(response.body)

    async def publish(self, name: str, queue: str, *bodies: bytes) -> None:
        """By way of that node, as a channel would that wants no confirms."""

        async def send() -> None:
            row = self.nodes[name].metadata.read("queue", f"{queue}@/")
            assert isinstance(row, QueueRow) and row.pid is not None
            runtime = self.nodes[name].runtime
            channel = runtime.spawn(Process())
            for body in bodies:
                content = Content(self._draw(), "", queue, b"\0\0", body, persistent=False)
                for pid in (row.pid, *row.slave_pids):
                    runtime.send(pid, Publish(channel, None, content))

        await self.inside(name, send())

    def _draw(self) -> int:
        return self.nodes[self.names[0]].env.rng.getrandbits(63)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        await answered(holds, step_s=AGAIN_S, within_s=DEADLINE_S)

    def isolate(self, name: str) -> None:
        """Nothing passes between this node and the others until ``network.heal``."""
        others = [each for each in self.names if each != name]
        pairs = [pair for each in others for pair in ((name, each), (each, name))]
        self.network.cut(pairs)


def with_nodes(
    body: Callable[[WholeNodes], Awaitable[None]],
    names: Sequence[str] = ("n1", "n2", "n3"),
    **config: Any,
) -> None:
    """Run ``body`` on nodes that run as one cluster."""
    loop = SimLoop()
    network = loop.network = SimNetwork(loop, 1, NetworkKnobs())
    for host in (*names, "observer"):
        network.add_host(host)

    async def main() -> None:
        cluster = WholeNodes(loop, network, names)
        for name in names:
            await cluster.start(name, **config)

        async def all_run() -> bool:
            nodes = cluster.nodes.values()
            running = [node.metadata.running_nodes() for node in nodes if node.phase == "running"]
            return running == [sorted(names)] * len(names)

        await cluster.until(all_run)
        await body(cluster)

    loop.run(main(), SimProcess("observer"))
