"""A cluster of queue supervisors in one simulated event loop: real processes, real queues, an
in-memory mesh and shared tables.

Each node is a process of the loop, so a killed one does nothing more from that instant on. Frames
travel encoded, in FIFO order. Links can be cut (both sides notice at once), nodes killed, stopped
and started; the tables can be split, as a partition in mode ignore splits them. How long frames,
rows of tables, calls of the disk and the news of a death take is drawn from a seed (``Latency``),
or always the same (``Steady``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shalott.broker.base.env import Env
from shalott.broker.rabbit.amqp import queue_protocol as qp
from shalott.broker.rabbit.amqp.confirms import UnconfirmedMessages
from shalott.broker.rabbit.amqp.services import RetryConfirms
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import TableChanged, Transaction
from shalott.broker.rabbit.metadata.messages import Membership
from shalott.broker.rabbit.metadata.records import (
    PolicyRow,
    QueueRow,
    Record,
    policy_key,
    queue_key,
)
from shalott.broker.rabbit.metadata.tables import LocalTransaction, StoredRow, Tables
from shalott.broker.rabbit.mirrored import messages as mm
from shalott.broker.rabbit.mirrored.storage import QueueStorage
from shalott.broker.rabbit.processes import messages as pm
from shalott.broker.rabbit.processes.link import Frame
from shalott.broker.rabbit.processes.messages import Codec, Down, Message, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.queue_process.process import QueueProcess
from shalott.broker.rabbit.queue_process.state import QueueContext
from shalott.broker.rabbit.supervision.queues_service import QueuesService
from shalott.broker.rabbit.supervision.supervisor import QueueSupervisor
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.clock.latency import Latency, Steady, sim
from tests.world.clock.turns import passes, turns
from tests.world.clock.turns import until as until_it_holds
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import Event, Events, LoopClock

T = TypeVar("T")
CODEC = Codec((*pm.MESSAGES, *qp.MESSAGES, *mm.MESSAGES))
DEADLINE_S = 10.0


def run(test: Coroutine[Any, Any, T]) -> T:
    """What ``asyncio.run`` would do, in virtual time: fast, and the same every time."""
    return SimLoop().run(test, SimProcess("test", fenced=False))


async def until(condition: Callable[[], Any], what: str = "") -> None:
    """Give the others turns until ``condition`` holds."""
    await until_it_holds(condition, what, step_s=0.001, within_s=DEADLINE_S)


# -- tables ----------------------------------------------------------------------------------------


class Store:
    """The tables of the nodes that see each other."""

    def __init__(self, tables: Tables) -> None:
        self.leader = tables
        self.members: dict[str, NodeMetadata] = {}

    def commit(self, rows: list[StoredRow], latency: Latency) -> int:
        """Hand the rows out; returns when every member has them."""
        last_ns = 0
        for name, member in self.members.items():
            at_ns = latency.arrival_ns("tables", name)
            sim().call_at_ns(at_ns, member.take, rows, process=member.node.life)
            last_ns = max(last_ns, at_ns)
        return last_ns


class NodeMetadata:
    """Implements broker.rabbit.metadata.api.Metadata."""

    def __init__(self, node: TestNode, store: Store) -> None:
        self.node = node
        self.store = store
        self.running: dict[str, None] = {}  # as this node sees it
        self.tables = copy_of(store.leader)
        self._subscribers: list[Pid] = []

    def read(self, table: str, key: str) -> Record | None:
        return self.tables.read(table, key)

    def version(self, table: str, key: str) -> int:
        return self.tables.row_version(table, key)

    def rows(self, table: str) -> list[tuple[str, Record]]:
        return self.tables.rows(table)

    needs_majority = False

    def is_in_majority(self, *row: str) -> bool:
        return True

    is_settled = is_in_majority

    def running_nodes(self) -> list[str]:
        return sorted(self.running)

    def subscribe(self, pid: Pid) -> None:
        self._subscribers.append(pid)

    async def transact(
        self,
        body: Callable[[Transaction], T],
        *,
        confirmed: bool = False,
        once: bool = False,  # no commit is ever in doubt here
        timeout_ms: float = 30000,
    ) -> T:
        while True:
            transaction = LocalTransaction(self.tables)
            result = body(transaction)
            if not transaction.writes and not confirmed:
                return result
            changes = transaction.changes()
            latency = self.node.cluster.latency
            await passes(latency.draw_s())
            if not self.store.leader.conflicts(changes):
                version = self.store.leader.version + 1
                rows = self.store.leader.apply(version, changes)
                everywhere_ns = self.store.commit(rows, latency)
                await passes((everywhere_ns - sim().now_ns) / 1e9 + latency.draw_s())
                return result
            await passes(latency.draw_s())

    def take(self, rows: list[StoredRow]) -> None:
        for row in self.tables.store(rows):
            self.tell(TableChanged(row.table, row.key))

    def tell(self, message: Message) -> None:
        for pid in self._subscribers:
            self.node.runtime.send(pid, message)

    def sees(self, names: Iterable[str]) -> None:
        """These are up."""
        self.running = dict.fromkeys(names)
        self.tell(Membership(tuple(sorted(self.running))))


def copy_of(tables: Tables, *, durable_only: bool = False) -> Tables:
    copy = Tables()
    copy.store(tables.snapshot(durable_only=durable_only))
    return copy


# -- a channel -------------------------------------------------------------------------------------


class TestChannel(Process):
    """Publishes to a master and its mirrors as a channel does, and remembers what it is told."""

    __test__ = False

    def __init__(self, node: TestNode) -> None:
        super().__init__()
        self._node = node
        self._seq = 0
        self._unconfirmed = UnconfirmedMessages(self._master_of)
        self.owed: dict[int, bytes] = {}  # undecided: seq -> body
        self.confirmed: list[bytes] = []
        self.nacked: list[bytes] = []
        self.deliveries: list[qp.Deliver] = []
        self.cancelled: list[qp.ConsumerCancelled] = []
        self._watched: dict[Pid, None] = {}

    async def handle(self, message: Message) -> None:
        match message:
            case qp.Confirmed(process, _, seqs):
                self._unconfirmed.confirm(process, seqs)
            case qp.Refused(process, _, seqs):
                self._unconfirmed.refuse(process, seqs)
            case qp.Deliver():
                self.deliveries.append(message)
            case qp.ConsumerCancelled():
                self.cancelled.append(message)
            case Down(pid=pid):
                self._watched.pop(pid, None)
                self._unconfirmed.down(pid, normal=message.reason == "normal")
        self._decide()

    def _master_of(self, queue: str) -> Pid | None:
        row = self._node.row(queue)
        return None if row is None else row.pid

    def _decide(self) -> None:
        if self._unconfirmed.in_question:
            self._unconfirmed.reconsider(sim().now_ns)
            self.after(10, RetryConfirms())
        for verdict in self._unconfirmed.take_nacks():
            self.nacked.append(self.owed.pop(verdict.seq))
        for verdict in self._unconfirmed.take_acks():
            upto = [
                s for s in self.owed if s == verdict.seq or (verdict.multiple and s < verdict.seq)
            ]
            self.confirmed += [self.owed.pop(seq) for seq in upto]

    def publish(
        self, queue: str, body: bytes, *, to: tuple[Pid, ...] | None = None, **more: Any
    ) -> int:
        """``to``: the processes that this channel knows of, if not those in its node's tables."""
        row = self._node.row(queue)
        assert row is not None and row.pid is not None
        self._seq += 1
        content = qp.Content(
            id=self._node.env.rng.getrandbits(63),
            exchange="",
            routing_key=queue,
            properties=b"\0\0",
            body=body,
            persistent=more.pop("persistent", True),
            **more,
        )
        processes = to if to is not None else (row.pid, *row.slave_pids)
        behind = [pid for pid in row.slave_pids if pid not in row.sync_slave_pids]
        self.owed[self._seq] = body
        self._unconfirmed.sent(self._seq, {queue: processes}, {queue: behind})
        for pid in processes:
            if pid not in self._watched:
                self._watched[pid] = None
                self.runtime.monitor(pid, self.pid)
            self.runtime.send(pid, qp.Publish(self.pid, self._seq, content, processes))
        return self._seq

    async def publish_all(self, queue: str, bodies: Iterable[bytes]) -> None:
        """Publish, and wait until everything is confirmed."""
        wanted = list(bodies)
        for body in wanted:
            self.publish(queue, body)
        await until(lambda: not self.owed, "confirms")
        assert all(body in self.confirmed for body in wanted)

    async def ask(self, queue: str, request: Message) -> Message:
        row = self._node.row(queue)
        assert row is not None and row.pid is not None
        return await self.runtime.call(row.pid, request, timeout_ms=5000, caller=self.pid)

    async def get(self, queue: str, *, no_ack: bool = False) -> qp.Got | None:
        answer = await self.ask(queue, qp.Get(self.pid, no_ack))
        assert isinstance(answer, qp.Got | qp.GotEmpty), answer
        return answer if isinstance(answer, qp.Got) else None

    async def drain(self, queue: str) -> list[bytes]:
        bodies = []
        while (got := await self.get(queue, no_ack=True)) is not None:
            bodies.append(got.content.body)
        return bodies

    def settle(self, queue: str, ack_ids: Iterable[int], outcome: str = "ack") -> None:
        self.send(queue, qp.Settle(self.pid, tuple(ack_ids), outcome))

    def send(self, queue: str, message: Message) -> None:
        """To its master."""
        row = self._node.row(queue)
        assert row is not None and row.pid is not None
        self.runtime.send(row.pid, message)


# -- nodes -----------------------------------------------------------------------------------------


class TestNode:
    __test__ = False

    def __init__(self, cluster: Cluster, name: str, incarnation: int, disk: MemoryDisk) -> None:
        self.cluster = cluster
        self.name = name
        self.disk = disk
        self.life = SimProcess(name, incarnation, fenced=False)
        sim().add_process(self.life)
        self.env = Env(
            node_id=name,
            incarnation=incarnation,
            clock=LoopClock(),
            rng=random.Random(f"{cluster.seed}-{name}-{incarnation}"),
            disk=disk,
            events=Events(name, cluster.events),
            bugs=cluster.bugs,
        )
        self.config = NodeConfig(name=name, data_dir="", slave_wait_timeout_ms=1000)
        self.runtime = Runtime(name, incarnation, CODEC)
        self.runtime.transmit = self._transmit
        self.metadata = NodeMetadata(self, cluster.store)
        self.queues = QueuesService(self.env, self.runtime, self.metadata)
        self.supervisor: QueueSupervisor | None = None
        self.is_up = False

    def inside(self, call: Callable[[], T]) -> T:
        """Do ``call`` as a part of this node."""
        loop, before = sim(), sim().process
        loop.process = self.life
        try:
            return self.life.context.run(call)
        finally:
            loop.process = before

    def sees(self, node: str, incarnation: int) -> bool:
        return self.runtime.is_alive(Pid(node, incarnation, 0))

    def _transmit(self, node: str, frame: Frame) -> bool:
        if node not in self.runtime.nodes() or not self.cluster.is_linked(self.name, node):
            return False
        peer = self.cluster.nodes.get(node)
        if peer is not None:
            at_ns = self.cluster.latency.arrival_ns(self.name, node)
            sim().call_at_ns(at_ns, peer._arrive, self, frame, process=peer.life)
        return True

    def _arrive(self, sender: TestNode, frame: Frame) -> None:
        """Frames that were under way when the link broke are lost."""
        is_up = self.sees(sender.name, sender.env.incarnation)
        if is_up and self.cluster.is_linked(self.name, sender.name):
            self.runtime.receive(sender.name, frame)

    def lose(self, peer: str, incarnation: int, reason: str) -> None:
        """The link to that life of ``peer`` is down."""
        if self.sees(peer, incarnation):
            self.runtime.link_down(peer, reason)
            self.metadata.sees(name for name in self.metadata.running if name != peer)

    def start_supervisor(self, **more: Any) -> None:
        storage = more.pop("storage", None) or QueueStorage(self.disk, self.env.clock)
        context = QueueContext(self.env, self.config, self.metadata, storage, **more)
        self.supervisor = QueueSupervisor(context)
        supervisor = self.supervisor
        self.inside(lambda: self.runtime.spawn(supervisor, name=mm.SUPERVISOR))

    def row(self, queue: str) -> QueueRow | None:
        row = self.metadata.read("queue", queue_key("/", queue))
        assert row is None or isinstance(row, QueueRow)
        return row

    def process(self, queue: str) -> QueueProcess | None:
        assert self.supervisor is not None
        return self.supervisor.children.process_of(queue_key("/", queue))

    def role(self, queue: str) -> str:
        process = self.process(queue)
        return "none" if process is None or process.role is None else process.role.role

    def contents(self, queue: str) -> list[tuple[bytes, bool]]:
        """(body, unacknowledged) of all that this node's process holds."""
        process = self.process(queue)
        assert process is not None and process.role is not None
        return [(h.content.body, h.unacked) for h in process.role.queue.messages.contents()]

    def is_synchronised(self, queue: str) -> bool:
        row, process = self.row(queue), self.process(queue)
        return row is not None and process is not None and process.pid in row.sync_slave_pids

    async def declare(self, queue: str, *, durable: bool = True, **more: Any) -> QueueRow:
        return await self.queues.declare(
            vhost="/",
            name=queue,
            durable=durable,
            auto_delete=more.get("auto_delete", False),
            exclusive_owner=more.get("exclusive_owner"),
            arguments=more.get("arguments", {}),
        )

    def channel(self) -> TestChannel:
        channel = TestChannel(self)
        self.inside(lambda: self.runtime.spawn(channel))
        return channel


@dataclass
class Cluster:
    names: str
    seed: int = 0
    bugs: tuple[str, ...] = ()  # of every node (broker/known_bugs.py)
    latency: Latency = field(default_factory=lambda: Steady(0))
    nodes: dict[str, TestNode] = field(default_factory=dict)
    cuts: dict[tuple[str, str], None] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    incarnations: dict[str, int] = field(default_factory=dict)
    disks: dict[str, MemoryDisk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = Store(Tables())

    async def __aenter__(self) -> Cluster:
        for name in self.names:
            self.boot(name)
        await turns()
        return self

    async def __aexit__(self, *error: object) -> None:
        for name in list(self.nodes):
            await self.kill(name)

    def __getitem__(self, name: str) -> TestNode:
        return self.nodes[name]

    def is_linked(self, a: str, b: str) -> bool:
        return (min(a, b), max(a, b)) not in self.cuts

    # -- life --------------------------------------------------------------------------------------

    def boot(self, name: str, *, supervisor: bool = True) -> TestNode:
        """Start a node; its tables come from the members, or from those of the last that was up."""
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        disk = self.disks.get(name, MemoryDisk())
        disk.delay_s = self.latency.draw_s
        if not self.store.members:
            self.store.leader = copy_of(self.store.leader, durable_only=True)
        node = TestNode(self, name, self.incarnations[name], disk)
        self.nodes[name] = node
        node.is_up = True
        self.store.members[name] = node.metadata
        node.metadata.running[name] = None
        for peer in self.nodes.values():
            if peer is not node and self.is_linked(name, peer.name):
                self._link(node, peer)
        if supervisor:
            node.start_supervisor()
        return node

    def _link(self, node: TestNode, peer: TestNode) -> None:
        peer.inside(lambda: peer.lose(node.name, node.env.incarnation - 1, "replaced"))
        for one, other in ((node, peer), (peer, node)):
            one.runtime.link_up(other.name, other.env.incarnation)
            one.metadata.sees((*one.metadata.running, other.name))

    async def kill(self, name: str, *, power: Callable[[], bool] | None = None) -> None:
        """kill -9: what was written survives, without a goodbye. Or a power loss: what was synced
        survives, and of the rest what ``power`` wants.
        """
        self._end(self.nodes[name], power)

    async def kill_all(self, *, power: Callable[[], bool] | None = None) -> None:
        """Every node at the same instant."""
        for node in list(self.nodes.values()):
            self._end(node, power)

    async def stop(self, name: str) -> None:
        """An orderly stop."""
        node = self.nodes[name]
        assert node.supervisor is not None
        await node.supervisor.children.stop_all(5000)
        await passes(0.01)
        if self.nodes.get(name) is node:
            self._end(node, None)

    def _end(self, node: TestNode, power: Callable[[], bool] | None) -> None:
        """Nothing of it runs from now on."""
        node.life.freeze()
        node.is_up = False
        del self.nodes[node.name]
        after = node.disk.after_kill() if power is None else node.disk.after_power_loss(power)
        self.disks[node.name] = after
        node.metadata.store.members.pop(node.name, None)
        for peer in self.nodes.values():
            if self.is_linked(node.name, peer.name):
                at_ns = self.latency.loss_ns(node.name, peer.name)
                lost = (node.name, node.env.incarnation, "killed")
                sim().call_at_ns(at_ns, peer.lose, *lost, process=peer.life)

    async def kill_process(self, name: str, queue: str) -> None:
        process = self.nodes[name].process(queue)
        assert process is not None
        await self.nodes[name].runtime.kill(process.pid)

    # -- partitions --------------------------------------------------------------------------------

    def partition(self, *sides: str) -> None:
        """Cut all links between the sides; each goes on with tables of its own."""
        for i, left in enumerate(sides):
            for right in sides[i + 1 :]:
                for a in left:
                    for b in right:
                        self.cuts[min(a, b), max(a, b)] = None
                        self.nodes[a].runtime.link_down(b, "partition")
                        self.nodes[b].runtime.link_down(a, "partition")
        for side in sides:
            store = Store(copy_of(self.store.leader))
            for name in side:
                node = self.nodes[name]
                node.metadata.take(store.leader.snapshot())
                node.metadata.store = store
                store.members[name] = node.metadata
                node.metadata.sees(side)

    # -- policies ----------------------------------------------------------------------------------

    async def set_policy(self, definition: dict[str, Any], pattern: str = "", **more: Any) -> None:
        row = PolicyRow(
            vhost="/", name="ha", pattern=pattern, definition=definition, apply_to="queues", **more
        )
        node = next(iter(self.nodes.values()))
        await node.metadata.transact(lambda tx: tx.write("policy", policy_key("/", "ha"), row))

    async def clear_policy(self) -> None:
        node = next(iter(self.nodes.values()))
        await node.metadata.transact(lambda tx: tx.delete("policy", policy_key("/", "ha")))

    # -- looks -------------------------------------------------------------------------------------

    def master(self, queue: str) -> str:
        masters = [name for name, node in self.nodes.items() if node.role(queue) == "master"]
        return masters[0] if masters else ""

    def mirrors(self, queue: str) -> list[str]:
        return [name for name, node in self.nodes.items() if node.role(queue) == "mirror"]

    async def mirrored_on(self, queue: str, names: str, *, synchronised: bool = True) -> None:
        def holds() -> bool:
            if sorted(self.mirrors(queue)) != sorted(names):
                return False
            return not synchronised or all(self.nodes[n].is_synchronised(queue) for n in names)

        await until(holds, f"mirrors of {queue} on {names}")

    async def in_step(self, queue: str) -> None:
        """All processes of the queue come to hold the same."""

        def equal() -> bool:
            held = [n.contents(queue) for n in self.nodes.values() if n.role(queue) != "none"]
            return all(contents == held[0] for contents in held)

        await until(equal, f"the mirrors of {queue} in step")

    def events_of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]
