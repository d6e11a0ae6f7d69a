"""Shell: what a master or a mirror may do to the world, through its queue process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from shalott.broker.base.env import Env
from shalott.broker.base.tasks import Tasks
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Address, Message, Pid
from shalott.broker.rabbit.replica.instructions import Instruction


class Shell(Protocol):
    """Implemented by QueueShell (queue_shell.py)."""

    key: str
    env: Env
    config: NodeConfig
    metadata: Metadata
    tasks: Tasks  # beside the mailbox, no longer than the process, which ends if one fails

    @property
    def pid(self) -> Pid:
        """The queue process's."""
        ...

    def row(self) -> QueueRow | None:
        """The queue's live row as this node sees it now."""
        ...

    def send(self, to: Address, message: Message) -> None: ...

    def broadcast(self, instruction: Instruction) -> None:
        """To the other members of the ring, if there is one."""
        ...

    def broadcast_confirmed(self, instruction: Instruction, message_id: int) -> None:
        """The same; ``MasterConfirms.ring_has`` is called when every member has delivered it."""
        ...

    def ring_mark(self) -> int:
        """The number of what was broadcast last."""
        ...

    def ring_is_home(self, mark: int) -> bool:
        """Whether every member has delivered what was broadcast up to ``mark``."""
        ...

    def mirrors_in_ring(self) -> list[Pid]:
        """Those in the queue's row that are alive in the ring, as this process sees both."""
        ...

    def mirrors(self) -> tuple[Pid, ...]:
        """Every mirror that this master knows of."""
        ...

    def monitor(self, pid: Pid) -> None:
        """One Down when ``pid`` ends, however often this is called."""
        ...

    def demonitor(self, pid: Pid) -> None: ...

    def monitor_peer(self, pid: Pid) -> None:
        """The same for another process of this queue."""
        ...

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle: ...

    def emit(self, kind: str, **detail: object) -> None:
        """A node event of this queue, with its role and epoch."""
        ...


# -- counts ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    """Messages. ``redeliver``: those of the deliveries and gets that are marked so."""

    publish: int = 0
    deliver: int = 0
    deliver_no_ack: int = 0
    get: int = 0
    get_no_ack: int = 0
    get_empty: int = 0
    redeliver: int = 0
    ack: int = 0

    def delivered(self, *, no_ack: bool, redelivered: bool) -> None:
        self.deliver += not no_ack
        self.deliver_no_ack += no_ack
        self.redeliver += redelivered

    def got(self, *, no_ack: bool, redelivered: bool) -> None:
        self.get += not no_ack
        self.get_no_ack += no_ack
        self.redeliver += redelivered

    def told(self) -> dict[str, int]:
        """By the names of the management API."""
        return {
            "publish": self.publish,
            "deliver": self.deliver,
            "deliver_no_ack": self.deliver_no_ack,
            "get": self.get,
            "get_no_ack": self.get_no_ack,
            "get_empty": self.get_empty,
            "deliver_get": self.deliver + self.deliver_no_ack + self.get + self.get_no_ack,
            "redeliver": self.redeliver,
            "ack": self.ack,
        }
