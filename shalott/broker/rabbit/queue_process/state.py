"""QueueState: what a queue process knows, and what it is in the middle of.

The steps (starting, roles, mirroring, promotion, syncing, ending, ring_events) change it; the
process and its shell read it. Nothing here acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.messages import Claimed, Start
from shalott.broker.rabbit.mirrored.storage import QueueStorage
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.queue_process.ring_shell import GmShell
from shalott.broker.rabbit.replica.limits import DeadLetter
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror
from shalott.broker.rabbit.replica.sync import MasterSync


@dataclass(slots=True)
class Identity:
    """Which queue, and why this process was started. ``declared``: the row that it has made.
    ``first_row``: the one that made it master.
    """

    key: str
    start: Start
    declared: QueueRow | None = None
    first_row: QueueRow | None = None


@dataclass(slots=True)
class RingMembership:
    """This process in the ring, and what it knows of others of its queue.

    ``known_dead``: all that ever died. ``new_mirrors``: mirrors which the row, as this node sees
    it, may not name yet.
    """

    gm: GmShell | None = None
    depth_requested: bool = False
    known_dead: dict[Pid, None] = field(default_factory=dict)
    new_mirrors: dict[Pid, None] = field(default_factory=dict)


@dataclass(slots=True)
class MirrorSync:
    """A mirror that is being synchronised by ``syncer``."""

    ref: int
    syncer: Pid


@dataclass(slots=True)
class Synchronisation:
    """What is under way, as master or as mirror. ``again``: another one was wanted meanwhile."""

    as_master: MasterSync | None = None
    as_mirror: MirrorSync | None = None
    again: bool = False

    @property
    def is_running(self) -> bool:
        return self.as_master is not None or self.as_mirror is not None


@dataclass(slots=True)
class MirrorsStop:
    """A master that waits for its mirrors to end before it does."""

    reason: str
    waiting: dict[Pid, None]


@dataclass(slots=True)
class Ending:
    """What is being ended: the queue, or the mirrors of a master that stops."""

    is_deleting: bool = False
    mirrors: MirrorsStop | None = None

    @property
    def has_begun(self) -> bool:
        return self.is_deleting or self.mirrors is not None


@dataclass(slots=True)
class QueueState:
    """One process's data. ``epoch``: the version of the queue's row when it took its role."""

    identity: Identity
    role: Master | Mirror | None = None
    epoch: int = 0
    durable_told: bool = False  # DurableAdvanced is in the mailbox
    ring: RingMembership = field(default_factory=RingMembership)
    sync: Synchronisation = field(default_factory=Synchronisation)
    ending: Ending = field(default_factory=Ending)

    @property
    def key(self) -> str:
        return self.identity.key

    @property
    def is_blocked(self) -> bool:
        """Whether clients must wait."""
        if self.role is None or self.ending.has_begun or self.sync.is_running:
            return True
        # A master's first words in a ring that it is still joining would be lost.
        gm = self.ring.gm
        return isinstance(self.role, Master) and gm is not None and not gm.is_ready

    @property
    def activity(self) -> str:
        """ "syncing" or "running", as operators are told."""
        return "syncing" if self.sync.is_running else "running"

    @property
    def role_name(self) -> str:
        return "none" if self.role is None else self.role.role

    def claim(self) -> Claimed:
        """What this process believes to be."""
        role, sync = self.role, self.sync.as_master
        ready, unacked = (
            (0, 0) if role is None else (role.queue.messages.ready, role.queue.messages.unacked)
        )
        return Claimed(
            queue=self.key,
            role="starting" if role is None else role.role,
            epoch=self.epoch,
            state=self.activity,
            ready=ready,
            unacknowledged=unacked,
            synchronised=isinstance(role, Master) or (role is not None and role.is_synchronised),
            detail={} if sync is None else {"sync_messages": sync.sent},
        )


# -- shared by the queue processes of a node -------------------------------------------------------


@dataclass(frozen=True)
class QueueContext:
    """A node, as its queue processes see it.

    ``fail`` ends the node: its disk failed. ``restarted``: this is not the node's first broker
    since its process began.
    """

    env: Env
    config: NodeConfig
    metadata: Metadata
    storage: QueueStorage
    dead_letters: Callable[[QueueRow], DeadLetter] | None = None
    fail: Callable[[str], None] | None = None
    restarted: bool = False
