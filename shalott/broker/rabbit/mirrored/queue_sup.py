"""QueueSup: the supervisor of one process of one queue on one node (rabbit_amqqueue_sup).

The tree is that of the original: the node's QueueSupervisor (rabbit_amqqueue_sup_sup) has one of
these for each queue process that it was asked to start, and one of these has one child, which it
starts again when it crashed: five times in ten seconds. Beyond that it gives up and is gone
(its parent's children are temporary): the queue's state is ``crashed``, and nobody else is touched.
Whether the child is new or comes again after a crash is told by the marker, a process that ends as
soon as the first start is over (rabbit_prequeue.erl).

It has no mailbox of its own: what it does is a part of a turn of its parent, so that two can't
differ on what a queue has on this node.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import log_lines
from shalott.broker.rabbit.mirrored.modes import DeclareStart, MirrorStart, Start
from shalott.broker.rabbit.processes.messages import Pid

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
