"""Messages between queue processes, their supervisors and the operator's requests (not the GM
payloads).
"""

from __future__ import annotations

from typing import Any

from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId, QueueRow
from shalott.broker.rabbit.mirrored.ring.members import Activity, Catchup, CheckNeighbours
from shalott.broker.rabbit.processes.messages import Message, Pid

SUPERVISOR = "queues"  # the name that each node's queue supervisor is registered under


# -- GM, besides the ring messages -----------------------------------------------------------------


class JoinRing(Message, frozen=True):
    """call -> RingJoined, or Failed("not_ready")."""

    newcomer: MemberId
    left: MemberId


class RingJoined(Message, frozen=True):
    group: GroupRow


# -- synchronisation -------------------------------------------------------------------------------


class SyncAnswer(Message, frozen=True):
    """mirror -> master: ``wanted`` is False if it is synchronised already."""

    mirror: Pid
    ref: int
    wanted: bool


# Content, unacknowledged, ns that are left of its time to live (None: for ever).
Synced = tuple[Content, bool, int | None]


class SyncBatch(Message, frozen=True):
    """master -> mirror: messages in order. Answered by SyncNext."""

    ref: int
    messages: tuple[Synced, ...]


class SyncNext(Message, frozen=True):
    """mirror -> master: the batch is taken, send the next."""

    mirror: Pid
    ref: int


class SyncComplete(Message, frozen=True):
    ref: int


class SyncAborted(Message, frozen=True):
    """master -> mirror: cancelled. What was sent is discarded."""

    ref: int


# -- asked of a queue process ----------------------------------------------------------------------


class AutoSync(Message, frozen=True):
    """``mirror`` joined, or (None) the policy changed: synchronise if the policy says so."""

    mirror: Pid | None = None


class SyncQueue(Message, frozen=True):
    """call -> Done, or Failed("not_mirrored" | "syncing"): the operator's sync_queue."""


class CancelSync(Message, frozen=True):
    """call -> Done, or Failed("not_syncing")."""


class UpdateMirroring(Message, frozen=True):
    """The policy or the set of running nodes changed: let the master see to its mirrors."""


class StopProcess(Message, frozen=True):
    """End in good order; the queue lives on elsewhere or on disk. ``reason``: shutdown, dropped."""

    reason: str


class Claim(Message, frozen=True):
    """call -> Claimed: what this process believes to be."""


class Claimed(Message, frozen=True):
    queue: str
    role: str  # master, mirror, starting
    epoch: int
    state: str  # running, syncing, ...
    ready: int
    unacknowledged: int
    synchronised: bool
    detail: dict[str, Any] = {}


# -- asked of a supervisor -------------------------------------------------------------------------


class DeclareQueue(Message, frozen=True):
    """call -> Declared. ``row`` has no pid yet."""

    row: QueueRow


class Declared(Message, frozen=True):
    row: QueueRow
    created: bool


class StartMirror(Message, frozen=True):
    """call from a master -> Done, or Failed with the reason."""

    queue: str


class LookAgain(Message, frozen=True):
    """From the supervisor of ``node``, which has just come to see the receiver's node: may it
    mirror what it could not before?
    """

    node: str


# -- to itself -------------------------------------------------------------------------------------


class DurableAdvanced(Message, frozen=True):
    pass


class ReadOn(Message, frozen=True):
    """There is more to be read from disk for those who wait."""


class GmTransacted(Message, frozen=True):
    serial: int


class FlushTimer(Message, frozen=True):
    pass


class NeighbourDownTimer(Message, frozen=True):
    side: str
    member: MemberId


class FlushAcked(Message, frozen=True):
    pass


class SenderDeathTimer(Message, frozen=True):
    channel: Pid


class ExpiryTimer(Message, frozen=True):
    pass


class UnusedTimer(Message, frozen=True):
    pass


class StopNow(Message, frozen=True):
    """To a process that waits for a transaction while its node stops."""


class StopTimeout(Message, frozen=True):
    pass


class Reconsider(Message, frozen=True):
    """Whether a process of the queue belongs on this node."""

    queue: str


MESSAGES: tuple[type[Message], ...] = (
    CheckNeighbours,
    Catchup,
    Activity,
    JoinRing,
    RingJoined,
    SyncAnswer,
    SyncBatch,
    SyncNext,
    SyncComplete,
    SyncAborted,
    AutoSync,
    SyncQueue,
    CancelSync,
    UpdateMirroring,
    StopProcess,
    Claim,
    Claimed,
    DeclareQueue,
    Declared,
    StartMirror,
    LookAgain,
)
