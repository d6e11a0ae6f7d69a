"""MeshTransport: messages between the members of the tables' Raft group, over the nodes' own links.

A message of the core is a letter to the process of the same name on another node. A link keeps
order and loses what is under way when it breaks; the core asks again. That a link was made or broke
is told to the core as well (broker.raft.api.ConnectionChanged): it need not wait for a time-out to
miss a leader that is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from shalott.broker.rabbit.processes.messages import Message, Name, NodeDownEvent, NodeUp
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.raft import api

log = logging.getLogger("shalott.broker.metadata")

NAME = "consensus"
KINDS: Mapping[str, type[api.Message]] = {
    kind.__name__: kind
    for kind in (
        api.VoteRequest,
        api.VoteResponse,
        api.HeartbeatRequest,
        api.HeartbeatResponse,
        api.PushRequest,
        api.PushResponse,
        api.TakeLeadership,
    )
}


class Letter(Message):
    """One member's message to another: ``kind`` is the name of its type in broker.raft.api."""

    sender: str
    kind: str
    payload: bytes


MESSAGES: tuple[type[Message], ...] = (Letter,)

_encoder = msgspec.msgpack.Encoder()
_decoders: Mapping[str, msgspec.msgpack.Decoder[api.Message]] = {
    name: msgspec.msgpack.Decoder(kind) for name, kind in KINDS.items()
}


class MeshTransport(Process):
    """Implements broker.raft.transport.Transport. Spawn it as ``NAME`` before the group starts."""

    def __init__(self) -> None:
        super().__init__()
        self._receive: Callable[[str, api.Message], None] | None = None
        self.on_connection: Callable[[str, bool], None] = lambda member, is_up: None
        self.on_crash: Callable[[str], None] = lambda reason: None

    async def start(self, receive: Callable[[str, api.Message], None]) -> None:
        self._receive = receive

    async def stop(self) -> None:
        self._receive = None

    def send(self, to: str, message: api.Message) -> None:
        letter = Letter(self.runtime.node, type(message).__name__, _encoder.encode(message))
        self.runtime.send(Name(to, NAME), letter)

    async def started(self) -> None:
        self.runtime.watch_nodes(self.pid)

    async def handle(self, message: Message) -> None:
        if self._receive is None:
            return
        match message:
            case Letter(sender, kind, payload):
                self._receive(sender, _decoders[kind].decode(payload))
            case NodeUp(node, _):
                self.on_connection(node, True)
            case NodeDownEvent(node, _):
                self.on_connection(node, False)

    async def stopping(self, reason: str) -> None:
        """What a message led to failed, and a group that hears no more is worse than none."""
        self.on_crash(reason)
