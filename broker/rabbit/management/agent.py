"""ClientsAgent: tells other nodes of this node's AMQP clients, so that whichever node is asked can
list those of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.amqp.alarms import MESSAGES as ALARM_MESSAGES
from shalott.broker.rabbit.amqp.alarms import AlarmChanged, Alarms, Resource
from shalott.broker.rabbit.management.backend import ManagementBackend
from shalott.broker.rabbit.processes.messages import Done, Message, Name, NodeDownEvent, NodeUp
from shalott.broker.rabbit.processes.process import Caller, Process

NAME = "clients_agent"
TIMEOUT_MS = 2000

Kind = Literal["connections", "channels", "consumers"]
Listed = list[dict[str, Any]]


class ListClients(Message):
    """call -> ClientsTold."""

    kind: Kind


class ClientsTold(Message):
    """``rows``: JSON, as the management API shows them."""

    rows: bytes


class CloseVhost(Message):
    """call -> Done: its clients at this node are sent away, for it is deleted."""

    vhost: str


MESSAGES: tuple[type[Message], ...] = (ListClients, ClientsTold, CloseVhost, *ALARM_MESSAGES)


class ClientsAgent(Process):
    """``told``: what this node has of each kind. ``close``: sends a vhost's clients away.
    ``alarms``, which stop them: those of all nodes, kept up to date here.
    """

    def __init__(
        self, told: Callable[[Kind], Listed], close: Callable[[str], None], alarms: Alarms
    ) -> None:
        super().__init__()
        self._alarms = alarms
        self._told = told
        self._close = close

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
        if isinstance(request, CloseVhost):
            self._close(request.vhost)
            return Done()
        return await super().handle_call(request, caller)


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
