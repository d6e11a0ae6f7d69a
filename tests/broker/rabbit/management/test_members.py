"""Who belongs to the cluster, as an operator asks for it over the management API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Pid
from tests.world.rabbit.asking import ask, get, on_node, reason
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit

N3 = "/api/shalott/members/n3"


def without_n3(node: FakeNode) -> FakeNode:
    """n3 is down."""
    node.metadata.running = ["n1", "n2"]
    return node


def durable(name: str, master: Pid, **more: Any) -> QueueRow:
    return QueueRow(vhost="/", name=name, durable=True, auto_delete=False, pid=master, **more)


def test_every_configured_node_belongs_to_it_until_it_is_forgotten() -> None:
    async def body(node: FakeNode) -> None:
        without_n3(node)
        found = await get(node, "/api/shalott/members")
        assert found["members"] == ["n1", "n2", "n3"]
        assert found["running_nodes"] == ["n1", "n2"]
        assert (await ask(node, "DELETE", N3)).status == 204
        assert (await get(node, "/api/shalott/members"))["members"] == ["n1", "n2"]
        assert [shown["name"] for shown in await get(node, "/api/nodes")] == ["n1", "n2"]
        await get(node, "/api/nodes/n3", 404)
        assert (await ask(node, "PUT", N3)).status == 204
        assert (await get(node, "/api/shalott/members"))["members"] == ["n1", "n2", "n3"]

    on_node(body)


def test_what_rabbitmq_refuses_is_refused_in_its_words() -> None:
    async def body(node: FakeNode) -> None:
        running = await ask(node, "DELETE", N3)
        assert running.status == 400
        assert reason(running) == "RabbitMQ on node n3 must be stopped before it can be removed"
        assert (await ask(node, "DELETE", "/api/shalott/members/n1")).status == 400
        for method in ("DELETE", "PUT"):
            stranger = await ask(node, method, "/api/shalott/members/n9")
            assert stranger.status == 404
            assert reason(stranger) == "The node selected is not in the cluster"
        already = await ask(node, "PUT", N3)
        assert already.status == 400
        assert reason(already) == "The node is already a member of this cluster"
        without_n3(node)
        assert (await ask(node, "DELETE", N3)).status == 204
        assert (await ask(node, "DELETE", N3)).status == 404
        node.phase = "paused"
        assert (await ask(node, "PUT", N3)).status == 503

    on_node(body)


def test_without_a_leader_the_outcome_is_unknown() -> None:
    async def body(node: FakeNode) -> None:
        without_n3(node).metadata.is_available = False
        answer = await ask(node, "DELETE", N3)
        assert answer.status == 503 and "unknown" in json.loads(answer.body)["reason"]

    on_node(body)


def test_its_last_masters_are_deleted_or_given_to_mirrors_that_are_down() -> None:
    dead, here = Pid("n3", 1, 5), Pid("n2", 1, 6)

    async def body(node: FakeNode) -> None:
        without_n3(node).metadata.running = ["n1"]  # n2 is down as well
        for row in (
            durable("alone", dead),
            durable("inherited", dead, recoverable_slaves=("n3", "n2")),
            durable("elsewhere", here),
        ):
            node.metadata.put("durable_queue", row)
        assert (await ask(node, "DELETE", N3)).status == 204
        left = dict(node.metadata.rows("durable_queue"))
        assert sorted(left) == ["elsewhere@/", "inherited@/"]
        inherited = left["inherited@/"]
        assert isinstance(inherited, QueueRow) and inherited.pid == Pid("n2", 0, 0)

    on_node(body)


def test_a_queue_with_a_process_on_a_running_node_is_kept() -> None:
    dead, mirror = Pid("n3", 1, 5), Pid("n2", 1, 6)

    async def body(node: FakeNode) -> None:
        without_n3(node)
        row = durable("mirrored", dead, slave_pids=(mirror,))
        node.metadata.put("queue", row)
        node.metadata.put("durable_queue", durable("mirrored", dead))
        assert (await ask(node, "DELETE", N3)).status == 204
        assert node.metadata.read("queue", row.key) == row
        assert node.metadata.read("durable_queue", row.key) is not None

    on_node(body)
