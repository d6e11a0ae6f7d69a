"""What the AMQP layer needs of its node, what a channel knows of its client, and the messages that
stay between the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shalott.broker.base.env import Env
from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.assembler import Command
from shalott.broker.rabbit.amqp.errors import AmqpError
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.queues import Queues
from shalott.broker.rabbit.amqp.wire import Method
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import Metadata
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


@dataclass(frozen=True)
class Session:
    """What was agreed on when the connection was opened."""

    connection: Pid
    user: str
    vhost: str
    consumer_cancel_notify: bool  # the client understands basic.cancel from the server


class Port(Protocol):
    """A channel's way to its client. Once the connection is closing, everything sent is dropped."""

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
    watch: Callable[[Pid], None]  # have a Down when that process ends; once is enough


class CommandArrived(Message, frozen=True):
    """connection -> channel."""

    command: Command


class ConnectionGone(Message, frozen=True):
    """connection -> channel: nobody is there any more; end."""


class RetryConfirms(Message, frozen=True):
    """channel -> itself: ask ``may_confirm`` again."""


class RetryConsumers(Message, frozen=True):
    """channel -> itself: see whether queues without a master have one by now."""
