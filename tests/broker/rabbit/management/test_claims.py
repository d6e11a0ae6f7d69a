"""A node's own claims, on a fake node."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rabbit.management import views as claims_module
from shalott.broker.rabbit.processes.messages import Message, Pid
from shalott.broker.rabbit.processes.runtime import Caller
from tests.world.rabbit.asking import get, on_node
from tests.world.rabbit.management_node import FakeNode, FakeQueue

pytestmark = pytest.mark.unit


def claims_by_group(answer: Any) -> dict[str, dict[str, Any]]:
    return {claim["group"]: claim for claim in answer["claims"]}


def test_claims_come_from_the_nodes_own_processes() -> None:
    """The row says that n2 is master; the process here says that it is. Both masters must show."""

    async def body(node: FakeNode) -> None:
        process = await node.add_queue("orders", pid=Pid("n2", 1, 1), slave_pids=(Pid("n3", 1, 1),))
        process.messages = [None] * 4  # type: ignore[list-item]
        node.runtime.link_up("n2", 1)
        await node.add_queue("elsewhere", pid=Pid("n2", 1, 2))
        del node.processes["elsewhere@/"]
        node.reported = {"n1": ["n3"]}
        answer = await get(node, "/api/shalott/claims")
        assert (answer["node"], answer["status"]) == ("n1", "running")
        assert answer["running_nodes"] == ["n1", "n2", "n3"]
        assert answer["partitions"] == ["n3"]
        claims = claims_by_group(answer)
        assert claims["orders"] == {
            "group": "orders",
            "role": "master",
            "epoch": 7,
            "master": "n1",
            "mirrors": ["n3"],
            "synchronised": [],
            "state": "running",
            "messages": 5,
        }
        assert (claims["elsewhere"]["role"], claims["elsewhere"]["master"]) == ("none", "n2")
        assert claims["elsewhere"]["state"] == "running"

    on_node(body)


def test_claims_of_a_mirror_and_of_a_queue_without_a_row() -> None:
    async def body(node: FakeNode) -> None:
        process = await node.add_queue("orders", pid=Pid("n2", 1, 1))
        process.role = "mirror"
        orphan = FakeQueue("orphan@/")
        node.runtime.spawn(orphan)
        node.processes["orphan@/"] = orphan
        claims = claims_by_group(await get(node, "/api/shalott/claims"))
        assert (claims["orders"]["role"], claims["orders"]["master"]) == ("mirror", "n2")
        assert (claims["orphan"]["role"], claims["orphan"]["mirrors"]) == ("master", [])

    on_node(body)


class Declaring(FakeQueue):
    """While it is asked, another queue comes."""

    def __init__(self, key: str, queues: dict[str, Pid]) -> None:
        super().__init__(key)
        self.queues = queues

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        self.queues["new@/"] = self.pid
        return await super().handle_call(request, caller)


def test_a_queue_that_comes_while_the_processes_are_asked_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a node says of its queues is the supervisor's own table, which goes on changing."""

    async def body(node: FakeNode) -> None:
        queues: dict[str, Pid] = {}
        asked = Declaring("orders@/", queues)
        queues["orders@/"] = node.runtime.spawn(asked)
        monkeypatch.setattr(node, "local_queues", lambda: queues)
        claims = claims_by_group(await get(node, "/api/shalott/claims"))
        assert list(claims) == ["orders"] and "new@/" in queues

    on_node(body)


def test_claims_are_answered_while_paused_and_when_a_process_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims_module, "CLAIM_TIMEOUT_MS", 20)

    async def body(node: FakeNode) -> None:
        (await node.add_queue("orders")).is_mute = True
        claims = claims_by_group(await get(node, "/api/shalott/claims"))
        assert (claims["orders"]["role"], claims["orders"]["state"]) == ("master", "unresponsive")
        await node.stop()
        claims = claims_by_group(await get(node, "/api/shalott/claims"))
        assert claims["orders"]["role"] == "none"
        node.processes = {}
        node.phase, node.queues, node.metadata.running = "paused", None, []
        answer = await get(node, "/api/shalott/claims")
        assert (answer["status"], answer["running_nodes"]) == ("paused", [])
        assert claims_by_group(answer)["orders"]["state"] == "down"

    on_node(body)
