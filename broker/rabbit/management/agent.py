"""ClientsAgent: tells other nodes of this node's AMQP clients, and of its own view of the cluster
and its queues' rings, so that whichever node is asked can list those of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.management.backend import ManagementBackend
from shalott.broker.rabbit.processes.messages import Done, Message, Name
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


class Look(Message):
    """call -> LookTold: the node's own view of the cluster; with a queue's key, of its ring."""

    queue: str = ""


class LookTold(Message):
    """``shown``: a JSON object."""

    shown: bytes


MESSAGES: tuple[type[Message], ...] = (ListClients, ClientsTold, CloseVhost, Look, LookTold)


class ClientsAgent(Process):
    """``told``: what this node has of each kind. ``close``: sends a vhost's clients away.
    ``look``: what the node says of itself.
    """

    def __init__(
        self,
        told: Callable[[Kind], Listed],
        close: Callable[[str], None],
        look: Callable[[Look], Awaitable[dict[str, Any]]],
    ) -> None:
        super().__init__()
        self._told = told
        self._close = close
        self._look = look
        self._looks: dict[asyncio.Task[None], None] = {}

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if isinstance(request, ListClients):
            return ClientsTold(msgspec.json.encode(self._told(request.kind)))
        if isinstance(request, CloseVhost):
            self._close(request.vhost)
            return Done()
        if isinstance(request, Look):
            # Beside the mailbox: a queue process that is stuck keeps nobody else waiting.
            task = asyncio.create_task(self._answer(request, caller))
            self._looks[task] = None
            task.add_done_callback(lambda done: self._looks.pop(done, None))
            return None
        return await super().handle_call(request, caller)

    async def _answer(self, request: Look, caller: Caller) -> None:
        caller.reply(LookTold(msgspec.json.encode(await self._look(request))))

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for task in list(self._looks):
                task.cancel()


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
