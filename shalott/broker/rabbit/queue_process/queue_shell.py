"""QueueShell: what the steps of a queue process, its master, its mirror and its ring may do to the
world.

The steps get it beside the state. It decides nothing about the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Literal, NoReturn, Protocol, TypeVar

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import MetadataUnavailable, StorageError
from shalott.broker.base.tasks import Tasks
from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.metadata.api import Metadata, Transaction
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.mirrored.bug_rules import process_rules
from shalott.broker.rabbit.mirrored.messages import StopNow, StopProcess
from shalott.broker.rabbit.processes.messages import Address, Down, Message, Pid
from shalott.broker.rabbit.processes.runtime import ExitProcess, Runtime
from shalott.broker.rabbit.queue_process.state import QueueContext, QueueState
from shalott.broker.rabbit.replica import instructions as ins

T = TypeVar("T")


# -- transactions ----------------------------------------------------------------------------------

# Transactions: how a queue process writes the metadata, and how it stops nevertheless.
#
# A transaction is awaited inside a handler, so the mailbox waits with it. A node that is cut off
# from the leader can still stop: when the grace is over, a process that waits ends where it stands.

RETRY_MS = 25
# How long a transaction may still take when the node stops.
STOP_GRACE_MS = 1000


class Timers(Protocol):
    """Who sends itself StopNow."""

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle: ...


class Transactions:
    """Of one process."""

    def __init__(self, metadata: Metadata, key: str, timers: Timers) -> None:
        self._metadata = metadata
        self._key = key
        self._timers = timers
        self._must_stop = asyncio.Event()

    async def transact(self, body: Callable[[Transaction], T], *, confirmed: bool = False) -> T:
        """Try until there is a leader to write through. Then the row is as new as what was written.

        Raises ExitProcess when the grace is over.
        """
        return await self._unless_stopped(self._transact(body, confirmed))

    async def transact_once(self, body: Callable[[Transaction], T]) -> T:
        """The same, but never written twice. Raises MetadataUnavailable: it may be done or not."""
        return await self._unless_stopped(self._metadata.transact(body, once=True))

    def start_grace(self) -> None:
        """The node stops: what is under way has this long."""
        self._timers.after(STOP_GRACE_MS, StopNow())

    def renew_grace(self) -> None:
        """The stop began long ago, and a transaction is still to be made."""
        self._must_stop.clear()
        self.start_grace()

    def end_grace(self) -> None:
        self._must_stop.set()

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T:
        attempt = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._must_stop.wait())
        try:
            await asyncio.wait([attempt, stop], return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                return attempt.result()
        finally:
            attempt.cancel()
            stop.cancel()
        raise ExitProcess("shutdown")

    async def _transact(self, body: Callable[[Transaction], T], confirmed: bool) -> T:
        while True:
            try:
                return await self._metadata.transact(body, confirmed=confirmed)
            except MetadataUnavailable as error:
                log.warning("queue '%s': %s", self._key, error)
                await pause_ms(RETRY_MS)


log = logging.getLogger("shalott.broker.mirrored")


class Mailbox(Protocol):
    """What the shell needs of its process. ``pid`` and ``runtime`` are set when it is spawned."""

    @property
    def pid(self) -> Pid: ...

    @property
    def runtime(self) -> Runtime: ...

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle: ...

    def deliver(self, item: Message) -> None: ...


class QueueShell:
    """Of one queue process: a Shell for its master or mirror, an Owner for its ring."""

    def __init__(self, context: QueueContext, state: QueueState, mailbox: Mailbox) -> None:
        self.context = context
        self.env = context.env
        self.config = context.config
        self.metadata = context.metadata
        self.key = state.key
        self.rules = process_rules(context.env.has_bug)
        self.monitors = Monitors(mailbox)
        self.transactions = Transactions(context.metadata, state.key, mailbox)
        self._state = state
        self._mailbox = mailbox
        self.tasks = Tasks(self._task_failed)  # no longer than the process

    # -- the process -------------------------------------------------------------------------------

    @property
    def pid(self) -> Pid:
        return self._mailbox.pid

    @property
    def runtime(self) -> Runtime:
        return self._mailbox.runtime

    def exit(self, reason: str) -> NoReturn:
        """End the process now (call from inside a handler). Raises ExitProcess."""
        raise ExitProcess(reason)

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle:
        return self._mailbox.after(delay_ms, message)

    def deliver(self, item: Message) -> None:
        """To the process itself."""
        self._mailbox.deliver(item)

    def _task_failed(self, name: str, error: BaseException) -> None:
        log.error("queue '%s': %r", self.key, error)
        self._crash(error)

    def storage_failed(self, error: StorageError) -> None:
        """Nothing will become durable any more: what was not confirmed must not be."""
        if self.context.fail is not None:
            self.context.fail(f"queue '{self.key}': {type(error).__name__}: {error}")
        self._crash(error)

    async def reading(self, work: Coroutine[object, object, None]) -> None:
        """Wait for the disk, and the mailbox with it. If it can't be read, this process ends."""
        try:
            await work
        except StorageError as error:
            log.error("queue '%s': %s", self.key, error)
            self.exit(f"crash: {type(error).__name__}: {error}")

    def _crash(self, error: BaseException) -> None:
        self.deliver(StopProcess(f"crash: {type(error).__name__}: {error}"))

    # -- others ------------------------------------------------------------------------------------

    def send(self, to: Address, message: Message) -> None:
        self._mailbox.runtime.send(to, message)

    def monitor(self, pid: Pid) -> None:
        self.monitors.add_user(pid)

    def demonitor(self, pid: Pid) -> None:
        self.monitors.drop_user(pid)

    def monitor_peer(self, pid: Pid) -> None:
        self.monitors.add_peer(pid)

    def emit(self, kind: str, **detail: object) -> None:
        self.env.events.emit(
            group_of(self.key),
            kind,
            role=self._state.role_name,
            epoch=self._state.epoch,
            detail=detail or None,
        )

    # -- the row -----------------------------------------------------------------------------------

    def row(self) -> QueueRow | None:
        return rows.read(self.metadata, self.key)

    def mirrors(self) -> tuple[Pid, ...]:
        row = self.row()
        recorded = () if row is None else row.slave_pids
        return (*recorded, *(pid for pid in self._state.ring.new_mirrors if pid not in recorded))

    # -- the ring ----------------------------------------------------------------------------------

    def broadcast(self, instruction: ins.Instruction) -> None:
        if self._state.ring.gm is not None:
            self._state.ring.gm.feed(gm.Broadcast(_told(self, instruction)))

    def broadcast_confirmed(self, instruction: ins.Instruction, message_id: int) -> None:
        assert self._state.ring.gm is not None
        self._state.ring.gm.feed(gm.ConfirmedBroadcast(_told(self, instruction), message_id))

    def mirrors_in_ring(self) -> list[Pid]:
        ring = self._state.ring.gm
        view = None if ring is None else ring.member.ring.view
        alive = () if view is None else [member.pid for member in view.alive()]
        row = self.row()
        recorded = () if row is None else row.slave_pids
        return [pid for pid in recorded if pid in alive]

    def ring_mark(self) -> int:
        ring = self._state.ring.gm
        return 0 if ring is None else ring.member.broadcasts.last

    def ring_is_home(self, mark: int) -> bool:
        ring = self._state.ring.gm
        return ring is None or ring.member.broadcasts.is_home(mark)


def _told(shell: QueueShell, instruction: ins.Instruction) -> bytes:
    payload = ins.CODEC.encode(instruction)
    shell.env.witness("ring.told", shell.pid, payload)
    return payload


def group_of(key: str) -> str:
    """The queue's name in the event log: with its vhost, unless that is the default one."""
    name, _, vhost = key.rpartition("@")
    return name if vhost == "/" else key


# -- monitors --------------------------------------------------------------------------------------

# Monitors: the processes that a queue process watches: its users (channels and owners), and its
# peers (other processes of the queue).
#
# Each is watched once, however often that is asked for, and apart in either part.

Part = Literal["peer", "user"]


class Watcher(Protocol):
    """Who gets the Downs."""

    @property
    def pid(self) -> Pid: ...

    @property
    def runtime(self) -> Runtime: ...


class Monitors:
    """Of one process."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._users: dict[Pid, int] = {}  # -> the monitor's reference
        self._peers: dict[Pid, int] = {}

    @property
    def users(self) -> list[Pid]:
        return list(self._users)

    def add_user(self, pid: Pid) -> None:
        if pid not in self._users:
            self._users[pid] = self._watcher.runtime.monitor(pid, self._watcher.pid)

    def drop_user(self, pid: Pid) -> None:
        ref = self._users.pop(pid, None)
        if ref is not None:
            self._watcher.runtime.demonitor(ref)

    def add_peer(self, pid: Pid) -> None:
        if pid not in self._peers:
            self._peers[pid] = self._watcher.runtime.monitor(pid, self._watcher.pid)

    def take(self, down: Down) -> Part | None:
        """What the process that ended was watched as; None if it is watched no more."""
        if self._peers.get(down.pid) == down.ref:
            del self._peers[down.pid]
            return "peer"
        if self._users.get(down.pid) == down.ref:
            del self._users[down.pid]
            return "user"
        return None
