"""What a queue's master tells its mirrors, and mirrors their master, by guaranteed multicast.

Everybody applies the instructions of one master in the order in which it gave them, so the mirrors'
contents follow the master's (rabbit/rabbit_mirror_queue_{master,slave}.erl). They travel as bytes:
the ring passes them on unread.
"""

from __future__ import annotations

from typing import get_args

from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.processes.messages import Codec, Message, Pid


class Published(Message, frozen=True):
    """``delivered``: it went straight to a consumer and waits for its acknowledgement.

    ``ttl_ms`` is how long it may live from now on, None for ever.
    """

    channel: Pid
    content: Content
    delivered: bool = False
    ttl_ms: int | None = None


class Discarded(Message, frozen=True):
    """A publish that leaves nothing behind: delivered at once to a consumer that doesn't
    acknowledge.
    """

    channel: Pid
    message_id: int


class PublishRefused(Message, frozen=True):
    """A publish that found the queue full: a mirror that has its copy refuses it too, should the
    master's own refusal die with it. (The original discards it, and mirrors confirm what is
    discarded.)
    """

    channel: Pid
    message_id: int


class Dropped(Message, frozen=True):
    """``count`` messages left the head, which leaves ``remaining`` ready ones; they wait for an
    acknowledgement if ``ack_required``.

    A queue with priorities says which ones they were (``ids``): its head is not always the oldest,
    so a mirror that has the newest messages only can't tell from the number whether they were among
    its own. (The original tells the number only, and such a mirror drops too little.)
    """

    remaining: int
    count: int
    ack_required: bool
    ids: tuple[int, ...] = ()


class Acked(Message, frozen=True):
    ids: tuple[int, ...]


class Requeued(Message, frozen=True):
    ids: tuple[int, ...]


class Depth(Message, frozen=True):
    """Ready and unacknowledged messages at the master, now."""

    depth: int


class RequestDepth(Message, frozen=True):
    """From a mirror that just started."""

    mirror: Pid


class SenderDeath(Message, frozen=True):
    """The channel is dead, and everything that it published at the master has been told."""

    channel: Pid


class EnsureMonitoring(Message, frozen=True):
    """From a mirror that knows of dead channels of which it has heard no SenderDeath."""

    channels: tuple[Pid, ...]


class ProcessDeath(Message, frozen=True):
    """Nothing but traffic: news of the group's members ride on it."""


class SyncStart(Message, frozen=True):
    ref: int
    syncer: Pid
    mirrors: tuple[Pid, ...]


class DeleteAndTerminate(Message, frozen=True):
    """The queue is deleted: every process ends with its ring."""


Instruction = (
    Published
    | Discarded
    | PublishRefused
    | Dropped
    | Acked
    | Requeued
    | Depth
    | RequestDepth
    | SenderDeath
    | EnsureMonitoring
    | ProcessDeath
    | SyncStart
    | DeleteAndTerminate
)

CODEC = Codec(get_args(Instruction))

# Those that a mirror only has to apply to its contents.
CONTENTS = (Published, Discarded, PublishRefused, Dropped, Acked, Requeued, Depth, SenderDeath)
