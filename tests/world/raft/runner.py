"""Three members, each a program on a simulated host with a disk of its own, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.raft.api import Entry, RaftSettings, Role, Snapshot
from shalott.broker.raft.group import Submitted
from shalott.broker.raft.journal_log import JournalLog
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.rocket.remoting.raft_frames import RaftFrames
from shalott.broker.rocket.remoting.raft_transport import RaftTransport
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import SimNetwork
from tests.world.clock.turns import until
from tests.world.env import LoopClock, UnwantedEvents

T = TypeVar("T")
PORT = 40911
NAMES = ("a", "b", "c")
SETTINGS = RaftSettings(
    heartbeat_interval_ms=200,
    vote_min_ms=50,
    vote_max_ms=200,
    push_timeout_ms=300,
    commit_push_interval_ms=100,
    no_op_on_election=True,
)
DEADLINE_S = 60.0


@dataclass
class Node:
    """One host and what runs there. ``applied`` and what follows are of its current life."""

    name: str
    disk: SimDisk
    process: SimProcess | None = None
    storage: JournalLog | None = None
    runner: RaftRunner | None = None
    applied: list[bytes] = field(default_factory=list)
    roles: list[tuple[Role, int, str]] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    truncations: list[tuple[int, int]] = field(default_factory=list)
    failure: str = ""
    restored: int = 0
    lives: int = 0

    # -- StateMachine and Watcher ------------------------------------------------------------------

    def apply(self, entries: Sequence[Entry]) -> None:
        self.applied += [entry.data for entry in entries]

    def take_snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.applied)

    def restore(self, snapshot: Snapshot) -> None:
        self.applied = msgspec.msgpack.decode(snapshot.data, type=list[bytes])
        self.restored += 1

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        self.roles.append((role, term, leader))

    def leader_ready(self, term: int) -> None:
        self.ready.append(term)

    def committed(self, index: int) -> None:
        assert self.runner is not None and index <= self.runner.applied_index

    def truncated(self, from_index: int, last_index: int) -> None:
        self.truncations.append((from_index, last_index))

    def failed(self, reason: str) -> None:
        self.failure = reason


class RunnerWorld:
    def __init__(
        self,
        seed: int = 1,
        *,
        settings: RaftSettings = SETTINGS,
        snapshot_threshold: int = 0,
        bugs: tuple[str, ...] = (),
    ) -> None:
        self.loop = SimLoop()
        self.network = SimNetwork(self.loop, seed)
        self.loop.network = self.network
        self.seed = seed
        self.settings = settings
        self.snapshot_threshold = snapshot_threshold
        self.bugs = bugs
        self.nodes = {name: Node(name, SimDisk(self.loop, seed, name)) for name in NAMES}
        for host in ("harness", *NAMES):
            self.network.add_host(host)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(main, SimProcess("harness", fenced=False))

    def start(self, *names: str) -> None:
        for name in names or NAMES:
            node = self.nodes[name]
            assert node.process is None
            node.lives += 1
            node.process = SimProcess(name, node.lives)
            self.loop.add_process(node.process)
            self.loop.create_task(self._live(node), name=name, context=node.process.context)

    async def _live(self, node: Node) -> None:
        env = Env(
            node.name,
            node.lives,
            LoopClock(self.loop),
            random.Random(f"{self.seed}/{node.name}/{node.lives}"),
            node.disk,
            UnwantedEvents(),
            bugs=self.bugs,
        )
        node.applied, node.roles, node.ready, node.truncations = [], [], [], []
        node.storage = await JournalLog.open(node.disk, "raft/log", bugs=self.bugs)
        transport = RaftTransport(
            RaftFrames("group", node.name),
            {name: f"{name}:{PORT}" for name in NAMES},
            host="0.0.0.0",
            port=PORT,
            dial=lambda address: (address.split(":")[0], PORT),
            settings=self.settings,
        )
        node.runner = RaftRunner(
            env,
            NAMES,
            settings=self.settings,
            storage=node.storage,
            transport=transport,
            machine=node,
            watcher=node,
            snapshot_threshold=self.snapshot_threshold,
        )
        await node.runner.start()

    def kill(self, name: str, *, power_loss: bool = False) -> None:
        node = self.nodes[name]
        assert node.process is not None
        node.process.freeze()
        if power_loss:
            self.network.host_down(name)
            node.disk.power_loss()
        else:
            node.disk.kill()
        self.network.process_died(node.process, reset=not power_loss)
        node.process = node.runner = None
        if power_loss:
            self.network.host_up(name)

    def isolate(self, name: str) -> None:
        others = [other for other in NAMES if other != name]
        self.network.cut([(name, other) for other in others])
        self.network.cut([(other, name) for other in others])

    async def on(self, name: str, work: Callable[[RaftRunner], Coroutine[Any, Any, T]]) -> T:
        """Do ``work`` as a task of the member's own program."""
        node = self.nodes[name]
        assert node.runner is not None and node.process is not None
        task = self.loop.create_task(work(node.runner), context=node.process.context)
        return await task

    async def propose(self, name: str, data: bytes, timeout_ms: float = 5000) -> int:
        return await self.on(name, lambda runner: runner.propose(data, timeout_ms))

    async def submit(self, name: str, data: bytes) -> Submitted:
        async def work(runner: RaftRunner) -> Submitted:
            return runner.submit(data)

        return await self.on(name, work)

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        await until(condition, what, 0.005, DEADLINE_S)

    def leaders(self) -> list[str]:
        return [
            name
            for name, node in self.nodes.items()
            if node.runner is not None and node.runner.is_ready
        ]

    async def leader(self, *, but: str = "") -> str:
        await self.until(lambda: [name for name in self.leaders() if name != but], "a leader")
        return next(name for name in self.leaders() if name != but)

    async def all_applied(self, values: Sequence[bytes]) -> None:
        def same() -> bool:
            return all(node.applied == list(values) for node in self.nodes.values())

        await self.until(same, f"{values} applied everywhere")
