"""Metadata servers that need a majority, in virtual time: lives that freeze, links that end at two
times, disks that take theirs, and a ledger of all that was written.

What surrounds a server here is thinner than the real thing (cluster/sim has that): a link is a
FIFO of frames in each direction. A cut direction holds what is sent, as TCP would; who hears
nothing for about a net tick ends the link, and the other end hears of it if it can. A killed node
is frozen in the middle of what it did, and keeps what its disk had been given, or, without power,
what its disk had finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.broker.rabbit.metadata import messages, partitions, raft_group
from shalott.broker.rabbit.metadata.access import ReplicatedMetadata
from shalott.broker.rabbit.metadata.membership import FORGOTTEN
from shalott.broker.rabbit.metadata.messages import SERVER, Member
from shalott.broker.rabbit.metadata.opening import AnyServer
from shalott.broker.rabbit.metadata.partitions import PartitionHandler
from shalott.broker.rabbit.metadata.raft_group import LOG_PATH
from shalott.broker.rabbit.metadata.raft_log import Command, Outcome
from shalott.broker.rabbit.metadata.raft_server import MajorityServer
from shalott.broker.rabbit.metadata.server import MetadataServer
from shalott.broker.rabbit.metadata.tables import StoredRow, Tables
from shalott.broker.rabbit.processes.link import Frame
from shalott.broker.rabbit.processes.messages import MESSAGES, Codec
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.raft.journal_log import JournalLog
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.rng import Stream
from tests.world.clock.turns import passes
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import LoopClock, NoEvents
from tests.world.rabbit.metadata import MemoryJournal, run_now
from tests.world.rabbit.quorum_ledger import Ledger

NET_TICK_MS = 200
DIAL_MS = 40
BEGIN_MS = 2  # within which both ends of a new link know of it
SLOW_MS = 20
SILENCE = (0.75, 1.25)  # of a net tick: how long until a silent link is given up
MARK_STEP = 1000  # as TableJournal's
SNAPSHOT_ENTRIES = 15  # few, so that logs are cut and snapshots sent all the time
CODEC = Codec((*MESSAGES, *messages.MESSAGES, *partitions.MESSAGES, *raft_group.MESSAGES))
End = tuple[str, str]  # (whose end, of the link to whom)


class SlowJournal(MemoryJournal):
    """Of tables without a majority (OUR-08): takes its time, and tells the ledger what it is
    given."""

    def __init__(self, rng: Stream, ledger: Ledger) -> None:
        super().__init__()
        self._rng = rng
        self._ledger = ledger
        self.watch: Callable[[], None] = lambda: None

    async def _sync(self, keep: Callable[[], None]) -> None:
        await passes(self._rng.between(0.0001, 0.004))
        keep()
        self.watch()

    async def write(self, version: int, rows: Sequence[StoredRow]) -> None:
        self._ledger.saw(rows)

        def keep() -> None:
            self.tables.store(rows)
            if version > self.mark:
                self.mark = version + MARK_STEP

        await self._sync(keep)

    async def replace(self, tables: Tables, *, saw_down: Any = ()) -> None:
        rows = tables.snapshot()
        self._ledger.saw(rows)

        def keep() -> None:
            self.tables = Tables()
            self.tables.store(rows)
            self.mark = max(self.mark, tables.version + MARK_STEP)
            self.saw_down = dict.fromkeys(saw_down)

        await self._sync(keep)


class SlowDisk:
    """A node's disk through all of its lives. Each call takes its time, and may be the node's last
    one: it dies before or after it."""

    def __init__(self, rng: Stream) -> None:
        self._rng = rng
        self._disk = MemoryDisk()
        self.watch: Callable[[], None] = lambda: None
        self.dies: Callable[[], None] | None = None
        self.lost_power = False

    def open_log(self) -> JournalLog:
        """For a new life, with what the last one left."""
        if self.lost_power:
            self._disk = self._disk.after_power_loss(lambda: self._rng.below(2) == 0)
        else:
            self._disk = self._disk.after_kill()
        self.lost_power = False
        storage = run_now(JournalLog.open(self._disk, LOG_PATH))
        self._disk.delay_s = self._begins
        self._disk.fault = self._is_done
        return storage

    def replace(self) -> None:
        """The node is down, and gets an empty one."""
        self._disk, self.lost_power, self.dies = MemoryDisk(), False, None

    def _begins(self) -> float:
        if self.dies is not None and self._rng.below(2):
            self._die()
        return self._rng.between(0.0001, 0.002)

    def _is_done(self, operation: str, path: str) -> None:
        if self.dies is not None:
            self._die()
        self.watch()

    def _die(self) -> None:
        dies, self.dies = self.dies, None
        assert dies is not None
        dies()


class Life:
    """One run of a node's process: its server, its partition handler, and who starts and stops its
    broker (broker/rabbit/node/node.py does it so).
    """

    def __init__(self, world: World, node: str, incarnation: int, rng: Stream) -> None:
        self.node, self.incarnation = node, incarnation
        self.process = SimProcess(node, incarnation, on_exception=world.on_exception)
        self.disk = world.disks[node]
        peers = tuple(Peer(name, "", 1) for name in world.nodes if name != node)
        config = NodeConfig(
            name=node,
            data_dir="",
            peers=peers,
            net_tick_ms=NET_TICK_MS,
            partition_mode="pause_minority",
            snapshot_entries=SNAPSHOT_ENTRIES,
        )
        env = Env(
            node,
            incarnation,
            LoopClock(world.loop),
            rng,
            None,  # type: ignore[arg-type]
            NoEvents(),
            bugs=world.bugs,
            buggify=lambda site: rng.random() < 0.05,
        )
        self.runtime = Runtime(node, incarnation, CODEC)
        self.runtime.on_crash = lambda who, why: world.ledger.broke("crash", f"{node}: {who} {why}")
        self.server: AnyServer
        if "OUR-08" in world.bugs:
            journal = world.journals[node]
            self.server = MetadataServer(env, config, journal)  # type: ignore[arg-type]
        else:
            self.server = MajorityServer(env, config, self.disk.open_log())
            self._tell_the_ledger(world, self.server)
        self.metadata = ReplicatedMetadata(self.runtime, self.server)
        self.handler = PartitionHandler(env, config, self.server, self)
        self.server.on_lost = partial(self.restart, wait_for_go=False)
        self.server.on_failed = lambda why: world.ledger.broke("crash", f"{node}: {why}")
        self._wanted = asyncio.Queue[str]()

    def _tell_the_ledger(self, world: World, server: MajorityServer) -> None:
        apply = server.group.state.apply

        def told(index: int, command: Command) -> Outcome:
            outcome = apply(index, command)
            rows = [row for row in getattr(outcome, "rows", ()) if row.table != FORGOTTEN]
            world.ledger.saw([row for row in rows if row.version == server.tables.version])
            world.watch()
            return outcome

        server.group.state.apply = told  # type: ignore[method-assign]

    @property
    def term(self) -> int:
        return self.server.group.raft.term if isinstance(self.server, MajorityServer) else 0

    @property
    def is_leading(self) -> bool:
        """And it knows all that was committed before it led."""
        return isinstance(self.server, MajorityServer) and self.server.group.raft.is_ready

    @property
    def group(self) -> dict[str, Member]:
        """The members, as far as it has applied the log."""
        server = self.server
        return server.group.state.members if isinstance(server, MajorityServer) else server.members

    @property
    def is_awake(self) -> bool:
        return self.process.state == "running"

    def pause(self, reason: str) -> None:
        self._wanted.put_nowait("stop")

    def resume(self) -> None:
        self._wanted.put_nowait("start")

    def restart(self, reason: str, *, wait_for_go: bool) -> None:
        self._wanted.put_nowait("restart")

    def go(self) -> None: ...

    def disconnect(self, node: str, reason: str) -> None: ...

    def connections(self) -> int:
        return 0

    async def live(self) -> None:
        self.runtime.spawn(self.server, name=SERVER)
        self.runtime.spawn(self.handler, name=partitions.NAME)
        self.resume()
        starting: asyncio.Task[None] | None = None
        while True:
            command = await self._wanted.get()
            if command == "start" and starting is not None and not starting.done():
                continue
            if starting is not None:
                if command != "start":
                    starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                starting = None
            if command != "start" and self.server.phase != "down":
                self.server.leave()
            if command != "stop" and self.server.phase == "down":
                starting = asyncio.create_task(self.server.boot())


class World:
    """Nodes and links. ``live_at`` starts a node; every fault is a method."""

    def __init__(self, loop: SimLoop, seed: int, count: int, bugs: tuple[str, ...] = ()) -> None:
        self.loop, self.bugs = loop, bugs
        self.nodes = tuple(f"n{number}" for number in range(1, count + 1))
        patience_ms = SILENCE[1] * NET_TICK_MS + 3 * SLOW_MS
        self.ledger = Ledger(self.nodes, int(patience_ms * 1e6))
        self.lives: dict[str, Life] = {}
        self.disks = {node: SlowDisk(Stream(seed, "disk", node)) for node in self.nodes}
        self.journals = {
            node: SlowJournal(Stream(seed, "journal", node), self.ledger) for node in self.nodes
        }
        self.pairs = [(a, b) for a in self.nodes for b in self.nodes if a < b]
        self.directions = [(a, b) for a in self.nodes for b in self.nodes if a != b]
        self._seed = seed
        self._rng = Stream(seed, "world")
        self._incarnations = dict.fromkeys(self.nodes, 0)
        self._changes = 0
        self._cut: dict[End, int] = {}  # direction -> since which change
        self._suspended: dict[str, int] = {}  # node -> since which change
        self._generation = dict.fromkeys(self.pairs, 0)
        self._up: dict[End, int] = {}  # end -> the generation of the link that it has
        self._over: dict[End, int] = {}  # end -> the last generation that ended for it
        self._dialling: dict[tuple[str, str], None] = {}
        self._held: dict[End, list[tuple[int, Frame]]] = {end: [] for end in self.directions}
        self._free_ns = dict.fromkeys(self.directions, 0)  # when the last frame will have arrived
        self._slow_ms = {end: self._rng.choice((0, 0, 0, SLOW_MS)) for end in self.directions}

    def on_exception(self, context: dict[str, Any]) -> None:
        self.ledger.broke("crash", str(context.get("exception") or context["message"]))

    def watch(self) -> None:
        self.ledger.watch(self.lives.values(), self.loop.now_ns)

    # -- nodes -------------------------------------------------------------------------------------

    def live_at(self, node: str) -> Life:
        """A new life of a node that is down."""
        assert node not in self.lives
        self._incarnations[node] += 1
        incarnation = self._incarnations[node]
        life = Life(self, node, incarnation, Stream(self._seed, "life", node, incarnation))
        life.runtime.transmit = partial(self._transmit, node)
        self.disks[node].watch = self.journals[node].watch = self.watch
        self.lives[node] = life
        self.loop.add_process(life.process)
        self.loop.create_task(life.live(), context=life.process.context)
        return life

    def kill(self, node: str, *, is_power: bool) -> None:
        """Freeze it. Its peers hear of it at once, or if the machine is silent as of a cut."""
        life = self.lives.pop(node, None)
        if life is None:
            return
        life.process.freeze()
        life.disk.dies = None
        life.disk.lost_power = is_power
        self._suspended.pop(node, None)
        for peer in self.nodes:
            if peer != node:
                end, generation = (peer, node), self._generation[_pair(node, peer)]
                self._up.pop((node, peer), None)
                self._over[node, peer] = generation
                is_silent = is_power or (node, peer) in self._cut
                delay_ms = self._silence_ms() if is_silent else self._latency_ms(end)
                self._at(delay_ms, peer, self._ended, end, generation)
        self.watch()

    def suspend(self, node: str) -> None:
        self.lives[node].process.state = "paused"
        self._changes += 1
        self._suspended[node] = self._changes
        for peer in self.nodes:
            if peer != node:
                self._at(self._silence_ms(), peer, self._is_silent, (peer, node), self._changes)

    def wake(self, node: str) -> None:
        if self._suspended.pop(node, None) is not None:
            self.loop.resume(self.lives[node].process)

    # -- links -------------------------------------------------------------------------------------

    def cut(self, direction: End) -> None:
        """From now on nothing arrives that way, and what is sent waits."""
        if direction in self._cut:
            return
        source, hearer = direction
        self._changes += 1
        self._cut[direction] = self._changes
        self._at(self._silence_ms(), hearer, self._is_silent, (hearer, source), self._changes)

    def mend(self, direction: End) -> None:
        if self._cut.pop(direction, None) is not None:
            held, self._held[direction] = self._held[direction], []
            for generation, frame in held:
                self._deliver(direction, generation, frame)

    def heal(self) -> None:
        for direction in self.directions:
            self.mend(direction)
        for node in self.nodes:
            self.wake(node)

    async def dial(self) -> None:
        """Link who can be linked and is not, for ever."""
        while True:
            await passes(DIAL_MS / 1000)
            self.watch()
            for pair in self.pairs:
                if self._can_link(pair) and pair not in self._dialling:
                    ends = [self._up.get(pair), self._up.get((pair[1], pair[0]))]
                    if ends != [self._generation[pair]] * 2:
                        self._dialling[pair] = None
                        delay_ms = self._latency_ms(pair)
                        self._at(delay_ms, None, self._connect, pair, *self._lives_of(pair))

    def _lives_of(self, pair: End) -> list[Life | None]:
        return [self.lives.get(node) for node in pair]

    def _can_link(self, pair: End) -> bool:
        one, other = pair
        is_open = pair not in self._cut and (other, one) not in self._cut
        return is_open and all(life is not None and life.is_awake for life in self._lives_of(pair))

    def _connect(self, pair: End, *lives: Life | None) -> None:
        one, other = pair
        if not self._can_link(pair) or self._lives_of(pair) != list(lives):
            del self._dialling[pair]
            return
        self._generation[pair] += 1
        generation = self._generation[pair]
        for node, peer in (pair, (other, one)):
            self._at(self._rng.between(0, BEGIN_MS), node, self._began, (node, peer), generation,
                     self.lives[peer].incarnation)  # fmt: skip
            begun_ns = self.loop.now_ns + int(BEGIN_MS * 1e6)
            self._free_ns[node, peer] = max(self._free_ns[node, peer], begun_ns)
        self._at(2 * BEGIN_MS, None, self._dialling.pop, pair, None)

    def _began(self, end: End, generation: int, incarnation: int) -> None:
        if self._over.get(end, 0) >= generation:
            return
        node, peer = end
        if end in self._up:
            self.lives[node].runtime.link_down(peer, "it has linked anew")
        self._up[end] = generation
        self.lives[node].runtime.link_up(peer, incarnation)

    def _is_silent(self, end: End, change: int) -> None:
        node, peer = end
        if change in (self._cut.get((peer, node)), self._suspended.get(peer)):
            self._ended(end, self._up.get(end, 0))

    def _ended(self, end: End, generation: int) -> None:
        """``end`` has this link no more; the other end hears of it if it can."""
        if self._over.get(end, 0) >= generation:
            return
        self._over[end] = generation
        node, peer = end
        if self._up.get(end) == generation:
            del self._up[end]
            self.lives[node].runtime.link_down(peer, "silent")
        if end not in self._cut:
            self._at(self._latency_ms(end), peer, self._ended, (peer, node), generation)

    def _transmit(self, source: str, node: str, frame: Frame) -> bool:
        direction = (source, node)
        generation = self._up.get(direction)
        if generation is None:
            return False
        if direction in self._cut:
            self._held[direction].append((generation, frame))
        else:
            self._deliver(direction, generation, frame)
        return True

    def _deliver(self, direction: End, generation: int, frame: Frame) -> None:
        at_ns = self.loop.now_ns + int(self._latency_ms(direction) * 1e6)
        at_ns = self._free_ns[direction] = max(at_ns, self._free_ns[direction] + 1)
        life = self.lives.get(direction[1])
        if life is not None:
            arguments = (direction, generation, frame)
            self.loop.call_at_ns(at_ns, self._arrive, *arguments, process=life.process)

    def _arrive(self, direction: End, generation: int, frame: Frame) -> None:
        source, node = direction
        if self._up.get((node, source)) == generation:
            what = f"{source} -> {node}"
            self.loop.trace.event(self.loop.now_ns, what, repr(frame).encode())
            self.lives[node].runtime.receive(source, frame)

    # -- time --------------------------------------------------------------------------------------

    def _at(self, delay_ms: float, node: str | None, deed: Callable[..., Any], *args: Any) -> None:
        """In ``node``'s process, if it still lives then; None: outside of all."""
        life = None if node is None else self.lives.get(node)
        if node is None or life is not None:
            at_ns = self.loop.now_ns + int(delay_ms * 1e6)
            process = None if life is None else life.process
            self.loop.call_at_ns(at_ns, deed, *args, process=process)

    def _latency_ms(self, direction: End) -> float:
        return self._rng.between(0.2, 1.0) + self._slow_ms[direction] * self._rng.random()

    def _silence_ms(self) -> float:
        return self._rng.between(*SILENCE) * NET_TICK_MS


def _pair(one: str, other: str) -> tuple[str, str]:
    return (min(one, other), max(one, other))
