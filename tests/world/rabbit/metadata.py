"""Three metadata servers on a switchboard, with journals that outlive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.broker.rabbit.metadata import messages, partitions, raft_group
from shalott.broker.rabbit.metadata.access import ReplicatedMetadata
from shalott.broker.rabbit.metadata.opening import AnyServer, needs_majority
from shalott.broker.rabbit.metadata.raft_group import LOG_PATH
from shalott.broker.rabbit.metadata.raft_server import MajorityServer
from shalott.broker.rabbit.metadata.server import MetadataServer
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.messages import MESSAGES, Codec
from shalott.broker.raft.journal_log import JournalLog
from tests.world.clock.turns import until
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import NoEvents
from tests.world.rabbit.switchboard import Switchboard

T = TypeVar("T")
NODES = ("n1", "n2", "n3")


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Of a coroutine that awaits nothing but turns: a MemoryDisk without delays, say."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class MemoryJournal:
    """Stands in for TableJournal: what survives a restart of the server object."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.mark = 0
        self.saw_down: dict[str, None] = {}

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

    async def replace(self, tables: Tables, *, saw_down: Iterable[str] = ()) -> None:
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
            NODES,
            Codec((*MESSAGES, *messages.MESSAGES, *partitions.MESSAGES, *raft_group.MESSAGES)),
        )
        self.disks = {node: MemoryDisk() for node in NODES}
        self.journals = {node: MemoryJournal() for node in NODES}
        self.servers: dict[str, AnyServer] = {}
        self.configs: dict[str, NodeConfig] = {}
        self.envs: dict[str, Env] = {}
        self.metadata: dict[str, ReplicatedMetadata] = {}
        for node in NODES:
            self.make(node)

    def make(self, node: str, incarnation: int = 1) -> None:
        peers = tuple(Peer(name, "", 1) for name in NODES if name != node)
        config = NodeConfig(
            name=node, data_dir="", peers=peers, net_tick_ms=200, partition_mode=self.partition_mode
        )
        env = Env(
            node,
            incarnation,
            SystemClock(),
            seeded_rng(NODES.index(node), 1),  # equal numbers would make every vote a draw
            None,  # type: ignore[arg-type]
            NoEvents(),
            bugs=self.bugs,
        )
        self.configs[node], self.envs[node] = config, env
        server: AnyServer
        if needs_majority(config, self.bugs):
            self.disks[node] = self.disks[node].after_kill()
            server = MajorityServer(
                env, config, run_now(JournalLog.open(self.disks[node], LOG_PATH))
            )
        else:
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
        await until(condition, step_s=0.001, within_s=5)

    async def kill(self, node: str) -> None:
        """End the server process and cut its links; its journal stays."""
        self.board.isolate(node)
        await self.board.runtimes[node].kill(self.servers[node].pid)
        await self.servers[node].close()

    async def close(self) -> None:
        for node, server in self.servers.items():
            await self.board.runtimes[node].kill(server.pid)
            await server.close()
