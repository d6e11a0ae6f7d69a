"""The management API as a function of requests, on a fake node."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import pytest

from broker.amqp.connection import ConnectionInfo
from broker.management import claims as claims_module
from broker.management import queue_view
from broker.management.api import respond
from broker.management.http import Request, Response
from broker.metadata.records import BindingRow, ExchangeRow, QueueRow, binding_key, exchange_key
from broker.mirrored.messages import SyncQueue
from broker.processes.messages import Pid
from tests.broker.management.fake_node import FakeNode, FakeQueue

pytestmark = pytest.mark.unit

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


# -- who may ask, and what for ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Basic",
        "Basic !!!",
        "Bearer " + base64.b64encode(b"guest:guest").decode(),
        "Basic " + base64.b64encode(b"guest:wrong").decode(),
        "Basic " + base64.b64encode(b"nobody:").decode(),
        "Basic " + base64.b64encode(b"guest").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
    ],
)
def test_strangers_are_refused(authorization: str) -> None:
    async def body(node: FakeNode) -> None:
        response = await ask(node, "GET", "/api/overview", authorization=authorization)
        assert response.status == 401
        assert json.loads(response.body) == {"error": "not_authorised", "reason": "Login failed"}
        assert response.headers["WWW-Authenticate"].startswith("Basic ")

    on_node(body)


def test_unknown_paths_and_methods() -> None:
    async def body(node: FakeNode) -> None:
        for path in ("/", "/api", "/api/nothing", "/api/queues/%2F/a/b/c", "/api/queues/absent"):
            response = await ask(node, "GET", path)
            assert response.status == 404, path
            answer = json.loads(response.body)
            assert answer == {"error": "Object Not Found", "reason": "Not Found"}
        response = await ask(node, "POST", "/api/overview")
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"
        assert "POST is not allowed" in reason(response)
        response = await ask(node, "PATCH", QUEUE)
        assert response.headers["Allow"] == "DELETE, GET, HEAD, PUT"

    on_node(body)


def test_whoami() -> None:
    async def body(node: FakeNode) -> None:
        assert await get(node, "/api/whoami") == {"name": "guest", "tags": ["administrator"]}

    on_node(body)


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
        ({"durable": "yes"}, "Expected `bool`, got `str` - at `$.durable`"),
        ({"arguments": {"x-max-length": -1}}, "must not be negative"),
        ({"arguments": {"x-queue-type": "quorum"}}, "must be one of: classic"),
        ({"node": "n2"}, "ask n2"),
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


def test_a_write_without_a_leader_is_unavailable() -> None:
    async def body(node: FakeNode) -> None:
        node.metadata.is_available = False
        policy = {"pattern": "^", "definition": {"ha-mode": "all"}}
        response = await ask(node, "PUT", POLICY, policy)
        assert response.status == 503
        assert "outcome is unknown" in reason(response)

    on_node(body)


# -- nodes, topology, clients ----------------------------------------------------------------------


def test_nodes_and_their_partitions() -> None:
    async def body(node: FakeNode) -> None:
        node.metadata.running = ["n1", "n2"]
        node.reported = {"n1": ["n3"], "n2": ["n3"]}
        shown = {each["name"]: each for each in await get(node, "/api/nodes")}
        assert [shown[name]["running"] for name in ("n1", "n2", "n3")] == [True, True, False]
        partitions = [shown[name]["partitions"] for name in ("n1", "n2", "n3")]
        assert partitions == [["n3"], ["n3"], []]
        assert shown["n1"]["uptime"] >= 0
        assert shown["n1"]["incarnation"] == 3
        node.phase = "paused"
        assert (await get(node, "/api/nodes/n1"))["running"] is False
        assert (await ask(node, "GET", "/api/nodes/n9")).status == 404

    on_node(body)


def test_overview_adds_up() -> None:
    async def body(node: FakeNode) -> None:
        (await node.add_queue("a")).messages = [None]  # type: ignore[list-item]
        await node.add_queue("b")
        node.clients = [connection("c")]
        shown = await get(node, "/api/overview")
        assert shown["queue_totals"] == {
            "messages": 3,
            "messages_ready": 1,
            "messages_unacknowledged": 2,
        }
        assert shown["object_totals"] == {
            "queues": 2,
            "exchanges": 6,
            "consumers": 4,
            "connections": 1,
            "channels": 2,
        }
        assert shown["node"] == "n1"
        assert {each["protocol"] for each in shown["listeners"]} == {"amqp", "clustering", "http"}

    on_node(body)


def test_exchanges_and_bindings() -> None:
    async def body(node: FakeNode) -> None:
        await node.add_queue("orders")
        logs = ExchangeRow(vhost="/", name="logs", type="topic", durable=False)
        bound = BindingRow(
            vhost="/", source="logs", destination="orders", routing_key="a.#", arguments={"x": 1}
        )

        def write(tx: Any) -> None:
            tx.write("exchange", exchange_key("/", "logs"), logs)
            tx.write("binding", binding_key(bound), bound)

        await node.metadata.transact(write)
        names = [each["name"] for each in await get(node, "/api/exchanges/%2F")]
        assert names[0] == ""
        assert {"amq.direct", "amq.topic", "logs"} <= {*names}
        assert (await get(node, "/api/exchanges/%2F/logs"))["type"] == "topic"
        assert (await get(node, "/api/exchanges/%2F/amq.default"))["name"] == ""
        assert (await ask(node, "GET", "/api/exchanges/%2F/none")).status == 404
        implied, declared = await get(node, "/api/bindings")
        assert (implied["source"], implied["properties_key"]) == ("", "orders")
        assert (declared["source"], declared["destination_type"]) == ("logs", "queue")
        assert declared["properties_key"].startswith("a.#~")
        assert [each["name"] for each in await get(node, "/api/vhosts")] == ["/"]
        assert (await get(node, "/api/vhosts/%2F"))["name"] == "/"

    on_node(body)


def connection(name: str) -> ConnectionInfo:
    return ConnectionInfo(
        name=name,
        pid=Pid("n1", 3, 99),
        user="guest",
        vhost="/",
        state="running",
        channels=2,
        peer_host="10.0.0.9",
        peer_port=5000,
        connected_at_ns=1_700_000_000_123_456_789,
    )


def test_connections_are_listed_and_closed() -> None:
    async def body(node: FakeNode) -> None:
        node.clients = [connection("10.0.0.9:5000 -> 10.0.0.1:5672")]
        (shown,) = await get(node, "/api/connections")
        assert (shown["node"], shown["connected_at"]) == ("n1", 1_700_000_000_123)
        path = "/api/connections/10.0.0.9%3A5000%20-%3E%2010.0.0.1%3A5672"
        assert await get(node, path) == shown
        assert (await ask(node, "DELETE", path)).status == 204
        assert node.closed == [(Pid("n1", 3, 99), "closed via the management API")]
        assert (await ask(node, "DELETE", "/api/connections/none")).status == 404
        assert (await ask(node, "GET", "/api/channels")).status == 501
        assert "counted for each queue" in reason(await ask(node, "GET", "/api/consumers"))

    on_node(body)


# -- health ----------------------------------------------------------------------------------------


def test_the_aliveness_test_sends_a_message_through_a_queue() -> None:
    async def body(node: FakeNode) -> None:
        assert await get(node, "/api/aliveness-test/%2F") == {"status": "ok"}
        process = node.processes["aliveness-test@/"]
        assert process.messages == []
        await node.runtime.kill(process.pid)
        answer = await get(node, "/api/aliveness-test/%2F", 503)
        assert (answer["status"], "no master" in answer["reason"]) == ("failed", True)

    on_node(body)


def test_health_follows_phase_and_disk() -> None:
    async def body(node: FakeNode) -> None:
        checks = ("alarms", "local-alarms", "virtual-hosts", "port-listener/5672")
        for check in checks:
            assert (await get(node, f"/api/health/checks/{check}"))["status"] == "ok"
        assert await get(node, "/api/healthchecks/node") == {"status": "ok"}
        node.disk.room = 1000
        node.phase = "paused"
        for check in checks:
            assert (await get(node, f"/api/health/checks/{check}", 503))["status"] == "failed"
        answer = await get(node, "/api/healthchecks/node")
        assert answer == {"status": "failed", "reason": "the broker on this node is paused"}
        assert (await ask(node, "GET", "/api/health/checks/port-listener/x")).status == 400

    on_node(body)


def test_a_node_is_critical_while_its_mirrored_queue_has_no_synchronised_mirror() -> None:
    async def body(node: FakeNode) -> None:
        path = "/api/health/checks/node-is-mirror-sync-critical"
        mirror = Pid("n2", 4, 1)
        await node.add_queue("plain")
        assert (await get(node, path))["status"] == "ok"
        await node.add_queue("orders", definition={"ha-mode": "all"}, sync_slave_pids=(mirror,))
        answer = await get(node, path, 503)
        assert [queue["name"] for queue in answer["queues"]] == ["orders"]
        node.runtime.link_up("n2", 4)
        assert (await get(node, path))["status"] == "ok"

    on_node(body)


# -- claims ----------------------------------------------------------------------------------------


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
