"""QueueSupervisor: keeps the queue processes of one node. Registered as "queues".

It recovers queues when the node has its tables, starts masters that are declared and mirrors that
masters ask for, lets the node take its own place as a mirror when it comes up, tells masters when
the policies change, and cleans up after nodes that are gone. It is the root of a tree
(rabbit_amqqueue_sup_sup): each process is the child of a supervisor of its own, which starts it
again after a crash, with a limit (children.py).

A mirror needs two nodes that see each other, and after a start of all nodes any two may do so last:
the master asks whom it sees when it starts, and a node asks for itself when it comes up. So two
nodes look again whenever one comes to see the other (LookAgain); nothing else ever would.

Whether a process of a queue belongs here is always decided on the row as it is now
(``policy.decide``), never on what was true when something crashed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.base.tasks import Tasks
from shalott.broker.rabbit.metadata.api import Metadata, TableChanged, Transaction
from shalott.broker.rabbit.metadata.messages import Membership
from shalott.broker.rabbit.metadata.policies import POLICIES
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import log_lines, policy, rows
from shalott.broker.rabbit.mirrored.bug_rules import supervisor_rules
from shalott.broker.rabbit.mirrored.messages import (
    SUPERVISOR,
    Declared,
    DeclareQueue,
    DeclareStart,
    LookAgain,
    MirrorStart,
    Reconsider,
    RecoverStart,
    Start,
    StartMirror,
    UpdateMirroring,
)
from shalott.broker.rabbit.processes.messages import Done, Down, Failed, Message, Name, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller
from shalott.broker.rabbit.queue_process.process import QueueProcess
from shalott.broker.rabbit.queue_process.state import QueueContext
from shalott.broker.rabbit.replica.mirror import Mirror
from shalott.broker.rabbit.supervision.children import Children, QueueSup

log = logging.getLogger("shalott.broker.mirrored")

RETRY_MS = 25

# Ends after which the queue is not wanted here, or its master's next start will see to it.
FINAL = (
    "normal",
    "dropped",
    "stopped by its master",
    "not started: existing",
    "not started: no_row",
)


class QueueSupervisor(Process):
    """Spawn it with ``name=SUPERVISOR`` when the tables are loaded."""

    def __init__(self, context: QueueContext) -> None:
        super().__init__()
        self._context = context
        self._metadata = context.metadata
        self._rules = supervisor_rules(context.env.has_bug)
        self.children = Children(self)
        self._retries: dict[str, None] = {}
        self._liveness = Liveness(self, context.metadata)
        self._members: tuple[str, ...] = ()  # as they were when this was told of them last
        self._writes = Tasks()
        self._asked: dict[str, None] = {}  # for a mirror, when there was a process already
        # Queues of which no mirror is started here (not SupervisorRules.restart_adds_mirrors).
        self._masters_only: dict[str, None] = {}
        self._has_looked = asyncio.Event()  # at all queues, when it began
        self._recovering: list[QueueProcess] = []  # by then

    # -- Process -----------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._writes.cancel()

    async def started(self) -> None:
        self._metadata.subscribe(self.pid)
        self._members = tuple(self._metadata.running_nodes())
        if self._context.restarted and not self._rules.restart_adds_mirrors:
            self._masters_only = dict.fromkeys(self._known_keys())
        for key in self._known_keys():
            self._consider(key)
        self._has_looked.set()
        self._forget_dead_masters()

    async def recovered(self) -> None:
        """Until the queues that this node recovers when it starts serve, or have ended."""
        await self._has_looked.wait()
        for process in self._recovering:
            await process.has_started.wait()
        self._recovering.clear()

    async def handle(self, message: Message) -> None:
        match message:
            case Down():
                if not self._liveness.took(message):
                    self._child_ended(message)
            case Reconsider(key):
                self._retries.pop(key, None)
                self._consider(key)
            case TableChanged(table, key):
                self._changed(table, key)
            case Membership(nodes):
                self._forget_dead_masters()
                self._members_are(nodes)
            case LookAgain(node):
                self._look_again(node)

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if self.children.is_stopping:
            return Failed("stopping")
        match request:
            case DeclareQueue(row):
                return self._declare(row, caller)
            case StartMirror(key):
                if key in self.children.by_key and not self._may_replace(key):
                    self._asked[key] = None
                    return Done()
                self._spawn(key, MirrorStart(caller))
                return None
        return Failed("unsupported", type(request).__name__)

    # -- children ----------------------------------------------------------------------------------

    def _declare(self, row: QueueRow, caller: Caller) -> Message | None:
        if row.key not in self.children.by_key:
            self._spawn(row.key, DeclareStart(row, caller))
            return None
        existing = rows.read(self._metadata, row.key)
        if existing is not None:
            return Declared(existing, created=False)
        return Failed("ending", "a former queue of this name is just ending")

    def _spawn(self, key: str, start: Start) -> None:
        process = QueueProcess(self._context, key, start)
        if isinstance(start, RecoverStart) and not self._has_looked.is_set():
            self._recovering.append(process)
        pid = self.runtime.spawn(process)
        self._masters_only.pop(key, None)
        self._asked.pop(key, None)
        self._tell_started(self.children.started(key, pid, start), start)
        self.runtime.monitor(pid, self.pid)

    def _may_replace(self, key: str) -> bool:
        """Whether a mirror may be started beside this node's process of the queue.

        Beside one that did not end when its master stopped it: the newcomer kills it (rmq#802).
        """
        row, process = rows.read(self._metadata, key), self.children.process_of(key)
        if row is None or process is None:
            return False
        if not self._rules.replaces_pending_only and process.role is not None:
            return process.pid not in (row.pid, *row.slave_pids)
        return process.pid in row.slave_pids_pending_shutdown

    def _child_ended(self, message: Down) -> None:
        sup = self.children.ended(message.pid)
        if sup is None:
            return
        key = sup.key
        # A master asked for a mirror while the former one was ending: what ended it is over.
        is_final = message.reason in FINAL and key not in self._asked
        if self.children.is_stopping or is_final:
            return
        crashed = message.reason.startswith(("crash", "killed"))
        is_stale = message.reason == "not started: stale_master"  # that is a crash, in the original
        if not (crashed or is_stale or self._rules.looks_at_orderly_ends):
            return
        if not crashed:
            log.warning("%s: its process ended: %s", log_lines.queue_of(key), message.reason)
            self._retry(key)
        else:
            self._child_crashed(sup, message)

    def _child_crashed(self, sup: QueueSup, message: Down) -> None:
        here, row = self.runtime.node, rows.read_any(self._metadata, sup.key)
        child = sup.key if row is None else sup.child_line(row)
        log.error(log_lines.child_ended(sup.name, child, message.pid, message.reason, here))
        if sup.crashed(self._context.env.clock.monotonic_ns()):
            self.children.restarting[sup.key] = sup
            self._retry(sup.key)
            return
        log.error(log_lines.gave_up(sup.name, child, message.pid, here))
        self._background(sup.key, lambda tx: rows.mark_ended(tx, sup.key, message.pid, "crashed"))

    def _tell_started(self, sup: QueueSup, start: Start) -> None:
        here = self.runtime.node
        if isinstance(start, MirrorStart) and start.caller is None:
            log.info(log_lines.adding_mirror(sup.key, here, sup.child, here))
        row = (
            start.row if isinstance(start, DeclareStart) else rows.read_any(self._metadata, sup.key)
        )
        if row is not None and log.isEnabledFor(logging.DEBUG):
            log.debug(log_lines.started_child(sup.name, sup.child_line(row), sup.child, here))

    def _retry(self, key: str) -> None:
        if key not in self._retries:
            self._retries[key] = None
            self.after(RETRY_MS, Reconsider(key))

    def _consider(self, key: str) -> None:
        """Start what belongs here, if anything."""
        if key in self.children.by_key or self.children.is_stopping:
            return
        live, durable = rows.read(self._metadata, key), rows.read_durable(self._metadata, key)
        is_alive, choose = self._liveness.is_alive, self._context.env.choose_index
        decision = policy.decide(live, durable, self.runtime.node, is_alive, choose)
        match decision:
            case "master":
                row = live if live is not None else durable
                assert row is not None
                stale = None if self._rules.recovers_current_row else row
                if key in self.children.restarting:
                    log.error(log_lines.restarting(key))
                self._spawn(key, RecoverStart(row.pid, stale))
            case "mirror" if key in self._masters_only:
                pass
            case "mirror":
                self._spawn(key, MirrorStart(None))
            case "wait":
                assert live is not None
                self._liveness.watch(live.slave_pids)
                self._retry(key)

    def _members_are(self, nodes: tuple[str, ...]) -> None:
        came = [node for node in nodes if node not in (*self._members, self.runtime.node)]
        self._members = nodes
        for node in came:
            # It may have seen us before we saw it: when our masters asked for mirrors, not it.
            self.runtime.send(Name(node, SUPERVISOR), LookAgain(self.runtime.node))
            self._look_again(node)

    def _look_again(self, node: str) -> None:
        """``node`` is in sight, and with it its masters, and mirrors that may be promoted.

        All queues are looked at, not its own alone: while views differed this node may have lost
        a mirror of a master that it saw all the time, and nothing else would ask for it again.
        """
        if not self._rules.looks_at_orderly_ends:
            return
        log.debug("%s came into sight: looking again", node)
        for key, _ in self._metadata.rows(rows.QUEUE):
            self._consider(key)

    # -- the tables --------------------------------------------------------------------------------

    def _known_keys(self) -> list[str]:
        tables = (self._metadata.rows(rows.DURABLE), self._metadata.rows(rows.QUEUE))
        return sorted(dict.fromkeys(key for table in tables for key, _ in table))

    def _changed(self, table: str, key: str) -> None:
        if table == rows.QUEUE and log.isEnabledFor(logging.DEBUG):
            self._tell_written(key)
        if table in POLICIES:
            for pid in self.children.keys:
                self.runtime.send(pid, UpdateMirroring())
        elif table == rows.QUEUE and key in self.children.by_key:
            child, process = self.children.by_key[key], self.children.process_of(key)
            row = rows.read(self._metadata, key)
            is_mirror = process is not None and isinstance(process.role, Mirror)
            has_place = row is not None and child in (row.pid, *row.slave_pids)
            if (is_mirror and has_place) or (not has_place and self._rules.tells_displaced):
                self.runtime.send(child, UpdateMirroring())

    def _tell_written(self, key: str) -> None:
        row = rows.read(self._metadata, key)
        if row is not None:
            log.debug(log_lines.row_written(row, self.runtime.node))

    def _forget_dead_masters(self) -> None:
        """Queues without mirrors whose master's node is gone: down if durable, else deleted."""
        running = self._metadata.running_nodes()
        for key, row in self._metadata.rows(rows.QUEUE):
            assert isinstance(row, QueueRow)
            dead = row.pid
            gone = dead is not None and dead.node not in running
            if dead is not None and gone and not row.slave_pids and not policy.is_mirrored(row):
                self._background(key, partial(rows.forget_live, key=key, dead=dead))

    def _background(self, key: str, body: Callable[[Transaction], object]) -> None:
        self._writes.start(self._write(key, body))

    async def _write(self, key: str, body: Callable[[Transaction], object]) -> None:
        try:
            await self._metadata.transact(body)
        except MetadataUnavailable as error:
            log.warning("queue '%s': %s", key, error)


class Liveness:
    """Which processes live, as far as this node can tell."""

    def __init__(self, supervisor: Process, metadata: Metadata) -> None:
        self._supervisor = supervisor
        self._metadata = metadata
        # Processes elsewhere that a decision waits for, by monitor; and those of them that were
        # found dead.
        self._watched: dict[Pid, int] = {}
        self._dead: dict[Pid, None] = {}

    def is_alive(self, pid: Pid) -> bool:
        """Whether its node shares the tables, and it was not found dead."""
        runtime = self._supervisor.runtime
        if pid.node != runtime.node and pid.node not in self._metadata.running_nodes():
            return False
        return pid not in self._dead and runtime.is_alive(pid)

    def watch(self, mirrors: tuple[Pid, ...]) -> None:
        """A node may live on without the process that the row names: only a monitor can tell."""
        runtime = self._supervisor.runtime
        for pid in mirrors:
            if pid.node != runtime.node and pid not in self._watched:
                self._watched[pid] = runtime.monitor(pid, self._supervisor.pid)

    def took(self, message: Down) -> bool:
        """Whether ``message`` is of a process that is watched."""
        if self._watched.get(message.pid) != message.ref:
            return False
        del self._watched[message.pid]
        if message.reason != "noconnection":
            self._dead[message.pid] = None
        return True
