"""Who may ask; nodes, topology, clients and health, on a fake node."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shalott.broker.base.http_api import Request
from shalott.broker.rabbit.amqp.connection import ConnectionInfo
from shalott.broker.rabbit.amqp.services import ChannelInfo, ConsumerInfo
from shalott.broker.rabbit.management.api import respond
from shalott.broker.rabbit.metadata.records import (
    BindingRow,
    ExchangeRow,
    binding_key,
    exchange_key,
)
from shalott.broker.rabbit.processes.messages import Pid
from tests.world.rabbit.asking import QUEUE, ask, get, on_node, reason
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit


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
        for path in (
            "/x",
            "/page/../api.py",
            "/api",
            "/api/nothing",
            "/api/queues/%2F/a/b/c",
            "/api/queues/absent",
        ):
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
            "exchanges": 7,
            "consumers": 4,
            "connections": 1,
            "channels": 2,
        }
        assert shown["node"] == "n1"
        assert {each["protocol"] for each in shown["listeners"]} == {"amqp", "clustering", "http"}
        assert [(each["node"], each["port"]) for each in shown["contexts"]] == [("n1", "15672")]

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
        assert declared["properties_key"].startswith("a.%23~")
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
        assert node.closed == [(Pid("n1", 3, 99), "Closed via management plugin")]
        assert (await ask(node, "DELETE", "/api/connections/none")).status == 404

    on_node(body)


def test_channels_and_consumers_are_listed() -> None:
    """Of a queue with a single active consumer the master says which one it is."""

    async def body(node: FakeNode) -> None:
        await node.add_queue("orders", arguments={"x-single-active-consumer": True})
        node.clients = [connection("10.0.0.9:5000 -> 10.0.0.1:5672")]
        plain = {"no_ack": False, "exclusive": False, "prefetch": 5, "priority": 0}
        node.opened = [
            ChannelInfo(
                number=3,
                pid=Pid("n1", 3, 100),
                confirms=True,
                prefetch=5,
                channel_prefetch=0,
                unacknowledged=2,
                unconfirmed=1,
                consumers=(
                    ConsumerInfo(tag="a", queue="orders", **plain),
                    ConsumerInfo(tag="b", queue="others", **plain | {"priority": 2}),
                ),
            )
        ]
        (channel,) = await get(node, "/api/channels")
        assert channel["name"] == "10.0.0.9:5000 -> 10.0.0.1:5672 (3)"
        assert (channel["consumer_count"], channel["messages_unacknowledged"]) == (2, 2)
        first, second = await get(node, "/api/consumers/%2F")
        assert (first["queue"]["name"], first["active"]) == ("orders", False)
        assert (second["queue"]["name"], second["active"]) == ("others", True)
        assert second["arguments"] == {"x-priority": 2}
        assert (await ask(node, "GET", "/api/consumers/other")).status == 404

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
        checks = (
            *("alarms", "local-alarms", "virtual-hosts"),
            *("port-listener/5672", "protocol-listener/amqp091"),
        )
        for check in checks:
            assert (await get(node, f"/api/health/checks/{check}"))["status"] == "ok"
        assert await get(node, "/api/healthchecks/node") == {"status": "ok"}
        node.alarms.note("n1", "disk", is_on=True)
        node.phase = "paused"
        for check in checks:
            assert (await get(node, f"/api/health/checks/{check}", 503))["status"] == "failed"
        answer = await get(node, "/api/healthchecks/node")
        assert answer == {"status": "failed", "reason": "the broker on this node is paused"}
        assert (await ask(node, "GET", "/api/health/checks/port-listener/x")).status == 400
        assert (await get(node, "/api/health/checks/node-is-quorum-critical")) == {"status": "ok"}

    on_node(body)


def test_who_tried_to_log_in() -> None:
    async def body(node: FakeNode) -> None:
        form = (b"username=guest&password=guest", b"username=guest&password=no", b"\xff")
        answers = [
            await respond(node, Request("POST", ("api", "login"), body=each)) for each in form
        ]
        assert [answer.status for answer in answers] == [200, 401, 401]
        cookie = base64.b64encode(b"guest:guest").decode()
        assert answers[0].headers["Set-Cookie"] == f"auth={cookie}; Version=1"
        open_to_all = await ask(node, "GET", "/api/auth", authorization="")
        assert json.loads(open_to_all.body)["enable_uaa"] is False
        assert await get(node, "/api/auth/attempts/n1") == []
        node.counts.add("auth_attempts_succeeded", 2)
        node.counts.add("auth_attempts_failed")
        told = (await get(node, "/api/auth/attempts/n1"))[0]
        assert told == {
            "protocol": "amqp091",
            "auth_attempts": 3,
            "auth_attempts_failed": 1,
            "auth_attempts_succeeded": 2,
        }
        assert (await ask(node, "DELETE", "/api/auth/attempts/n1")).status == 204
        assert await get(node, "/api/auth/attempts/n1") == []
        await get(node, "/api/auth/attempts/n9", 404)

    on_node(body)


def test_what_tools_ask_for_beside_all_else() -> None:
    async def body(node: FakeNode) -> None:
        assert await get(node, "/api/extensions") == []
        flags = [flag["name"] for flag in await get(node, "/api/feature-flags")]
        assert "user_limits" in flags and "quorum_queue" not in flags
        for name, status in (("user_limits", 204), ("quorum_queue", 400)):
            answer = await ask(node, "PUT", f"/api/feature-flags/{name}/enable")
            assert answer.status == status
        node.metadata.running = ["n1"]
        node.rates.message_stats("q", {"publish": 1}, 0)
        assert (await ask(node, "DELETE", "/api/reset/n9")).status == 404
        assert (await ask(node, "DELETE", "/api/reset")).status == 204
        told = node.rates.message_stats("q", {"publish": 6}, 5_000_000_000)
        assert told["publish_details"] == {"rate": 0.0}, "its count begins here"
        path = "/api/topic-permissions/%2F/guest"
        for exchange in ("a", "b"):
            body = {"exchange": exchange, "write": "", "read": ""}
            assert (await ask(node, "PUT", path, body)).status == 201
        assert [each["exchange"] for each in await get(node, f"{path}/a")] == ["a"]
        assert (await ask(node, "DELETE", f"{path}/a")).status == 204
        assert [each["exchange"] for each in await get(node, path)] == ["b"]
        await get(node, f"{path}/a", 404)

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
