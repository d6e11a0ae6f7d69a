"""ClientsAgent: tells other nodes of this node's AMQP clients, of its own view of the cluster and
of its queues' rings, so that whichever node is asked can list those of all; and does what they
can't do themselves: let them out of the cluster, and in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from shalott.broker.base.errors import BrokerError, ProcessError
from shalott.broker.base.http_api import Request, Response, unavailable
from shalott.broker.base.tasks import Tasks
from shalott.broker.rabbit.amqp.alarms import MESSAGES as ALARM_MESSAGES
from shalott.broker.rabbit.amqp.alarms import AlarmChanged, Alarms, Resource
from shalott.broker.rabbit.management.backend import ManagementBackend
from shalott.broker.rabbit.processes.messages import (
    Done,
    Failed,
    Message,
    Name,
    NodeDownEvent,
    NodeUp,
)
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller

NAME = "clients_agent"
TIMEOUT_MS = 2000
RELAY_MS = 10_000

Kind = Literal["connections", "channels", "consumers"]
Listed = list[dict[str, Any]]


class ListClients(Message):
    """call -> ClientsTold."""

    kind: Kind


class ClientsTold(Message):
    """``rows``: JSON, as the management API shows them."""

    rows: bytes


class CloseClients(Message):
    """call -> Done: this node's clients are sent away, those of a vhost, of a user or of a name
    where one is given."""

    text: str
    vhost: str | None = None
    user: str | None = None
    name: str | None = None


class Look(Message):
    """call -> LookTold: the node's own view of the cluster; with a queue's key, of its ring."""

    queue: str = ""


class LookTold(Message):
    """``shown``: a JSON object."""

    shown: bytes


class Forget(Message):
    """call -> Done: the node that asks leaves the cluster."""

    node: str


class Admit(Message):
    """call -> Done: the node that asks, whose disk is empty, may join when it starts."""

    node: str


class Relay(Message):
    """call -> Relayed: a request of the API that is this node's to answer."""

    method: str
    segments: tuple[str, ...]
    query: dict[str, str]
    body: bytes
    user: str


class Relayed(Message):
    status: int
    body: bytes


MESSAGES: tuple[type[Message], ...] = (
    ListClients,
    ClientsTold,
    CloseClients,
    Look,
    LookTold,
    Forget,
    Admit,
    Relay,
    Relayed,
    *ALARM_MESSAGES,
)

Change = Callable[[str], Awaitable[None]]


class ClientsAgent(Process):
    """``told``: what this node has of each kind. ``close``: sends clients away.
    ``alarms``, which stop them: those of all nodes, kept up to date here. ``look``: what the node
    says of itself. ``forget`` and ``admit`` change who belongs to the cluster; they raise
    BrokerError.
    """

    def __init__(
        self,
        told: Callable[[Kind], Listed],
        close: Callable[[CloseClients], None],
        alarms: Alarms,
        look: Callable[[Look], Awaitable[dict[str, object]]],
        forget: Change,
        admit: Change,
        serve: Callable[[Request], Awaitable[Response]],
    ) -> None:
        super().__init__()
        self._alarms = alarms
        self._told = told
        self._close = close
        self._forget = forget
        self._admit = admit
        self._serve = serve
        self._look = look
        self._answering = Tasks()

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)

    async def handle(self, message: Message) -> None:
        match message:
            case AlarmChanged(node, resource, is_on):
                self._alarms.note(node, resource, is_on=is_on)
            case NodeUp(node):
                for resource in self._alarms.of(self.runtime.node):
                    own = AlarmChanged(self.runtime.node, resource, True)
                    self.runtime.send(Name(node, NAME), own)
            case NodeDownEvent(node):
                self._alarms.forget(node)

    def raise_alarm(self, resource: Resource, is_on: bool) -> None:
        """One of this node's: all hear of it."""
        node = self.runtime.node
        self._alarms.note(node, resource, is_on=is_on)
        for other in self.runtime.nodes():
            self.runtime.send(Name(other, NAME), AlarmChanged(node, resource, is_on))

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if isinstance(request, ListClients):
            return ClientsTold(msgspec.json.encode(self._told(request.kind)))
        if isinstance(request, CloseClients):
            self._close(request)
            return Done()
        answer = self._slow_answer(request)
        if answer is None:
            return await super().handle_call(request, caller)
        self._begin(answer, caller)
        return None

    def _slow_answer(self, request: Message) -> Awaitable[Message] | None:
        """Of what is done beside the mailbox: it keeps no other request waiting."""
        match request:
            case Look():
                return self._told_of(request)
            case Forget(node):
                return _done(self._forget(node))
            case Admit(node):
                return _done(self._admit(node))
            case Relay():
                return self._served(request)
        return None

    async def _served(self, asked: Relay) -> Message:
        request = Request(
            asked.method, asked.segments, asked.query, body=asked.body, user=asked.user
        )
        answer = await self._serve(request)
        return Relayed(answer.status, answer.body)

    def _begin(self, answer: Awaitable[Message], caller: Caller) -> None:
        async def reply() -> None:
            caller.reply(await answer)

        self._answering.start(reply())

    async def _told_of(self, request: Look) -> Message:
        return LookTold(msgspec.json.encode(await self._look(request)))

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._answering.cancel()


async def _done(change: Awaitable[None]) -> Message:
    try:
        await change
    except BrokerError as error:
        return Failed("refused", str(error))
    return Done()


async def of_all_nodes(backend: ManagementBackend, kind: Kind, own: Listed) -> Listed:
    """Of every running node, in their order; a node that gives no answer in time has none."""
    nodes = backend.metadata.running_nodes()
    others = [node for node in nodes if node != backend.config.name]
    answers = await asyncio.gather(*(_ask(backend, node, kind) for node in others))
    by_node = {backend.config.name: own, **dict(zip(others, answers, strict=True))}
    return [row for node in sorted(by_node) for row in by_node[node]]


async def _ask(backend: ManagementBackend, node: str, kind: Kind) -> Listed:
    try:
        answer = await backend.runtime.call(
            Name(node, NAME), ListClients(kind), timeout_ms=TIMEOUT_MS
        )
    except ProcessError:
        return []
    if not isinstance(answer, ClientsTold):
        return []
    return msgspec.json.decode(answer.rows, type=Listed)


async def relay(
    backend: ManagementBackend, node: str, request: Request, *, timeout_ms: float = RELAY_MS
) -> Response:
    """Have another node answer. Raises ApiError(503) if it does not."""
    asked = Relay(request.method, request.segments, dict(request.query), request.body, request.user)
    try:
        answer = await backend.runtime.call(Name(node, NAME), asked, timeout_ms=timeout_ms)
    except ProcessError as error:
        raise unavailable(f"node {node} gave no answer: {error}") from error
    if not isinstance(answer, Relayed):
        raise unavailable(f"node {node} does not know what is asked")
    return Response(answer.status, answer.body)
