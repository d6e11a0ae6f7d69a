"""What channels and queue processes say to each other. Both may be on different nodes.

A channel sends each publish to the master *and* to every mirror (RabbitMQ's double path,
rabbit/rabbit_amqqueue.erl deliver); every other request goes to the master alone. A queue process
confirms a publish once it is safe there: a mirror when it has it from the channel and from the GM
ring, and, if it is persistent in a durable queue, when it is on disk.
"""

from __future__ import annotations

import msgspec

from shalott.broker.rabbit.processes.messages import Message, Pid


class Content(msgspec.Struct, frozen=True, array_like=True):
    """A message as the broker keeps it. ``id`` is the broker's own (never the publisher's
    identity).
    """

    id: int  # 63-bit, unique in the cluster: drawn by the channel
    exchange: str
    routing_key: str
    properties: bytes  # the encoded property list of the content header
    body: bytes
    persistent: bool
    priority: int = 0
    expiration_ms: int | None = None  # per-message TTL
    also: tuple[str, ...] = ()  # more routing keys, of the headers CC and BCC


class Publish(Message):
    """channel -> master and mirrors. ``seq`` is None when the channel wants no confirm.

    ``sent_to`` names the processes of the queue that get it: a mirror that is newer than the
    channel's view of the queue has no copy from the channel, and owes it no confirm.
    """

    channel: Pid
    seq: int | None
    content: Content
    sent_to: tuple[Pid, ...] = ()


class Confirmed(Message):
    """queue process -> channel: these publishes are safe with ``process``."""

    process: Pid
    queue: str  # its key
    seqs: tuple[int, ...]


class Refused(Message):
    """queue process -> channel: these publishes were rejected (x-overflow reject-publish)."""

    process: Pid
    queue: str
    seqs: tuple[int, ...]


class Get(Message):
    """call -> Got, GotEmpty or Failed. Without ``no_ack`` the message stays with the channel until
    settled.
    """

    channel: Pid
    no_ack: bool


class Got(Message):
    ack_id: int  # names the delivery in Settle; unique for this queue process
    redelivered: bool
    content: Content
    remaining: int


class GotEmpty(Message):
    pass


class Consume(Message):
    """call -> Done or Failed("access_refused" when exclusive use clashes).

    ``prefetch`` is the limit of unsettled deliveries of this consumer, 0 for none.
    ``channel_prefetch`` is the limit of the whole channel at this queue.
    """

    channel: Pid
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int = 0
    cancel_on_failover: bool = False


class CancelConsumer(Message):
    """call -> Done. Deliveries already made stay with the channel."""

    channel: Pid
    tag: str


class Deliver(Message):
    """queue process -> channel. ``asks``: the queue delivers nothing more before it hears Taken or
    Returned.
    """

    process: Pid
    tag: str
    ack_id: int
    redelivered: bool
    content: Content
    asks: bool = False


class Written(Message):
    """channel -> master: so many more of its deliveries went to the client's socket. A queue that
    hears nothing stops, so that what a client does not read stays where it is.
    """

    channel: Pid
    count: int


class ConsumerCancelled(Message):
    """queue process -> channel: the queue went away or moved, and this consumer is no more."""

    process: Pid
    tag: str


class Settle(Message):
    """channel -> master: end deliveries. ``outcome``: ack, requeue, reject (dropped, or
    dead-lettered).
    """

    channel: Pid
    ack_ids: tuple[int, ...]
    outcome: str


class ChannelLimit(Message):
    """channel -> master: basic.qos global: at most ``prefetch`` unsettled deliveries on the
    channel, 0 for none.
    """

    channel: Pid
    prefetch: int


class Taken(Message):
    """channel -> master: there is room for this delivery, of which the queue asked."""

    channel: Pid
    ack_id: int


class Returned(Message):
    """channel -> master: this delivery is beyond the channel-wide limit. It goes back as if it had
    never been out (``redelivered``: what it was sent with), and the channel is to be sent nothing
    until Resume.
    """

    channel: Pid
    ack_id: int
    redelivered: bool


class Paused(Message):
    """master -> channel: it heard of a delivery that was returned; no other one is under way."""

    process: Pid


class Resume(Message):
    """channel -> master, after Paused: there is room again."""

    channel: Pid


class Purge(Message):
    """call -> Count of the messages dropped (ready ones only)."""


class Count(Message):
    count: int


class Stat(Message):
    """call -> Stats."""


class Stats(Message):
    ready: int
    unacknowledged: int
    consumers: int
    state: str  # running, syncing
    detail: dict[str, object] = {}


class Inspect(Message):
    """call -> Stats whose detail is all that the management API shows of a master
    (broker/rabbit/queue_process/inspection.py). Channels ask for Stat.
    """


class Delete(Message):
    """call -> Count of the messages dropped, or Failed("in_use" | "not_empty")."""

    if_unused: bool
    if_empty: bool


class Reply(Message):
    """channel -> channel: for its reply consumer, if it has the one of this key."""

    key: str
    content: Content


class ReplyConsumer(Message):
    """call, channel -> channel: Done if it has the reply consumer of this key, or Failed."""

    key: str


MESSAGES: tuple[type[Message], ...] = (
    Inspect,
    Publish,
    Confirmed,
    Refused,
    Get,
    Got,
    GotEmpty,
    Consume,
    CancelConsumer,
    Deliver,
    Written,
    ConsumerCancelled,
    Settle,
    ChannelLimit,
    Taken,
    Returned,
    Paused,
    Resume,
    Purge,
    Count,
    Stat,
    Stats,
    Delete,
    Reply,
    ReplyConsumer,
)
