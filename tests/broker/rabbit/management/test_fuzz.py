"""The API, fed with what its own schema allows and a little more: no answer of 500, no crash, and
nothing that stays.

The routes are the schema: their paths, and the shapes of the bodies that they decode. What is drawn
is a function of the seed, so a failure can be made again. Each night more is drawn.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import random
import time
import typing
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from shalott.broker.base.http_api import Request
from shalott.broker.rabbit.management import (
    clients,
    definitions,
    health,
    messages,
    metrics,
    nodes,
    parameters,
    policies,
    queues,
    topology,
    users,
    vhosts,
    views,
)
from shalott.broker.rabbit.management.api import ROUTES, respond
from shalott.broker.rabbit.management.backend import Route
from tests.world.rabbit.asking import GUEST, on_node
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit

COUNT = 100_000 if os.environ.get("SHALOTT_NIGHTLY") else 10_000
SEED = 37
MODULES = (
    *(clients, definitions, health, messages, metrics, nodes, parameters, policies, queues),
    *(topology, users, vhosts, views),
)
BODIES = [
    each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, type)
    and issubclass(each, msgspec.Struct)
    and each.__module__ == module.__name__
]
# What names may be, those of things that are there among them, and texts that mean something.
NAMES = (
    *("/", "q", "e", "guest", "al", "v", "n1", "n2", "limits", "max-queues", "max-connections"),
    *("vhost-limits", "policy", "operator_policy", "amq.topic", "amq.default", "", "0", "-1"),
    *("q" * 300, "\x00", "é", "#.*", "[", "%2F", "..", "~", "a~1f", "source", "destination"),
)
NUMBERS = (0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308)
QUERIES = (
    *({}, {"columns": "name,a.b.c"}, {"columns": ""}, {"sort": "name,messages"}),
    *({"sort": "", "sort_reverse": "true"}, {"page": "1", "page_size": "2"}, {"page": "x"}),
    *({"page": "1", "name": "(", "use_regex": "true"}, {"if-unused": "true"}),
    *({"permissions": "none"}, {"consistent": "true"}, {"family": "queue_metrics,x", "vhost": "/"}),
)


class Drawing:
    """Values from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def request(self) -> Request:
        route: Route = self.rng.choice(ROUTES)
        path = [self.name() if part.startswith(":") else part for part in route.pattern]
        if self.rng.random() < 0.05:
            path[self.rng.randrange(len(path))] = self.name()
        method = route.method if self.rng.random() < 0.95 else self.rng.choice(METHODS)
        body = b"" if method in ("GET", "DELETE") and self.rng.random() < 0.9 else self.body()
        headers = {"authorization": GUEST, "x-reason": self.name()}
        return Request(method, tuple(path), dict(self.rng.choice(QUERIES)), headers, body)

    def name(self) -> str:
        return self.rng.choice(NAMES)

    def body(self) -> bytes:
        how = self.rng.random()
        if how < 0.05:
            return self.rng.choice((b"{", b"[]", b"null", b'"x"', b"\xff", b"{" * 5000, b"1e999"))
        shape = self.rng.choice(BODIES)
        told = {
            name: self.like(kind)
            for name, kind in typing.get_type_hints(shape).items()
            if self.rng.random() < 0.9
        }
        encoded = {field.name: field.encode_name for field in msgspec.structs.fields(shape)}
        told = {encoded[name]: value for name, value in told.items()}
        if self.rng.random() < 0.1:
            told[self.name()] = self.anything(2)
        return json.dumps(told).encode()

    def like(self, kind: Any) -> Any:
        """A value of the type, or, now and then, any."""
        if self.rng.random() < 0.08:
            return self.anything(2)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal:
            return self.rng.choice(arguments)
        if origin is typing.Annotated:
            return self.like(arguments[0])
        if origin is list:
            return [self.like(arguments[0]) for _ in range(self.rng.randrange(3))]
        if origin is dict:
            return {self.key(): self.like(arguments[1]) for _ in range(self.rng.randrange(4))}
        if arguments:  # a union
            return self.like(self.rng.choice(arguments))
        return {
            bool: lambda: self.rng.random() < 0.5,
            int: lambda: self.rng.choice(NUMBERS[:7]),
            float: lambda: self.rng.choice(NUMBERS),
            str: self.text,
            type(None): lambda: None,
        }.get(kind, lambda: self.anything(2))()

    def text(self) -> str:
        texts = ("true", "false", "12", "topic", "headers", "string", "base64", "administrator,x")
        return self.rng.choice((*NAMES, *texts))

    def key(self) -> str:
        keys = (
            *("x-max-length", "x-message-ttl", "ha-mode", "ha-params", "max-length", "users"),
            *("queues", "bindings", "vhosts", "x-match", "delivery_mode", "headers", "timestamp"),
            *("expiration", "priority", "type", "alternate-exchange", "parameters", "policies"),
        )
        return self.rng.choice((*NAMES, *keys))

    def anything(self, depth: int) -> Any:
        pick = self.rng.randrange(8 if depth else 5)
        if pick < 5:
            return self.rng.choice((None, True, False, self.text(), *NUMBERS))
        if pick == 5:
            return [self.anything(depth - 1) for _ in range(self.rng.randrange(3))]
        return {self.key(): self.anything(depth - 1) for _ in range(self.rng.randrange(3))}


METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD", "PATCH")
# What ends what is tested, or changes this process.
LEFT_OUT = (b'"shutdown"', b'"stop"', b'"reset"', b'"force_reset"')


async def begun(node: FakeNode) -> None:
    node.phase = "running"
    if node.metadata.read("queue", "q@/") is None:
        await node.add_queue("q")


def describe(request: Request) -> str:
    path = "/".join(quote(part, safe="") for part in request.segments)
    return f"{request.method} /{path} {dict(request.query)} {request.body[:300]!r}"


def is_changed_who_asks(request: Request) -> bool:
    return "guest" in request.segments and request.segments[1:2] in (("users",), ("shalott",))


def test_no_request_breaks_the_api() -> None:
    async def body(node: FakeNode) -> None:
        drawing = Drawing(SEED)
        statuses: dict[int, int] = {}
        for number in range(COUNT):
            request = drawing.request()
            if any(word in request.body for word in LEFT_OUT) or is_changed_who_asks(request):
                continue
            if b"guest" in request.body or "log_level" in request.segments:
                continue
            await begun(node)
            before = time.monotonic()
            response = await respond(node, request)
            text = f"{number}: {describe(request)} -> {response.status} {response.body[:200]!r}"
            assert response.status != 500, text
            assert time.monotonic() - before < 20, text
            kind = response.headers.get("Content-Type", "application/json")
            if response.body and kind == "application/json":
                json.loads(response.body)
            statuses[response.status] = statuses.get(response.status, 0) + 1
        assert {200, 201, 204, 400, 404} <= {*statuses}, statuses
        assert statuses[200] + statuses[201] + statuses[204] > COUNT / 5, statuses
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if "channel" in repr(task.get_coro())]
        assert not left, "no channel outlives its request"

    on_node(body)


def test_nothing_is_kept_of_requests() -> None:
    """The same requests again and again: what the node holds does not grow."""

    async def body(node: FakeNode) -> None:
        token = base64.b64encode(b"guest:guest").decode()
        head = {"authorization": f"Basic {token}"}
        message = json.dumps(
            {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
        ).encode()
        get = json.dumps({"ackmode": "ack_requeue_false", "encoding": "auto"}).encode()
        asked = [
            Request("POST", ("api", "exchanges", "/", "amq.default", "publish"), {}, head, message),
            Request("POST", ("api", "queues", "/", "q", "get"), {}, head, get),
            Request("PUT", ("api", "exchanges", "/", "e"), {}, head, b"{}"),
            Request("DELETE", ("api", "exchanges", "/", "e"), {}, head),
            Request("GET", ("metrics",), {}, head),
            Request("GET", ("api", "definitions"), {}, head),
        ]

        async def go(times: int) -> int:
            for _ in range(times):
                for each in asked:
                    assert (await respond(node, each)).status < 300, each
            gc.collect()
            return len(gc.get_objects())

        await begun(node)
        await go(20)
        first = await go(30)
        assert await go(120) - first < 300

    on_node(body)
