"""Three metadata servers on a switchboard, with journals that outlive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.broker.rabbit.metadata import messages, partitions
from shalott.broker.rabbit.metadata.access import ReplicatedMetadata
from shalott.broker.rabbit.metadata.server import MetadataServer
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import MESSAGES, Codec
from tests.world.env import NoEvents
from tests.world.rabbit.switchboard import Switchboard

NODES = ("n1", "n2", "n3")


class MemoryJournal:
    """Stands in for TableJournal: what survives a restart of the server object."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.mark = 0
        self.saw_down: dict[str, None] = {}
        self.ballot = 0
        self.promised = 0

    @property
    def rows(self) -> list[StoredRow]:
        return self.tables.snapshot(durable_only=True)

    async def write(self, version: int, rows: Sequence[StoredRow]) -> None:
        self.tables.store(rows)
        self.mark = max(self.mark, version)

    async def note_down(self, node: str) -> None:
        self.saw_down[node] = None

    async def note_up(self, node: str) -> None:
        self.saw_down.pop(node, None)

    async def promise(self, ballot: int) -> None:
        self.promised = ballot

    async def replace(
        self, tables: Tables, *, saw_down: Iterable[str] = (), ballot: int = 0
    ) -> None:
        self.ballot = ballot
        self.tables = Tables()
        self.tables.store(tables.snapshot(durable_only=True))
        self.mark = tables.version
        self.saw_down = dict.fromkeys(saw_down)


class World:
    """Three servers on a switchboard."""

    def __init__(self, partition_mode: Any = "ignore", bugs: tuple[str, ...] = ()) -> None:
        self.partition_mode = partition_mode
        self.bugs = bugs
        self.board = Switchboard(
            NODES, Codec((*MESSAGES, *messages.MESSAGES, *partitions.MESSAGES))
        )
        self.journals = {node: MemoryJournal() for node in NODES}
        self.servers: dict[str, MetadataServer] = {}
        self.configs: dict[str, NodeConfig] = {}
        self.envs: dict[str, Env] = {}
        self.metadata: dict[str, ReplicatedMetadata] = {}
        for node in NODES:
            self.make(node)

    def make(self, node: str) -> None:
        peers = tuple(Peer(name, "", 1) for name in NODES if name != node)
        config = NodeConfig(
            name=node, data_dir="", peers=peers, net_tick_ms=200, partition_mode=self.partition_mode
        )
        env = Env(
            node,
            1,
            SystemClock(),
            seeded_rng(1, 1),
            None,  # type: ignore[arg-type]
            NoEvents(),
            bugs=self.bugs,
        )
        self.configs[node], self.envs[node] = config, env
        server = MetadataServer(env, config, self.journals[node])  # type: ignore[arg-type]
        runtime = self.board.runtimes[node]
        runtime.spawn(server, name="metadata")
        self.servers[node] = server
        self.metadata[node] = ReplicatedMetadata(runtime, server)

    async def boot(self) -> None:
        self.board.link_all()
        async with asyncio.timeout(5):
            await asyncio.gather(*(server.boot() for server in self.servers.values()))
        await self.until(lambda: all(len(s.members) == 3 for s in self.servers.values()))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - conditions on plain attributes
                await asyncio.sleep(0.001)

    async def kill(self, node: str) -> None:
        """End the server process and cut its links; its journal stays."""
        self.board.isolate(node)
        await self.board.runtimes[node].kill(self.servers[node].pid)

    async def close(self) -> None:
        for node, server in self.servers.items():
            await self.board.runtimes[node].kill(server.pid)
