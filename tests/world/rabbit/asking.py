"""Asking a fake node, in a few words."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from shalott.broker.base.http_api import Request, Response
from shalott.broker.rabbit.management.api import respond
from tests.world.rabbit.management_node import FakeNode

GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()
QUEUE = "/api/queues/%2F/orders"
POLICY = "/api/policies/%2F/ha"


def on_node(body: Callable[[FakeNode], Awaitable[None]]) -> None:
    async def run() -> None:
        node = FakeNode()
        try:
            await body(node)
        finally:
            await node.stop()

    asyncio.run(run())


async def ask(
    node: FakeNode, method: str, path: str, body: Any = None, *, authorization: str = GUEST
) -> Response:
    path, _, query = path.partition("?")
    return await respond(
        node,
        Request(
            method=method,
            segments=tuple(unquote(part) for part in path.strip("/").split("/")),
            query=dict(pair.split("=") for pair in query.split("&") if pair),
            headers={"authorization": authorization},
            body=b"" if body is None else json.dumps(body).encode(),
        ),
    )


async def get(node: FakeNode, path: str, status: int = 200) -> Any:
    response = await ask(node, "GET", path)
    assert response.status == status, response.body
    return json.loads(response.body)


def reason(response: Response) -> str:
    answer = json.loads(response.body)
    assert sorted(answer) == ["error", "reason"]
    return str(answer["reason"])
