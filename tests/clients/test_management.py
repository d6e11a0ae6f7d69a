"""Named objects as registers, against our own management API on a node that is not one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shalott.broker.base.http_api import Request, Response
from shalott.broker.base.http_server import ManagementServer
from shalott.broker.rabbit.management.api import respond
from shalott.clients.management import ManagementClient
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.op import Completion, Invocation
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit

READ = Invocation(f="read", key="policy/meta.1")
WRITE = Invocation(f="write", key="policy/meta.1", value=5)
DELETE = Invocation(f="write", key="policy/meta.1")


def run(
    body: Callable[[FakeNode, ManagementClient], Awaitable[None]], *, leader_reads: bool = True
) -> None:
    async def main() -> None:
        node = FakeNode()

        async def answer(request: Request) -> Response:
            return await respond(node, request)

        server = ManagementServer(answer, host="127.0.0.1", port=0)
        await server.start()
        client = ManagementClient("127.0.0.1", server.port, leader_reads=leader_reads)
        try:
            await body(node, client)
        finally:
            await server.stop()
            await node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("leader_reads", [True, False])
def test_a_policy_is_written_read_and_deleted(leader_reads: bool) -> None:
    async def body(node: FakeNode, client: ManagementClient) -> None:
        assert await client.invoke(READ) == Completion(type="ok")
        assert (await client.invoke(WRITE)).type == "ok"
        assert await client.invoke(READ) == Completion(type="ok", value=5)
        assert (await client.invoke(DELETE)).type == "ok"
        assert await client.invoke(DELETE) == Completion(type="fail", error="absent")
        assert await client.invoke(READ) == Completion(type="ok")

    run(body, leader_reads=leader_reads)


def test_a_queue_holds_one_or_nothing() -> None:
    async def body(node: FakeNode, client: ManagementClient) -> None:
        read = Invocation(f="read", key="queue/orders")
        assert await client.invoke(read) == Completion(type="ok")
        await node.add_queue("orders")
        assert await client.invoke(read) == Completion(type="ok", value=1)

    run(body)


def test_a_write_without_an_answer_from_the_leader_is_an_info_and_a_read_a_fail() -> None:
    async def body(node: FakeNode, client: ManagementClient) -> None:
        await client.invoke(WRITE)
        node.metadata.is_available = False
        for invocation in (WRITE, DELETE):
            with pytest.raises(Indefinite, match="outcome is unknown"):
                await client.invoke(invocation)
        with pytest.raises(Definite, match="503"):
            await client.invoke(READ)

    run(body)


def test_a_broker_that_does_not_run_has_certainly_written_nothing() -> None:
    async def body(node: FakeNode, client: ManagementClient) -> None:
        node.queues = None
        node.phase = "paused"
        for invocation in (WRITE, DELETE):
            with pytest.raises(Definite, match="the broker on this node is paused"):
                await client.invoke(invocation)

    run(body)


def test_a_local_read_is_answered_without_a_leader() -> None:
    async def body(node: FakeNode, client: ManagementClient) -> None:
        await client.invoke(WRITE)
        node.metadata.is_available = False
        assert await client.invoke(READ) == Completion(type="ok", value=5)

    run(body, leader_reads=False)


def test_a_policy_of_somebody_else_is_corrupted() -> None:
    async def body(node: FakeNode, client: ManagementClient) -> None:
        api = client._api
        policy = {"pattern": "^", "definition": {"ha-mode": "all"}}
        await api.put("/api/policies/%2F/meta.1", policy)
        assert await client.invoke(READ) == Completion(type="ok", error="corrupted")

    run(body)


def test_a_node_that_does_not_listen_wants_a_new_client() -> None:
    async def main() -> None:
        async def answer(request: Request) -> Response:
            return Response(204)

        server = ManagementServer(answer, host="127.0.0.1", port=0)
        await server.start()
        await server.stop()
        client = ManagementClient("127.0.0.1", server.port)
        with pytest.raises(Unreachable):
            await client.invoke(WRITE)

    asyncio.run(main())
