"""QueueProcess: one process of one queue on one node, first a starter, then its master or a mirror.

This is the shell: the mailbox, the ring, monitors, metadata transactions, events. What the queue
does is in master.py and mirror.py, which never wait; how a process starts, is promoted,
synchronises and ends is in starting.py, promotion.py, syncing.py and ending.py.

A transaction on the queue's row is awaited inside a handler: the mailbox waits with it, as the
original's does. Nothing here ever awaits another queue process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import MetadataUnavailable, StorageError
from shalott.broker.rabbit.amqp.queue_protocol import Delete, Publish, Settle, Stat
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import Metadata, Transaction
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import ending, gm, promotion, rows, starting, syncing
from shalott.broker.rabbit.mirrored import instructions as ins
from shalott.broker.rabbit.mirrored.gm_shell import GmShell
from shalott.broker.rabbit.mirrored.limits import DeadLetter
from shalott.broker.rabbit.mirrored.master import Master
from shalott.broker.rabbit.mirrored.messages import (
    AutoSync,
    Claim,
    Claimed,
    DurableAdvanced,
    JoinRing,
    SenderDeathTimer,
    StopNow,
    StopProcess,
    StopTimeout,
    UpdateMirroring,
)
from shalott.broker.rabbit.mirrored.mirror import Mirror
from shalott.broker.rabbit.mirrored.modes import Start
from shalott.broker.rabbit.mirrored.storage import QueueStorage
from shalott.broker.rabbit.mirrored.sync import MasterSync
from shalott.broker.rabbit.processes.messages import Address, Down, Failed, Message, Pid
from shalott.broker.rabbit.processes.process import Caller, Envelope, Process

log = logging.getLogger("shalott.broker.mirrored")

CONFIRM_LATE_MS = 20

T = TypeVar("T")
RETRY_MS = 25
_CLIENTS = (Publish, Settle)  # what channels send and want no answer to
_STOPS = (StopNow, StopProcess)
# How long a transaction may still take when the node stops.
STOP_GRACE_MS = 1000


@dataclass(frozen=True)
class QueueContext:
    """What all queue processes of a node share."""

    env: Env
    config: NodeConfig
    metadata: Metadata
    storage: QueueStorage
    dead_letters: Callable[[QueueRow], DeadLetter] | None = None
    fail: Callable[[str], None] | None = None  # the disk failed: the node can't go on
    restarted: bool = False  # not the node's first broker since its process began


class QueueProcess(Process):
    def __init__(self, context: QueueContext, key: str, start: Start) -> None:
        super().__init__()
        self.context = context
        self.env = context.env
        self.config = context.config
        self.metadata = context.metadata
        self.key = key
        self.start = start
        self.role: Master | Mirror | None = None
        self.gm: GmShell | None = None
        self.epoch = 0
        self.declared: QueueRow | None = None  # the row that this process has made
        self.sync: MasterSync | None = None  # as master
        self.mirror_sync: syncing.MirrorSync | None = None  # as mirror
        self.sync_again = False
        self.depth_requested = False
        self.known_dead: dict[Pid, None] = {}  # processes of this queue
        self.new_mirrors: dict[Pid, None] = {}  # which the row, as we see it, may not name yet
        self.stopping_mirrors: ending.Stopping | None = None
        self.is_deleting = False
        self._monitors: dict[Pid, int] = {}
        self._peers: dict[Pid, int] = {}
        self._stash: deque[Message | tuple[Message, Caller]] = deque()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._durable_told = False
        self._must_stop = asyncio.Event()

    # -- Process -----------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for task in list(self._tasks):
                task.cancel()

    async def started(self) -> None:
        await starting.start(self)
        await self.after_message()

    async def handle(self, message: Message) -> None:
        if isinstance(message, _CLIENTS):  # first, as most messages are either these or the ring's
            if self.is_blocked:
                self._stash.append(message)
                return
            self._handle_in_role(message)
        elif self.gm is not None and self.gm.handle(message):
            pass
        elif isinstance(message, Down):
            await self._down(message)
        elif not await self._handle_own(message):
            if self.is_blocked:
                self._stash.append(message)
                return
            self._handle_in_role(message)
        await self.after_message()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        answer: Message | None = None
        match request:
            case JoinRing():
                if self.gm is None:
                    return Failed("not_ready")
                self.gm.handle_join(request, caller)
            case Claim():
                return self.claim()
            case Stat() if isinstance(self.role, Master):
                if caller.pid is not None:  # a channel declares the queue; others only look
                    self.role.limits.touch()
                return self.role.stats(self.state)
            case _:
                answer = await syncing.handle_call(self, request)
                if answer is None and (self.role is None or self.is_blocked):
                    self._stash.append((request, caller))
                elif answer is None:
                    answer = await self._call_role(request, caller)
        if answer is not None:
            caller.reply(answer)  # now: what follows may end this process
        await self.after_message()
        return None

    async def idle(self) -> None:
        if self.env.buggify("confirm.late"):  # a process may get its turn late
            await pause_ms(self.env.rng.random() * CONFIRM_LATE_MS)
        if self.role is not None and self.role.outbox.size:
            self.role.flush()
        # The ring's flush timer sends what is not sent here.
        if self.gm is not None and not self.env.buggify("gm.flush_late"):
            self.gm.idle()

    async def stopping(self, reason: str) -> None:
        await ending.stopped(self, reason)

    # -- dispatch ----------------------------------------------------------------------------------

    async def _handle_own(self, message: Message) -> bool:
        match message:
            case DurableAdvanced():
                self._durable_told = False
                if self.role is not None:
                    self.role.durable_advanced()
            case StopProcess(reason):
                await ending.stop(self, reason)
            case StopTimeout():
                await ending.stop_timed_out(self)
            case StopNow():
                pass
            case UpdateMirroring():
                await starting.update_mirroring(self)
            case AutoSync(mirror):
                syncing.maybe_auto_sync(self, mirror)
            case SenderDeathTimer(channel):
                if isinstance(self.role, Mirror):
                    self.role.remind_master(channel)
            case _:
                return await syncing.handle(self, message)
        return True

    def _handle_in_role(self, message: Message) -> None:
        match self.role:
            case Master():
                self.role.handle(message)
            case Mirror():
                if isinstance(message, Publish):
                    self.role.publish(message)

    async def _call_role(self, request: Message, caller: Caller) -> Message | None:
        if not isinstance(self.role, Master):
            return Failed("noproc")  # the caller's row is old: let it look again
        if isinstance(request, Delete):
            return await ending.delete(self, request, caller)
        answer = self.role.handle_call(request)
        if answer is None:
            return Failed("unsupported", type(request).__name__)
        if self.role.is_deletable:  # its last consumer was cancelled
            self.role.is_deletable = False
            await ending.delete_unused(self, lambda: caller.reply(answer))
            return None
        return answer

    @property
    def is_blocked(self) -> bool:
        """Whether clients must wait."""
        if self.role is None or self.is_deleting or self.stopping_mirrors is not None:
            return True
        if self.sync is not None or self.mirror_sync is not None:
            return True
        # A master's first words in a ring that it is still joining would be lost.
        return isinstance(self.role, Master) and self.gm is not None and not self.gm.is_ready

    @property
    def state(self) -> str:
        return "syncing" if self.sync is not None or self.mirror_sync is not None else "running"

    async def after_message(self) -> None:
        """What a handler left to do: ring events, flags of the role, what was stashed."""
        # Asked here whether there is anything to do: mostly there is not, and a coroutine that does
        # nothing costs as much as many a message.
        while True:
            if self.gm is not None and self.gm.events:
                await self._pump()
            if not self.depth_requested:
                await starting.request_depth(self)
            if self.role is not None and self.role.has_flags:
                await self._act_on_flags()
            if not self._stash or self.is_blocked:
                return
            await self._unstash(self._stash.popleft())

    async def _unstash(self, item: Message | tuple[Message, Caller]) -> None:
        if isinstance(item, Message):
            self._handle_in_role(item)
            return
        request, caller = item
        answer = await self._call_role(request, caller)
        if answer is not None:
            caller.reply(answer)

    async def _act_on_flags(self) -> None:
        match self.role:
            case Mirror() if self.role.has_flags:
                await syncing.record_synchronised(self)
            case Master() if self.role.is_deletable or self.role.limits.is_unused:
                self.role.is_deletable = self.role.limits.is_unused = False
                await ending.delete_unused(self)

    # -- the ring ----------------------------------------------------------------------------------

    def join_ring(self) -> None:
        self.gm = GmShell(self, self.env, self.metadata, self.key)
        self.gm.feed(gm.Join())

    async def _pump(self) -> None:
        """Look at what the ring brought. A mirror that is being synchronised waits with it."""
        while self.gm is not None and self.gm.events and self.mirror_sync is None:
            event = self.gm.events.popleft()
            match event:
                case gm.Joined():
                    await starting.joined(self)
                case gm.Deliver(origin, payload):
                    if origin != self.pid:
                        instruction = ins.CODEC.decode(payload)
                        assert isinstance(instruction, ins.Instruction)
                        if isinstance(self.role, Mirror) and isinstance(instruction, ins.CONTENTS):
                            self.role.apply(instruction)
                        else:
                            await self._hear(instruction)
                case gm.Confirmed(token, ok):
                    if ok and isinstance(self.role, Master):
                        self.role.ring_has(token)
                case gm.MembersChanged(_, deaths):
                    for pid in deaths:
                        self.new_mirrors.pop(pid, None)
                    if deaths:
                        await promotion.members_died(self, deaths)
                case gm.Stopped(reason):
                    await ending.ring_stopped(self, reason)

    async def _hear(self, instruction: ins.Instruction) -> None:
        match instruction, self.role:
            case ins.DeleteAndTerminate(), _:
                await ending.ring_deleted(self)
            case ins.SyncStart(), Mirror():
                syncing.mirror_starts(self, instruction)
            case ins.RequestDepth(mirror), Master():
                self.new_mirrors[mirror] = None
                # KB-RMQ-08: it answered without a look at the row.
                is_blind = self.env.has_bug("KB-RMQ-08")
                if is_blind or not await self.guard_master(stops_mirrors=True):
                    self.role.hear(instruction)
            case _, Master():
                self.role.hear(instruction)
            case _, Mirror():
                self.role.apply(instruction)

    async def guard_master(self, *, stops_mirrors: bool = False) -> bool:
        """Two processes of a queue may both be promoted in a partition. Who finds another one
        recorded as master ends, as "shutdown" and not as "normal", which would look as if the queue
        were deleted (rmq#914, rmq#953).

        Returns whether this process is not the master. Then it has ended, but for the known bugs.
        """
        row = self.row()
        if row is None or row.pid == self.pid:
            return False
        log.warning("queue '%s': %s is recorded as master, this process ends", self.key, row.pid)
        self.emit("demoted", master=str(row.pid), reason="another master is recorded")
        if self.env.has_bug("KB-RMQ-11"):
            # KB-RMQ-11: it ended with "normal", the reason of a queue that was deleted.
            await ending.end_as_deleted(self, row)
            return True
        if stops_mirrors and self.env.has_bug("KB-RMQ-02"):
            # KB-RMQ-02: a master that ends stops every mirror in the row, whoever's they are, if
            # none of them is synchronised (rabbit_mirror_queue_master:terminate).
            await ending.stop(self, "shutdown")
            return True
        self.exit("shutdown")
        raise AssertionError("unreachable")

    # -- monitors ----------------------------------------------------------------------------------

    async def _down(self, message: Down) -> None:
        if self._peers.get(message.pid) == message.ref:
            del self._peers[message.pid]
            await self._peer_down(message.pid)
        elif self._monitors.get(message.pid) == message.ref:
            del self._monitors[message.pid]
            match self.role:
                case Master():
                    self.role.process_down(message.pid)
                case Mirror():
                    self.role.channel_down(message.pid)

    async def _peer_down(self, pid: Pid) -> None:
        if self.stopping_mirrors is not None:
            await ending.mirror_stopped(self, pid)
        if self.sync is not None:
            self.sync.process_down(pid)
        if isinstance(self.role, Mirror):
            syncing.syncer_down(self, pid)
            if pid == self.role.master:
                await promotion.master_down(self, pid)

    # -- Shell -------------------------------------------------------------------------------------

    def row(self) -> QueueRow | None:
        row = self.metadata.read(rows.QUEUE, self.key)
        assert row is None or isinstance(row, QueueRow)
        return row

    def send(self, to: Address, message: Message) -> None:
        self.runtime.send(to, message)

    def broadcast(self, instruction: ins.Instruction) -> None:
        if self.gm is not None:
            self.gm.feed(gm.Broadcast(ins.CODEC.encode(instruction)))

    def broadcast_confirmed(self, instruction: ins.Instruction, message_id: int) -> None:
        assert self.gm is not None
        self.gm.feed(gm.ConfirmedBroadcast(ins.CODEC.encode(instruction), message_id))

    def ring_mark(self) -> int:
        return 0 if self.gm is None else self.gm.member.published

    def ring_is_home(self, mark: int) -> bool:
        return self.gm is None or self.gm.member.is_home(mark)

    def mirrors(self) -> tuple[Pid, ...]:
        row = self.row()
        recorded = () if row is None else row.slave_pids
        return (*recorded, *(pid for pid in self.new_mirrors if pid not in recorded))

    def monitor(self, pid: Pid) -> None:
        if pid not in self._monitors:
            self._monitors[pid] = self.runtime.monitor(pid, self.pid)

    def demonitor(self, pid: Pid) -> None:
        ref = self._monitors.pop(pid, None)
        if ref is not None:
            self.runtime.demonitor(ref)

    def monitor_peer(self, pid: Pid) -> None:
        if pid not in self._peers:
            self._peers[pid] = self.runtime.monitor(pid, self.pid)

    def emit(self, kind: str, **detail: Any) -> None:
        role = "none" if self.role is None else self.role.role
        self.env.events.emit(
            group_of(self.key), kind, role=role, epoch=self.epoch, detail=detail or None
        )

    # -- for the parts -----------------------------------------------------------------------------

    async def transact(self, body: Callable[[Transaction], T], *, confirmed: bool = False) -> T:
        """Try until there is a leader to write through. Then the row is as new as what was written.

        A node that is cut off from the leader can still stop: its processes end where they stand.
        """
        return await self._unless_stopped(self._transact(body, confirmed))

    async def transact_once(self, body: Callable[[Transaction], T]) -> T:
        """The same, but never written twice. Raises MetadataUnavailable: it may be done or not."""
        return await self._unless_stopped(self.metadata.transact(body, once=True))

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        attempt = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._must_stop.wait())
        try:
            await asyncio.wait([attempt, stop], return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                return attempt.result()
        finally:
            attempt.cancel()
            stop.cancel()
        self.exit("shutdown")
        raise AssertionError("unreachable")

    async def _transact(self, body: Callable[[Transaction], T], confirmed: bool) -> T:
        while True:
            try:
                return await self.metadata.transact(body, confirmed=confirmed)
            except MetadataUnavailable as error:
                log.warning("queue '%s': %s", self.key, error)
                await pause_ms(RETRY_MS)

    def renew_grace(self) -> None:
        """The stop began long ago, and a transaction is still to be made."""
        self._must_stop.clear()
        self.after(STOP_GRACE_MS, StopNow())

    def deliver(self, item: Message | Envelope[Message]) -> None:
        if isinstance(item, _STOPS):
            if isinstance(item, StopNow):
                self._must_stop.set()
            elif item.reason == "shutdown":
                self.after(STOP_GRACE_MS, StopNow())
        Process.deliver(self, item)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run beside the mailbox, no longer than the process."""
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("queue '%s': %r", self.key, error)
            self.deliver(StopProcess(f"crash: {type(error).__name__}: {error}"))

    def take_role(self, role: Master | Mirror, **detail: Any) -> None:
        self.role = role
        self.epoch = self.metadata.version(rows.QUEUE, self.key)
        role.queue.on_durable(self._on_durable)
        role.queue.on_failure(self._on_storage_failure)
        self.emit("role", **detail)
        if role.queue.durable_mark:
            self._on_durable(role.queue.durable_mark)

    def _on_storage_failure(self, error: StorageError) -> None:
        """Nothing will become durable any more: what was not confirmed must not be."""
        if self.context.fail is not None:
            self.context.fail(f"queue '{self.key}': {type(error).__name__}: {error}")
        self.deliver(StopProcess(f"crash: {type(error).__name__}: {error}"))

    def _on_durable(self, mark: int) -> None:
        if not self._durable_told:
            self._durable_told = True
            self.deliver(DurableAdvanced())

    def describe(self) -> str:
        return f"the process of queue '{self.key}'"

    def claim(self) -> Claimed:
        """What this process believes to be."""
        role = self.role
        ready, unacked = (0, 0) if role is None else (role.queue.ready, role.queue.unacked)
        return Claimed(
            queue=self.key,
            role="starting" if role is None else role.role,
            epoch=self.epoch,
            state=self.state,
            ready=ready,
            unacknowledged=unacked,
            synchronised=isinstance(role, Master) or (role is not None and role.is_synchronised),
            detail={} if self.sync is None else {"sync_messages": self.sync.sent},
        )


def group_of(key: str) -> str:
    """The queue's name in the event log: the harness uses the default vhost only."""
    name, _, vhost = key.rpartition("@")
    return name if vhost == "/" else key
