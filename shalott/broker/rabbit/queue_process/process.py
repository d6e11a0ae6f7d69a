"""QueueProcess: one process of one queue on one node, first a starter, then its master or a mirror.

It is the mailbox: each message goes to the step that knows it, and clients' messages wait while the
queue serves no client. What the process knows is in state.py, what it may do to the world in
queue_shell.py; what the queue holds is in master.py and mirror.py, which never wait.

A transaction on the queue's row is awaited inside a handler: the mailbox waits with it, as the
original's does. Nothing here ever awaits another queue process.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from shalott.broker.base.env import pause_ms
from shalott.broker.rabbit.amqp.queue_protocol import Delete, Get, Inspect, Publish, Settle, Stat
from shalott.broker.rabbit.mirrored.messages import (
    AutoSync,
    Claim,
    Claimed,
    CountOperations,
    DurableAdvanced,
    JoinRing,
    LookRing,
    ReadOn,
    SenderDeathTimer,
    Start,
    StopNow,
    StopProcess,
    StopTimeout,
    UpdateMirroring,
)
from shalott.broker.rabbit.processes.messages import Down, Failed, Message, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller, Envelope
from shalott.broker.rabbit.queue_process import (
    ending,
    mirroring,
    ring_events,
    roles,
    starting,
    syncing,
)
from shalott.broker.rabbit.queue_process import inspection as looks
from shalott.broker.rabbit.queue_process import ring_events as promotion
from shalott.broker.rabbit.queue_process.inspection import inspect
from shalott.broker.rabbit.queue_process.queue_shell import QueueShell
from shalott.broker.rabbit.queue_process.state import Identity, QueueContext, QueueState
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror

CONFIRM_LATE_MS = 20

_CLIENTS = (Publish, Settle)  # what channels send and want no answer to
_STOPS = (StopNow, StopProcess)


class QueueProcess(Process):
    """``state`` and ``shell`` are public for looks only: the steps alone change what is in them."""

    def __init__(self, context: QueueContext, key: str, start: Start) -> None:
        super().__init__()
        self.state = QueueState(Identity(key, start))
        self.shell = QueueShell(context, self.state, self)
        self._stash: deque[Message | tuple[Message, Caller]] = deque()
        self.has_started = asyncio.Event()  # or has ended

    @property
    def role(self) -> Master | Mirror | None:
        return self.state.role

    def claim(self) -> Claimed:
        """What this process believes to be."""
        return self.state.claim()

    # -- Process -----------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self.has_started.set()
            self.shell.tasks.cancel()

    async def started(self) -> None:
        await starting.start(self.state, self.shell)
        self.has_started.set()
        await self._after_message()

    async def handle(self, message: Message) -> None:
        gm = self.state.ring.gm
        if isinstance(message, _CLIENTS):  # first, as most messages are either these or the ring's
            if self.state.is_blocked:
                self._stash.append(message)
                return
            await self._handle_read(message)
        elif gm is not None and gm.handle(message):
            pass
        elif isinstance(message, Down):
            await self._down(message)
        elif not await self._handle_own(message):
            if self.state.is_blocked:
                self._stash.append(message)
                return
            self._handle_in_role(message)
        await self._after_message()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        state, answer = self.state, None
        match request:
            case JoinRing():
                if state.ring.gm is None:
                    return Failed("not_ready")
                state.ring.gm.handle_join(request, caller)
            case Claim():
                return state.claim()
            case LookRing():
                return looks.look_ring(state)
            case CountOperations():
                return looks.count_operations(state)
            case Stat() if isinstance(state.role, Master):
                if caller.pid is not None:  # a channel declares the queue; others only look
                    state.role.limits.touch()
                return state.role.stats(state.activity)
            case Inspect() if isinstance(state.role, Master):
                return self._inspected(state.role)
            case _:
                answer = syncing.handle_call(state, self.shell, request)
                if answer is None and (state.role is None or state.is_blocked):
                    self._stash.append((request, caller))
                elif answer is None:
                    answer = await self._call_role(request, caller)
        if answer is not None:
            caller.reply(answer)  # now: what follows may end this process
        await self._after_message()
        return None

    def _inspected(self, master: Master) -> Message:
        row, stats = self.shell.row(), master.stats(self.state.activity)
        if row is None:
            return stats
        detail = inspect(master, row, self.state.activity, self.shell.monitors.users)
        return msgspec.structs.replace(stats, detail=detail)

    async def idle(self) -> None:
        env, role, gm = self.shell.env, self.state.role, self.state.ring.gm
        if env.buggify("confirm.late"):  # a process may get its turn late
            await pause_ms(env.rng.random() * CONFIRM_LATE_MS)
        if role is not None and role.confirms.outbox.size:
            role.confirms.flush()
        # The ring's flush timer sends what is not sent here.
        if gm is not None and not env.buggify("gm.flush_late"):
            gm.idle()

    async def stopping(self, reason: str) -> None:
        await ending.stopped(self.state, self.shell, reason)

    def deliver(self, item: Message | Envelope) -> None:
        """Stops are noticed at once: a handler may be waiting for a transaction."""
        if isinstance(item, _STOPS):
            if isinstance(item, StopNow):
                self.shell.transactions.end_grace()
            elif item.reason == "shutdown":
                self.shell.transactions.start_grace()
        Process.deliver(self, item)

    def describe(self) -> str:
        return f"the process of queue '{self.state.key}'"

    # -- dispatch ----------------------------------------------------------------------------------

    async def _handle_own(self, message: Message) -> bool:
        """Whether ``message`` was for the process itself, in any role."""
        state, shell = self.state, self.shell
        match message:
            case DurableAdvanced():
                roles.durable_advanced(state)
            case StopProcess(reason):
                await ending.stop(state, shell, reason)
            case StopTimeout():
                await ending.stop_timed_out(state, shell)
            case StopNow() | ReadOn():
                pass
            case UpdateMirroring():
                await mirroring.update(state, shell)
            case AutoSync(mirror):
                syncing.maybe_auto_sync(state, shell, mirror)
            case SenderDeathTimer(channel):
                if isinstance(state.role, Mirror):
                    state.role.confirms.remind_master(channel)
            case _:
                return syncing.handle(state, shell, message)
        return True

    async def _handle_read(self, message: Message) -> None:
        """What it needs of the disk is read first."""
        master = self.state.role
        if isinstance(master, Master) and (ids := master.unread(message)):
            unacked = master.queue.messages.unacked_among(ids)
            await self.shell.reading(master.queue.ahead.load(unacked))
        self._handle_in_role(message)

    def _handle_in_role(self, message: Message) -> None:
        match self.state.role:
            case Master() as master:
                master.handle(message)
            case Mirror() as mirror:
                if isinstance(message, Publish):
                    mirror.confirms.publish(message)

    async def _call_role(self, request: Message, caller: Caller) -> Message | None:
        master = self.state.role
        if not isinstance(master, Master):
            return Failed("noproc")  # the caller's row is old: let it look again
        if isinstance(request, Delete):
            return await ending.delete(self.state, self.shell, request, caller)
        answer = master.handle_call(request)
        while answer is None and master.queue.messages.is_head_away and isinstance(request, Get):
            await self.shell.reading(master.queue.ahead.read())
            answer = master.handle_call(request)
        if answer is None:
            return Failed("unsupported", type(request).__name__)
        if master.is_deletable:  # its last consumer was cancelled
            master.is_deletable = False
            await ending.delete_unused(self.state, self.shell, lambda: caller.reply(answer))
            return None
        return answer

    async def _down(self, message: Down) -> None:
        match self.shell.monitors.take(message):
            case "peer":
                await self._peer_down(message.pid)
            case "user" if self.state.is_blocked:
                # Not before what it sent: its acknowledgements would come too late, and what it
                # acknowledged would be given to another consumer.
                self._stash.append(message)
            case "user":
                self._user_down(message.pid)

    def _user_down(self, pid: Pid) -> None:
        match self.state.role:
            case Master() as master:
                master.process_down(pid)
            case Mirror() as mirror:
                mirror.confirms.channel_down(pid)

    async def _peer_down(self, pid: Pid) -> None:
        state, shell = self.state, self.shell
        await ending.mirror_stopped(state, shell, pid)
        syncing.peer_down(state, shell, pid)
        if isinstance(state.role, Mirror) and pid == state.role.master:
            await promotion.master_down(state, shell, pid)

    # -- what a message left to do -----------------------------------------------------------------

    async def _after_message(self) -> None:
        """Ring events, flags of the role, what was stashed."""
        # Asked here whether there is anything to do: mostly there is not, and a coroutine that does
        # nothing costs as much as many a message.
        state, ring = self.state, self.state.ring
        while True:
            if ring.gm is not None and ring.gm.events:
                await ring_events.take_all(state, self.shell)
            if not ring.depth_requested:
                ring_events.request_depth(state, self.shell)
            if state.role is not None and state.role.has_flags:
                await self._act_on_flags()
            if not self._stash or state.is_blocked:
                return
            await self._unstash(self._stash.popleft())

    async def _unstash(self, item: Message | tuple[Message, Caller]) -> None:
        if isinstance(item, Down):
            self._user_down(item.pid)
            return
        if isinstance(item, Message):
            await self._handle_read(item)
            return
        request, caller = item
        answer = await self._call_role(request, caller)
        if answer is not None:
            caller.reply(answer)

    async def _act_on_flags(self) -> None:
        match self.state.role:
            case Mirror():
                await syncing.record_synchronised(self.state, self.shell)
            case Master() as master if master.is_deletable or master.limits.is_unused:
                master.is_deletable = master.limits.is_unused = False
                await ending.delete_unused(self.state, self.shell)
            case Master() as master if not self.state.is_blocked:
                await self.shell.reading(master.queue.ahead.read())
                master.go_on()
                if master.waits_for_head:  # others have their turn first
                    self.deliver(ReadOn())
