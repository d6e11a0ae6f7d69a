"""Children: the queue processes of one node, each with the supervisor that it has.

The tree is RabbitMQ's: the node's QueueSupervisor (rabbit_amqqueue_sup_sup) has a QueueSup
(rabbit_amqqueue_sup) for each queue process that it was asked to start, and that has one child,
which it starts again when it crashed: five times in ten seconds. Beyond that it gives up and is
gone (its parent's children are temporary): the queue's state is ``crashed``, and no other is
touched. Whether the child is new or comes again after a crash is told by the marker, a process that
ends as soon as the first start is over (rabbit_prequeue.erl).

A QueueSup has no mailbox of its own: what it does is a part of a turn of its parent, so that two
can't differ on what a queue has on this node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import log_lines
from shalott.broker.rabbit.mirrored.messages import (
    Claimed,
    DeclareStart,
    MirrorStart,
    Start,
    StopProcess,
)
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.queue_process.process import QueueProcess

log = logging.getLogger("shalott.broker.mirrored")

RESTARTS_MAX = 5
RESTARTS_WINDOW_MS = 10_000

Life = Literal["running", "restarting", "gone"]


@dataclass(slots=True)
class QueueSup:
    """``child``: the process that it has, or had last. ``is_marked``: the marker lives."""

    key: str
    first: Start
    child: Pid
    life: Life = "running"
    is_marked: bool = True
    restarts_ns: deque[int] = field(default_factory=deque)
    serial: int = 0  # of its first child: what its own pid is made of

    def __post_init__(self) -> None:
        self.serial = self.child.serial

    @property
    def mode(self) -> str:
        """What the child is started for, as rabbit_prequeue calls it."""
        if isinstance(self.first, MirrorStart):
            return "slave"
        return "declare" if isinstance(self.first, DeclareStart) else "recovery"

    @property
    def name(self) -> str:
        return f"<0.{self.serial}.1>"

    @property
    def marker(self) -> str:
        return f"<0.{self.serial}.2>"

    def started_again(self, child: Pid) -> None:
        self.child, self.life, self.is_marked = child, "running", False

    def crashed(self, now_ns: int) -> bool:
        """Its child did. Returns whether it starts it again; else it is gone."""
        recent = self.restarts_ns
        while recent and now_ns - recent[0] > RESTARTS_WINDOW_MS * 1_000_000:
            recent.popleft()
        recent.append(now_ns)
        self.life = "restarting" if len(recent) <= RESTARTS_MAX else "gone"
        return self.life == "restarting"

    def child_line(self, row: QueueRow) -> str:
        """Its child, as its lines in the log name it."""
        return log_lines.child(row, self.mode, self.marker, self.child.node)


def is_asked_for(start: Start) -> bool:
    """By a master elsewhere: a supervisor of its own, in place of one that was there."""
    return isinstance(start, MirrorStart) and start.caller is not None


class Children:
    """Of ``parent``, the node's QueueSupervisor."""

    def __init__(self, parent: Process) -> None:
        self.by_key: dict[str, Pid] = {}
        self.keys: dict[Pid, str] = {}
        self.restarting: dict[str, QueueSup] = {}  # those whose child crashed
        self.is_stopping = False
        self._parent = parent
        self._sups: dict[Pid, QueueSup] = {}  # by the child that each has
        self._empty = asyncio.Event()
        self._empty.set()

    def started(self, key: str, pid: Pid, start: Start) -> QueueSup:
        """A process was spawned."""
        sup = self.restarting.pop(key, None)
        if sup is None or isinstance(start, DeclareStart) or is_asked_for(start):
            sup = QueueSup(key, start, pid)
        else:
            sup.started_again(pid)
        self._sups[pid] = sup
        self.by_key[key] = pid
        self.keys[pid] = key
        self._empty.clear()
        return sup

    def ended(self, pid: Pid) -> QueueSup | None:
        """A process has ended; the supervisor that it had."""
        key, sup = self.keys.pop(pid, None), self._sups.pop(pid, None)
        if key is None or sup is None:
            return None
        sup.life = "gone"  # unless it starts its child again
        if self.by_key.get(key) == pid:
            del self.by_key[key]
        if not self.keys:
            self._empty.set()
        return sup

    async def stop_all(self, timeout_ms: float) -> None:
        """An orderly end of every queue process; those that take too long are killed."""
        runtime = self._parent.runtime
        self.is_stopping = True
        for pid in self.keys:
            runtime.send(pid, StopProcess("shutdown"))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._empty.wait()
        except TimeoutError:
            log.warning("%d queue processes did not end in time", len(self.keys))
        for pid in list(self.keys):
            await runtime.kill(pid)

    # -- for read-only looks -----------------------------------------------------------------------

    def process_of(self, key: str) -> QueueProcess | None:
        """The process of a queue on this node."""
        pid = self.by_key.get(key)
        process = None if pid is None else self._parent.runtime.process(pid)
        return process if isinstance(process, QueueProcess) else None

    def tree(self) -> dict[str, list[QueueSup]]:
        """Key -> the supervisors that it has on this node, the oldest first: one, but for known
        bugs that start a process beside another, and those that are about to start theirs again.
        """
        found: dict[str, list[QueueSup]] = {}
        for sup in (*self._sups.values(), *self.restarting.values()):
            found.setdefault(sup.key, []).append(sup)
        return found

    def claims(self) -> list[Claimed]:
        """What the processes of this node believe to be, by queue."""
        processes = (self.process_of(key) for key in sorted(self.by_key))
        return [process.claim() for process in processes if process is not None]
