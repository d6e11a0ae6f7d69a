"""What an operator does to queues and policies, on a fake node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shalott.broker.rabbit.management import queues as queue_view
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.messages import SyncQueue
from shalott.broker.rabbit.processes.messages import Pid
from tests.world.rabbit.asking import POLICY, QUEUE, ask, get, on_node, reason
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit


# -- queues ----------------------------------------------------------------------------------------


def test_a_queue_is_shown_with_its_mirrors_and_depths() -> None:
    async def body(node: FakeNode) -> None:
        mirrors = (Pid("n2", 1, 5), Pid("n3", 1, 6))
        process = await node.add_queue(
            "orders",
            slave_pids=mirrors,
            sync_slave_pids=mirrors[:1],
            recoverable_slaves=("n2", "n3"),
            policy="ha",
            definition={"ha-mode": "all"},
            arguments={"x-max-length": 5},
        )
        process.messages = [None, None]  # type: ignore[list-item]
        expected = {
            "name": "orders",
            "vhost": "/",
            "type": "classic",
            "pid": str(process.pid),
            "slave_pids": ["<n2.1.5>", "<n3.1.6>"],
            "sync_slave_pids": ["<n2.1.5>"],
            "gm_pids": [],
            "durable": True,
            "auto_delete": False,
            "exclusive": False,
            "arguments": {"x-max-length": 5},
            "node": "n1",
            "slave_nodes": ["n2", "n3"],
            "synchronised_slave_nodes": ["n2"],
            "recoverable_slaves": ["n2", "n3"],
            "policy": "ha",
            "operator_policy": None,
            "effective_policy_definition": {"ha-mode": "all"},
            "state": "running",
            "messages": 3,
            "messages_ready": 2,
            "messages_unacknowledged": 1,
            "consumers": 2,
        }
        assert await get(node, QUEUE) == expected
        assert await get(node, "/api/queues") == [expected]
        assert await get(node, "/api/queues/%2F") == [expected]

    on_node(body)


def test_queues_whose_master_is_gone_are_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_view, "STAT_TIMEOUT_MS", 20)

    async def body(node: FakeNode) -> None:
        await node.add_queue("remote", pid=Pid("n2", 1, 1))
        waiting = QueueRow(
            vhost="/", name="waiting", durable=True, auto_delete=False, pid=Pid("n3", 1, 1)
        )
        node.metadata.put("durable_queue", waiting)
        (await node.add_queue("mute")).is_mute = True
        await node.add_queue("stopped", state="stopped")
        shown = {queue["name"]: queue for queue in await get(node, "/api/queues")}
        states = {name: queue["state"] for name, queue in shown.items()}
        assert states == {
            "remote": "down",
            "waiting": "down",
            "mute": "unresponsive",
            "stopped": "stopped",
        }
        assert all("messages" not in queue for queue in shown.values())
        assert shown["waiting"]["node"] == "n3"

    on_node(body)


def test_put_declares_a_queue_once() -> None:
    async def body(node: FakeNode) -> None:
        definition = {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 9}}
        assert (await ask(node, "PUT", QUEUE, definition)).status == 201
        assert (await ask(node, "PUT", QUEUE, definition)).status == 204
        row = node.lookup("/", "orders")
        assert row is not None
        assert (row.durable, row.arguments) == (True, {"x-max-length": 9})
        response = await ask(node, "PUT", QUEUE, {**definition, "durable": False})
        assert response.status == 400
        assert "inequivalent arg 'durable' for queue 'orders'" in reason(response)

    on_node(body)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"durable": "yes"}, "not_boolean: yes"),
        ({"durable": 1}, "Expected `bool | str`, got `int` - at `$.durable`"),
        ({"arguments": {"x-max-length": -1}}, "{value_negative,"),
        ({"arguments": {"x-queue-type": "quorum"}}, "unsupported queue type"),
        ({"node": "rabbit@n9"}, "the broker does not run on node rabbit@n9"),
        ([], "Expected `object`"),
    ],
)
def test_put_refuses_what_can_not_be(definition: Any, text: str) -> None:
    async def body(node: FakeNode) -> None:
        response = await ask(node, "PUT", QUEUE, definition)
        assert response.status == 400
        assert json.loads(response.body)["error"] == "bad_request"
        assert text in reason(response)
        assert node.lookup("/", "orders") is None

    on_node(body)


def test_delete_and_its_conditions() -> None:
    async def body(node: FakeNode) -> None:
        assert (await ask(node, "DELETE", QUEUE)).status == 404
        process = await node.add_queue("orders")
        process.messages = [None]  # type: ignore[list-item]
        response = await ask(node, "DELETE", QUEUE + "?if-empty=true")
        assert response.status == 400
        assert reason(response) == "queue 'orders' is not empty"
        assert (await ask(node, "DELETE", QUEUE + "?if-unused=true")).status == 204
        assert (await ask(node, "GET", QUEUE)).status == 404

    on_node(body)


def test_purge_and_actions_reach_the_master() -> None:
    async def body(node: FakeNode) -> None:
        process = await node.add_queue("orders")
        process.messages = [None]  # type: ignore[list-item]
        assert (await ask(node, "DELETE", QUEUE + "/contents")).status == 204
        assert process.messages == []
        assert (await ask(node, "POST", QUEUE + "/actions", {"action": "sync"})).status == 204
        assert process.asked[-1] == SyncQueue()
        response = await ask(node, "POST", QUEUE + "/actions", {"action": "cancel_sync"})
        assert (response.status, "it has no mirrors" in reason(response)) == (400, True)
        for wrong in ({"action": "explode"}, {}, None):
            response = await ask(node, "POST", QUEUE + "/actions", wrong)
            assert response.status == 400
            assert "unknown action" in reason(response)

    on_node(body)


def test_writes_wait_for_a_running_broker() -> None:
    async def body(node: FakeNode) -> None:
        await node.add_queue("orders")
        node.queues, node.phase = None, "paused"
        for method, path, content in (
            ("PUT", QUEUE, {}),
            ("DELETE", QUEUE, None),
            ("DELETE", QUEUE + "/contents", None),
            ("POST", QUEUE + "/actions", {"action": "sync"}),
            ("PUT", POLICY, {"pattern": "^", "definition": {"ha-mode": "all"}}),
            ("DELETE", POLICY, None),
        ):
            response = await ask(node, method, path, content)
            assert response.status == 503, (method, path)
            assert "paused" in reason(response)
        assert (await ask(node, "GET", QUEUE)).status == 200

    on_node(body)


# -- policies --------------------------------------------------------------------------------------


def test_policies_are_set_listed_replaced_and_cleared() -> None:
    async def body(node: FakeNode) -> None:
        definition = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "manually"}
        policy = {"pattern": "^hello", "definition": definition, "priority": 3}
        assert (await ask(node, "PUT", POLICY, policy)).status == 201
        shown = {
            "vhost": "/",
            "name": "ha",
            "pattern": "^hello",
            "apply-to": "all",
            "definition": {**definition, "ha-sync-mode": "manual"},
            "priority": 3,
        }
        assert await get(node, POLICY) == shown
        assert await get(node, "/api/policies") == [shown]
        assert await get(node, "/api/policies/%2F") == [shown]
        policy = {"pattern": "", "definition": {"ha-mode": "all"}, "apply-to": "queues"}
        assert (await ask(node, "PUT", POLICY, policy)).status == 204
        assert (await get(node, POLICY))["apply-to"] == "queues"
        assert (await ask(node, "DELETE", POLICY)).status == 204
        assert (await ask(node, "DELETE", POLICY)).status == 404
        assert (await ask(node, "GET", POLICY)).status == 404
        assert await get(node, "/api/policies") == []

    on_node(body)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({}, "missing required field `pattern`"),
        ({"pattern": "("}, "missing required field `definition`"),
        ({"pattern": "(", "definition": {"ha-mode": "all"}}, "not a regular expression"),
        ({"pattern": "^", "definition": {}}, "the definition is empty"),
        ({"pattern": "^", "definition": {"ha-mode": "most"}}, "ha-mode must be one of"),
        ({"pattern": "^", "definition": {"ha-mode": "exactly"}}, "ha-params must be a number"),
        ({"pattern": "^", "definition": {"ha-mode": "all"}, "apply-to": "x"}, "apply-to"),
    ],
)
def test_a_bad_policy_is_refused_with_the_reason(policy: Any, text: str) -> None:
    async def body(node: FakeNode) -> None:
        response = await ask(node, "PUT", POLICY, policy)
        assert response.status == 400
        assert text in reason(response)
        assert await get(node, "/api/policies") == []

    on_node(body)


def test_a_consistent_read_needs_a_leader_and_a_plain_one_does_not() -> None:
    async def body(node: FakeNode) -> None:
        await node.add_queue("orders")
        policy = {"pattern": "^", "definition": {"max-length": 7}}
        await ask(node, "PUT", POLICY, policy)
        for path in (POLICY, QUEUE):
            assert await get(node, f"{path}?consistent=true") == await get(node, path)
            assert (await ask(node, "GET", f"{path}x?consistent=true")).status == 404
        node.metadata.is_available = False
        for path in (POLICY, QUEUE):
            assert (await ask(node, "GET", f"{path}?consistent=true")).status == 503
            assert (await ask(node, "GET", path)).status == 200

    on_node(body)


def test_a_write_without_a_leader_is_unavailable() -> None:
    async def body(node: FakeNode) -> None:
        node.metadata.is_available = False
        policy = {"pattern": "^", "definition": {"ha-mode": "all"}}
        response = await ask(node, "PUT", POLICY, policy)
        assert response.status == 503
        assert "outcome is unknown" in reason(response)

    on_node(body)
