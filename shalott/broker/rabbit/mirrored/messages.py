"""Messages between queue processes, their supervisors and the operator's requests (not the GM
payloads).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.gm.activity import Activity, Catchup, CheckNeighbours
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId, QueueRow
from shalott.broker.rabbit.processes.messages import Message, Pid
from shalott.broker.rabbit.processes.runtime import Caller

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
    detail: dict[str, object] = {}


class LookRing(Message, frozen=True):
    """call -> RingLook: what this process holds of its ring. An operator looks; nothing changes."""


class PubLook(msgspec.Struct, frozen=True, array_like=True):
    """A broadcast: its number, the instruction's name, the size of the message in it (None if it
    is about none), and how that begins."""

    number: int
    kind: str
    bytes: int | None
    text: str


class PublisherLook(msgspec.Struct, frozen=True, array_like=True):
    """gm.erl's #member, of one publisher. ``pending``: the first few of ``pending_count``."""

    id: MemberId
    last_pub: int
    last_ack: int
    pending_count: int
    pending: tuple[PubLook, ...]


class PlaceLook(msgspec.Struct, frozen=True, array_like=True):
    """gm.erl's #view_member: ``aliases`` are the dead to its left, for whom it stands in."""

    id: MemberId
    left: MemberId
    right: MemberId
    aliases: tuple[MemberId, ...]


class RingLook(Message, frozen=True):
    """``member`` is None if the queue has no ring; ``version``: of its view. ``buffered``: what it
    has not sent to the right yet. ``publishers`` is empty while its left has told it nothing.
    """

    role: str
    state: str
    member: MemberId | None = None
    version: int = 0
    is_ready: bool = False
    places: tuple[PlaceLook, ...] = ()
    publishers: tuple[PublisherLook, ...] = ()
    buffered: tuple[PubLook, ...] = ()


class CountOperations(Message, frozen=True):
    """call -> Operations, also of a master that is busy with a synchronisation."""


class Operations(Message, frozen=True):
    """``counts``: since this process serves the queue. ``sync_messages`` of ``sync_total`` are
    sent, None while there is no synchronisation."""

    counts: dict[str, int]
    message_bytes: int
    sync_messages: int | None = None
    sync_total: int | None = None


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
    LookRing,
    RingLook,
    CountOperations,
    Operations,
    DeclareQueue,
    Declared,
    StartMirror,
    LookAgain,
)


# -- why a queue process was started ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclareStart:
    """``row`` is what was declared, without a pid."""

    row: QueueRow
    caller: Caller


@dataclass(frozen=True, slots=True)
class RecoverStart:
    """``seen``: the dead master in whose place it shall be. ``snapshot`` is the row as it was then,
    under KB-RMQ-02 only.
    """

    seen: Pid | None
    snapshot: QueueRow | None = None


@dataclass(frozen=True, slots=True)
class MirrorStart:
    caller: Caller | None


Start = DeclareStart | RecoverStart | MirrorStart
