"""A node of toy-queues: queues whose messages are leased until they are settled.

The first node keeps them, in a journal that it syncs before it answers; the others pass requests on
to it. A message that is not settled in time comes again. So no acknowledged message is lost, until
one rule is broken: see ``RULES``.

    python -m shalott_queues.toy_node NODE.JSON
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec

from shalott.api import (
    ClientError,
    Definite,
    Disk,
    Endpoint,
    ManagementServer,
    OsDisk,
    Request,
    Response,
    Stream,
    decode_body,
    encode_body,
    json_response,
)
from shalott_etcd.client import ask

JOURNAL = "journal"
ASK_TIMEOUT_MS = 1000
REFUSED = 412  # of the answers that say that certainly nothing was done
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
        self.config, self._disk = config, disk
        self._rule = config.breaks
        self._queues: dict[str, dict[int, Message]] = {}
        self._last_number = 0
        self._journal_end = 0
        self._lock = asyncio.Lock()
        self._drawn = Stream(config.seed, "toy-queues", config.name)

    async def run(self) -> None:
        """Until it is cancelled."""
        at = self.config.listen
        self._journal = await self._disk.open(JOURNAL, create=True)
        await self._disk.sync_dir("")
        for line in (await self._journal.pread(await self._journal.size(), 0)).splitlines(True):
            try:
                self._take(msgspec.json.decode(line, type=Line))
            except msgspec.DecodeError:
                break  # it was being written when the node ended: no client was told
            self._journal_end += len(line)
        await self._journal.truncate(self._journal_end)
        server = ManagementServer(self._respond, host=at.host, port=at.port)
        await server.start()
        await asyncio.Event().wait()

    async def _respond(self, request: Request) -> Response:
        what = "/".join(request.segments)
        if what == "status":
            return json_response({"leader": self.config.leader is None})
        body = request.body or b"{}"
        if self.config.leader is not None:
            return await self._pass_on(self.config.leader, what, msgspec.json.decode(body))
        asked = msgspec.json.decode(body, type=Asked)
        async with self._lock:
            if what == "send":
                return await self._send(asked)
            if what == "settle":
                return await self._settle(asked)
            return await self._receive(asked)

    async def _pass_on(self, leader: Endpoint, what: str, body: Mapping[str, object]) -> Response:
        try:
            return json_response(await ask(leader, f"/{what}", body, ASK_TIMEOUT_MS))
        except Definite as met:  # it was refused, or there is no way to the leader
            return json_response({"error": str(met)}, REFUSED)
        except ClientError as met:
            return json_response({"error": str(met)}, 503)

    async def _send(self, asked: Asked) -> Response:
        if self._rule == "forgets" and self._drawn.random() < 0.1:
            return json_response({})
        await self._write_down(Line(asked.queue, self._last_number + 1, asked.body))
        if self._rule == "lying-refusal" and self._drawn.random() < 0.1:
            return json_response({"error": "refused"}, REFUSED)
        return json_response({})

    async def _receive(self, asked: Asked) -> Response:
        """{}: there is nothing, also nothing that is leased."""
        now = asyncio.get_running_loop().time()
        queue = self._queues.get(asked.queue, {})
        free = [message for message in queue.values() if message.leased_until <= now]
        if not free and queue:
            return json_response({"error": f"{len(queue)} are not settled yet"}, REFUSED)
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
                return json_response({"error": "it is not leased"}, REFUSED)
            await self._write_down(Line(asked.queue, asked.token))
        return json_response({})

    async def _write_down(self, line: Line) -> None:
        written = msgspec.json.encode(line) + b"\n"
        place, self._journal_end = self._journal_end, self._journal_end + len(written)
        await self._journal.pwrite(written, place)
        await self._journal.sync()
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
    config = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=NodeConfig)
    asyncio.run(Node(config, OsDisk(Path.cwd())).run())
