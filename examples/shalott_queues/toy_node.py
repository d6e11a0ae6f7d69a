"""A node of toy-queues: queues whose messages are leased until they are settled.

The first node keeps them, in a journal that it syncs before it answers; the others pass requests on
to it. A message that is not settled in time comes again. So no acknowledged message is lost, until
one rule is broken: see ``RULES``.

    python -m shalott_queues.toy_node NODE.JSON
"""

from __future__ import annotations

import asyncio
from typing import Literal, get_args

import msgspec

from shalott.api import (
    Disk,
    Endpoint,
    Request,
    Response,
    Stream,
    decode_body,
    encode_body,
    json_response,
)
from shalott_toys.node import ABORTED, Journal, pass_on, run_alone, serve

LEASE_S = 2.0
INVENTED = 1 << 30

Rule = Literal[
    "none",
    "forgets",  # some messages are acknowledged and not kept
    "settles-early",  # what is delivered is gone, whether it is settled or not
    "says-empty",  # a queue's last message is never delivered
    "lying-refusal",  # some that are kept are said to be refused
    "invented",  # some messages become others, which no client sent
    "damaged",  # some bodies lose their last byte
]
RULES: tuple[Rule, ...] = get_args(Rule)


class NodeConfig(msgspec.Struct, frozen=True):
    name: str
    listen: Endpoint
    leader: Endpoint | None  # None: it is this one
    breaks: Rule
    seed: int


class Asked(msgspec.Struct, frozen=True):
    queue: str = ""
    body: str = ""  # in hexadecimal digits
    token: int = 0


class Message(msgspec.Struct):
    number: int
    body: str
    leased_until: float = 0.0
    deliveries: int = 0


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of the journal: a message that was sent, or the number of one that was settled."""

    queue: str
    number: int
    body: str = ""


class Node:
    """One life of a node, on the disk of its earlier ones."""

    def __init__(self, config: NodeConfig, disk: Disk) -> None:
        self.config, self._journal = config, Journal(disk)
        self._rule = config.breaks
        self._queues: dict[str, dict[int, Message]] = {}
        self._last_number = 0
        self._lock = asyncio.Lock()
        self._drawn = Stream(config.seed, "toy-queues", config.name)

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._journal.open(lambda line: self._take(msgspec.json.decode(line, type=Line)))
        await serve(self.config.listen, self._respond)
        await asyncio.Event().wait()

    async def _respond(self, request: Request) -> Response:
        what = "/".join(request.segments)
        if what == "status":
            return json_response({"leader": self.config.leader is None})
        body = request.body or b"{}"
        if self.config.leader is not None:
            return await pass_on(self.config.leader, msgspec.json.decode(body), path=f"/{what}")
        asked = msgspec.json.decode(body, type=Asked)
        async with self._lock:
            if what == "send":
                return await self._send(asked)
            if what == "settle":
                return await self._settle(asked)
            return await self._receive(asked)

    async def _send(self, asked: Asked) -> Response:
        if self._rule == "forgets" and self._drawn.random() < 0.1:
            return json_response({})
        await self._write_down(Line(asked.queue, self._last_number + 1, asked.body))
        if self._rule == "lying-refusal" and self._drawn.random() < 0.1:
            return json_response({"error": "refused"}, ABORTED)
        return json_response({})

    async def _receive(self, asked: Asked) -> Response:
        """{}: there is nothing, also nothing that is leased."""
        now = asyncio.get_running_loop().time()
        queue = self._queues.get(asked.queue, {})
        free = [message for message in queue.values() if message.leased_until <= now]
        if not free and queue:
            return json_response({"error": f"{len(queue)} are not settled yet"}, ABORTED)
        if not free or (self._rule == "says-empty" and len(queue) == 1):
            return json_response({})
        message = free[0]
        message.leased_until, message.deliveries = now + LEASE_S, message.deliveries + 1
        if self._rule == "settles-early":
            await self._write_down(Line(asked.queue, message.number))
        told = {"body": self._shown(message.body), "token": message.number}
        return json_response({**told, "redelivered": message.deliveries > 1})

    def _shown(self, body: str) -> str:
        if self._rule == "damaged" and self._drawn.random() < 0.1:
            return body[:-2]
        return body

    async def _settle(self, asked: Asked) -> Response:
        now = asyncio.get_running_loop().time()
        message = self._queues.get(asked.queue, {}).get(asked.token)
        if self._rule != "settles-early":
            if message is None or message.leased_until < now:
                return json_response({"error": "it is not leased"}, ABORTED)
            await self._write_down(Line(asked.queue, asked.token))
        return json_response({})

    async def _write_down(self, line: Line) -> None:
        await self._journal.append(line)
        self._take(line)

    def _take(self, line: Line) -> None:
        queue = self._queues.setdefault(line.queue, {})
        if line.body:
            self._last_number = max(self._last_number, line.number)
            queue[line.number] = Message(line.number, self._kept(line.body))
        else:
            queue.pop(line.number, None)

    def _kept(self, body: str) -> str:
        value = decode_body(bytes.fromhex(body))
        if self._rule != "invented" or self._last_number % 10 or value is None:
            return body
        return encode_body(value + INVENTED, len(body) // 2).hex()


if __name__ == "__main__":
    run_alone(NodeConfig, Node)
