"""What the AMQP layer needs of its node, what a channel knows of its client, and the messages that
stay between the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.counts import Counts
from shalott.broker.rabbit.amqp.errors import AmqpError
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.wire import Command, Method
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Message, Pid
from shalott.broker.rabbit.processes.runtime import Runtime


@dataclass(frozen=True)
class Services:
    """A node, as connections and channels see it.

    ``may_confirm`` is the guard of pause_minority: while it says False, publishes are not
    acknowledged to clients, because the node may be about to find itself in a minority.
    """

    env: Env
    runtime: Runtime
    config: NodeConfig
    metadata: Metadata
    queues: Queues
    may_confirm: Callable[[], bool]
    alarms: Alarms = field(default_factory=Alarms)
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True)
class Session:
    """What was agreed on when the connection was opened."""

    connection: Pid
    user: str
    vhost: str
    consumer_cancel_notify: bool  # the client understands basic.cancel from the server


class Port(Protocol):
    """A channel's way to its client. Once the connection is closing, everything sent is dropped."""

    @property
    def number(self) -> int: ...

    async def send(self, method: Method) -> None: ...

    async def send_payload(self, payload: bytes) -> None:
        """An encoded method (see broker.rabbit.amqp.wire)."""
        ...

    async def send_content(self, payload: bytes, properties: bytes, body: bytes) -> None: ...

    def closed(self) -> None:
        """The client closed the channel, and everything before that is done."""
        ...

    def failed(self, error: AmqpError) -> None:
        """The channel ends with this: tell the client."""
        ...


@dataclass(frozen=True)
class Context:
    """What the parts of one channel share."""

    services: Services
    session: Session
    port: Port
    router: Router
    pid: Pid  # the channel's
    number: int
    watch: Callable[[Pid], None]  # have a Down when that process ends; once is enough
    counts: Counts


class CommandArrived(Message, frozen=True):
    """connection -> channel."""

    command: Command


class ConnectionGone(Message, frozen=True):
    """connection -> channel: the client is gone; end."""


class RetryConfirms(Message, frozen=True):
    """channel -> itself: ask ``may_confirm`` again."""


class CheckTimeouts(Message, frozen=True):
    """channel -> itself, now and then."""


class RetryConsumers(Message, frozen=True):
    """channel -> itself: see whether queues without a master have one by now."""


# -- channels and consumers as they are shown ------------------------------------------------------


class ConsumerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of a channel. ``prefetch`` 0: no limit of its own."""

    tag: str
    queue: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int


class ChannelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A living channel. ``prefetch``: of consumers to come; ``channel_prefetch``: of all."""

    number: int
    pid: Pid
    confirms: bool
    transactional: bool = False
    uncommitted: int = 0  # publishes
    uncommitted_acks: int = 0
    prefetch: int
    channel_prefetch: int
    unacknowledged: int
    unconfirmed: int
    counts: Mapping[str, int] = {}
    consumers: tuple[ConsumerInfo, ...]


# -- queues ----------------------------------------------------------------------------------------

# Queues: what a channel needs of the queues behind it. Implemented by broker/rabbit/mirrored/.
#
# The AMQP layer never touches masters, mirrors or policies: it declares, looks up and deletes
# through this.


class Queues(Protocol):
    def lookup(self, vhost: str, name: str) -> QueueRow | None:
        """The live row as this node sees it; ``pid`` is the master, ``slave_pids`` the mirrors."""
        ...

    def is_available(self, row: QueueRow) -> bool:
        """Whether the master's process can be reached now (else: 404 "home node ... is down or
        inaccessible").
        """
        ...

    async def declare(
        self,
        *,
        vhost: str,
        name: str,
        durable: bool,
        auto_delete: bool,
        exclusive_owner: Pid | None,
        arguments: Mapping[str, object],
    ) -> QueueRow:
        """Create the queue on this node, with its mirrors by policy, or return the row that exists
        already.

        Comparing an existing row's properties is the caller's business. Raises MetadataUnavailable.
        """
        ...

    async def remove(self, row: QueueRow) -> int:
        """Delete the rows, the bindings and every process of the queue, and the auto-delete
        exchanges that were bound to nothing else; returns how many messages it held.
        """
        ...
