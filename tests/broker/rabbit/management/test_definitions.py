"""What is declared, exported and imported; parameters and limits; messages; what a query asks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shalott.broker.base.http_api import ApiError, Request, bad_request
from shalott.broker.rabbit.management.direct_channel import open_channel
from tests.world.rabbit.asking import ask, get, on_node, reason
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit

# As RabbitMQ 3.10.8 exports what was declared with rabbitmqadmin.
ORIGINAL: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "users": [
        {
            "name": "u1",
            "password_hash": "PxjHynWfTBlPO7KcvCbUjdtQN5/JvgYcABIR7S9JqT1En2HU",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring"],
            "limits": {"max-channels": 2},
        }
    ],
    "vhosts": [{"name": "/"}, {"name": "v1"}],
    "permissions": [{"user": "u1", "vhost": "v1", "configure": ".*", "write": ".*", "read": ".*"}],
    "topic_permissions": [
        {"user": "u1", "vhost": "v1", "exchange": "amq.topic", "write": "a", "read": "b"}
    ],
    "parameters": [
        {
            "value": {"max-connections": 10},
            "vhost": "v1",
            "component": "vhost-limits",
            "name": "limits",
        },
        {
            "value": {
                "pattern": "^q",
                "definition": {"max-length": 50},
                "priority": 0,
                "apply-to": "all",
            },
            "vhost": "/",
            "component": "operator_policy",
            "name": "op",
        },
    ],
    "global_parameters": [{"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-FY"}],
    "policies": [
        {
            "vhost": "/",
            "name": "p",
            "pattern": "^q",
            "apply-to": "queues",
            "definition": {"max-length": 100},
            "priority": 1,
        }
    ],
    "queues": [
        {
            "name": "q1",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-length": 5},
        }
    ],
    "exchanges": [
        {
            "name": "e1",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "bindings": [
        {
            "source": "e1",
            "vhost": "/",
            "destination": "q1",
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {},
        }
    ],
}


def test_rabbitmqs_definitions_go_in_and_come_out() -> None:
    async def body(node: FakeNode) -> None:
        assert (await ask(node, "POST", "/api/definitions", ORIGINAL)).status == 204
        told = await get(node, "/api/definitions")
        for kind, wanted in ORIGINAL.items():
            if isinstance(wanted, list):
                names = [each.get("name", each.get("user")) for each in told[kind]]
                found = [each for each in told[kind] if each.get("name") != "guest"]
                found = [each for each in found if each.get("user") != "guest"]
                for each in found:
                    each.pop("metadata", None)
                assert found == wanted, (kind, names)
        assert told["rabbit_version"] == "3.10.8"
        assert (await ask(node, "POST", "/api/definitions", told)).status == 204
        assert await get(node, "/api/definitions") == {
            **told,
            "vhosts": (await get(node, "/api/definitions"))["vhosts"],
        }
        own = await get(node, "/api/definitions/%2F")
        assert (own["queues"][0].get("vhost"), len(own["bindings"])) == (None, 1)
        assert "users" not in own
        await ask(node, "PUT", "/api/vhosts/v2")
        assert (await ask(node, "POST", "/api/definitions/v2", own)).status == 204
        assert [each["name"] for each in await get(node, "/api/queues/v2")] == ["q1"]

    on_node(body)


@pytest.mark.parametrize(
    ("definitions", "text"),
    [
        ({"users": 5}, "users: Expected `array`"),
        ({"queues": [{"name": "q"}]}, "vhost is missing"),
        ({"exchanges": [{"name": "e", "vhost": "none", "type": "direct"}]}, "Not Found"),
        (
            {"policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {"x": 1}}]},
            "are not recognised policy settings",
        ),
        (
            {"parameters": [{"name": "p", "vhost": "/", "component": "x", "value": 1}]},
            "x not found",
        ),
    ],
)
def test_what_can_not_be_imported_is_refused(definitions: Any, text: str) -> None:
    async def body(node: FakeNode) -> None:
        response = await ask(node, "POST", "/api/definitions", definitions)
        assert response.status == 400
        assert text in reason(response)

    on_node(body)


def test_what_is_there_stays_and_a_loose_binding_is_left_out() -> None:
    async def body(node: FakeNode) -> None:
        await node.add_queue("q1")
        told = {
            "queues": [{"name": "q1", "vhost": "/", "durable": False}],
            "exchanges": [{"name": "amq.topic", "vhost": "/", "type": "fanout"}],
            "bindings": [
                {
                    "source": "none",
                    "vhost": "/",
                    "destination": "q1",
                    "destination_type": "queue",
                    "routing_key": "k",
                }
            ],
        }
        assert (await ask(node, "POST", "/api/definitions", told)).status == 204
        assert (await get(node, "/api/queues/%2F/q1"))["durable"] is True
        assert [each["source"] for each in await get(node, "/api/bindings")] == [""]

    on_node(body)


def test_limits_of_vhosts_are_a_parameter() -> None:
    async def body(node: FakeNode) -> None:
        path = "/api/vhost-limits/%2F"
        assert (await ask(node, "PUT", f"{path}/max-queues", {"value": 1})).status == 204
        assert await get(node, "/api/vhost-limits") == [{"vhost": "/", "value": {"max-queues": 1}}]
        (shown,) = await get(node, "/api/parameters/vhost-limits")
        assert shown["value"] == {"max-queues": 1}
        assert (await ask(node, "PUT", "/api/queues/%2F/a", {})).status == 201
        assert (await ask(node, "PUT", "/api/queues/%2F/a", {})).status == 204
        response = await ask(node, "PUT", "/api/queues/%2F/b", {})
        assert "queue limit in vhost '/' (1) is reached" in reason(response)
        assert (await ask(node, "PUT", f"{path}/most", {"value": 1})).status == 400
        assert (await ask(node, "PUT", f"{path}/max-queues", {"value": "x"})).status == 400
        assert (await ask(node, "DELETE", f"{path}/max-queues")).status == 204
        assert await get(node, "/api/parameters") == []
        assert (await ask(node, "DELETE", "/api/parameters/vhost-limits/%2F/limits")).status == 404

    on_node(body)


def test_the_cluster_has_a_name_and_parameters() -> None:
    async def body(node: FakeNode) -> None:
        assert await get(node, "/api/cluster-name") == {"name": "shalott"}
        assert (await ask(node, "PUT", "/api/cluster-name", {"name": "west"})).status == 204
        assert (await get(node, "/api/overview"))["cluster_name"] == "west"
        path = "/api/global-parameters/x"
        assert (await ask(node, "PUT", path, {"value": [1]})).status == 201
        assert await get(node, path) == {"name": "x", "value": [1]}
        assert (await ask(node, "DELETE", path)).status == 204
        assert (await ask(node, "GET", path)).status == 404

    on_node(body)


def test_exchanges_and_bindings_are_made_as_a_client_makes_them() -> None:
    async def body(node: FakeNode) -> None:
        await ask(node, "PUT", "/api/vhosts/v1")
        await node.add_queue("orders")
        await ask(node, "PUT", "/api/exchanges/%2F/logs", {"type": "topic", "durable": "true"})
        path = "/api/exchanges/%2F/logs"
        assert (await get(node, path))["durable"] is True
        response = await ask(node, "PUT", path, {"type": "topic"})
        assert "inequivalent arg 'durable' for exchange 'logs'" in reason(response)
        assert (await ask(node, "PUT", path, {"type": "none"})).status == 400
        assert (await ask(node, "PUT", "/api/exchanges/%2F/amq.x", {})).status == 401
        assert (await ask(node, "PUT", f"/api/exchanges/%2F/{'x' * 300}", {})).status == 400
        bound = "/api/bindings/%2F/e/logs/q/orders"
        made = await ask(node, "POST", bound, {"routing_key": "a/b", "arguments": {"n": 1}})
        assert (made.status, made.headers["Location"].startswith("orders/a%252Fb~")) == (201, True)
        (shown,) = await get(node, bound)
        one = f"{bound}/{shown['properties_key'].replace('%', '%25')}"
        assert await get(node, one) == shown
        assert (await get(node, f"{path}/bindings/source")) == [shown]
        assert (await ask(node, "DELETE", f"{path}?if-unused=true")).status == 400
        assert (await ask(node, "DELETE", one)).status == 204
        assert (await ask(node, "DELETE", one)).status == 404
        assert (await ask(node, "POST", f"{bound}x", {})).status == 404
        assert (await ask(node, "PUT", "/api/exchanges/%2F/sink", {})).status == 201
        assert (await ask(node, "POST", "/api/bindings/%2F/e/logs/e/sink", {})).status == 201
        (there,) = await get(node, "/api/exchanges/%2F/sink/bindings/destination")
        assert (there["source"], there["destination_type"]) == ("logs", "exchange")
        assert (await ask(node, "DELETE", path)).status == 204
        assert (await ask(node, "GET", path)).status == 404

    on_node(body)


def test_messages_are_published_and_fetched() -> None:
    async def body(node: FakeNode) -> None:
        await node.add_queue("orders")
        path = "/api/exchanges/%2F/amq.default/publish"
        message = {
            "routing_key": "orders",
            "payload": "aGk=",
            "payload_encoding": "base64",
            "properties": {"delivery_mode": 2, "headers": {"a": [1, True, None]}, "type": "t"},
        }
        response = await ask(node, "POST", path, message)
        assert json.loads(response.body) == {"routed": True}
        response = await ask(node, "POST", path, {**message, "routing_key": "none"})
        assert json.loads(response.body) == {"routed": False}
        for wrong in (
            {"properties": {"none": 1}},
            {"properties": {"priority": "high"}},
            {"properties": {"headers": 1}},
            {"properties": {"timestamp": 10**20}},
            {"payload_encoding": "rot13"},
            {"payload": "a", "payload_encoding": "base64"},
        ):
            response = await ask(node, "POST", path, {**message, **wrong})
            assert response.status == 400, wrong
        asked = {"count": "9", "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": 1}
        response = await ask(node, "POST", "/api/queues/%2F/orders/get", asked)
        assert json.loads(response.body) == [
            {
                "payload_bytes": 2,
                "redelivered": False,
                "exchange": "",
                "routing_key": "orders",
                "message_count": 0,
                "properties": message["properties"],
                "payload": "h",
                "payload_encoding": "string",
            }
        ]
        missing = await ask(node, "POST", "/api/queues/%2F/none/get", asked)
        assert missing.status == 404

    on_node(body)


def test_a_channel_ends_with_its_request_however_that_ends() -> None:
    async def body(node: FakeNode) -> None:
        request = Request("GET", (), user="guest")
        with pytest.raises(ApiError):
            async with open_channel(node, request, "/") as channel:
                pid = channel.pid
                assert node.runtime.is_alive(pid)
                raise bad_request("nothing was told to it")
        assert not node.runtime.is_alive(pid)

    on_node(body)


def test_a_query_asks_for_columns_an_order_and_pages() -> None:
    async def body(node: FakeNode) -> None:
        for name in ("b", "a", "c"):
            await node.add_queue(name)
        shown = await get(node, "/api/queues?columns=name,backing_queue_status.len&sort=name")
        assert shown == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
        shown = await get(node, "/api/queues?sort=name&sort_reverse=true&columns=name")
        assert [each["name"] for each in shown] == ["c", "b", "a"]
        page = await get(node, "/api/queues?page=2&page_size=2&columns=name&sort=name")
        assert page == {
            "filtered_count": 3,
            "item_count": 1,
            "items": [{"name": "c"}],
            "page": 2,
            "page_count": 2,
            "page_size": 2,
            "total_count": 3,
        }
        assert (await get(node, "/api/queues?page=1&name=[ab]&use_regex=true"))["item_count"] == 2
        shown = await get(node, "/api/overview?columns=queue_totals.messages,none.such")
        assert shown == {"queue_totals": {"messages": 3}}  # one out of each
        for wrong in ("page=3&page_size=2", "page=x", "page=0", "page=1&page_size=501"):
            assert (await ask(node, "GET", f"/api/queues?{wrong}")).status == 400, wrong

    on_node(body)
