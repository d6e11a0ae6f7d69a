"""The headers CC and BCC: more routing keys, one of them for no consumer to see."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import body, commands, header

from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import RawClient

pytestmark = pytest.mark.local


def publish(client: RawClient, headers: dict[str, Any], *, key: str = "a", **where: Any) -> None:
    properties = commands.Basic.Properties(headers=headers)
    client.send(
        1,
        commands.Basic.Publish(routing_key=key, **where),
        header.ContentHeader(body_size=1, properties=properties),
        body.ContentBody(b"x"),
    )


def headers_in(client: RawClient, queue: str) -> dict[str, Any] | None:
    """Of the message in the queue, which came by key a; None: there is none."""
    client.send(1, commands.Basic.Get(queue=queue, no_ack=True))
    _, answer = client.receive()
    if isinstance(answer, commands.Basic.GetEmpty):
        return None
    assert answer.routing_key == "a"
    content: Any = client.expect(header.ContentHeader, 1)
    client.expect(body.ContentBody, 1)
    found: dict[str, Any] = content.properties.headers
    return found


def test_each_queue_gets_one_and_bcc_is_not_seen(client: RawClient) -> None:
    for queue in "abcd":
        client.declare(queue)
    publish(client, {"CC": ["b", "a", 7], "BCC": ["c", "b"], "z": 1})
    for queue in "abc":
        assert headers_in(client, queue) == {"CC": ["b", "a", 7], "z": 1}
        assert headers_in(client, queue) is None
    assert headers_in(client, "d") is None


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_exchanges_look_at_every_key(client: RawClient, kind: str) -> None:
    client.declare("q")
    client.send(1, commands.Exchange.Declare(exchange="x", exchange_type=kind))
    client.expect(commands.Exchange.DeclareOk, 1)
    client.send(1, commands.Queue.Bind(queue="q", exchange="x", routing_key="other"))
    client.expect(commands.Queue.BindOk, 1)
    publish(client, {"CC": ["other"]}, exchange="x")
    assert headers_in(client, "q") == {"CC": ["other"]}
    assert headers_in(client, "q") is None


def test_an_alternate_exchange_has_none_of_a_message_that_one_key_routes(
    client: RawClient,
) -> None:
    client.declare("q")
    client.declare("rest")
    tables: dict[str, Any] = {"rest": {}, "x": {"alternate-exchange": "rest"}}
    for name, arguments in tables.items():
        kind = "fanout" if name == "rest" else "direct"
        declare = commands.Exchange.Declare(exchange=name, exchange_type=kind, arguments=arguments)
        client.send(1, declare)
        client.expect(commands.Exchange.DeclareOk, 1)
    for queue, exchange in (("q", "x"), ("rest", "rest")):
        client.send(1, commands.Queue.Bind(queue=queue, exchange=exchange, routing_key="k"))
        client.expect(commands.Queue.BindOk, 1)
    publish(client, {"CC": ["k"]}, exchange="x")
    assert headers_in(client, "q") is not None
    assert headers_in(client, "rest") is None


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("CC", "b", "longstr"),
        ("BCC", True, "bool"),
        ("CC", {"a": 1}, "table"),
        ("CC", None, "void"),
    ],
)
def test_what_is_no_array_is_406(client: RawClient, name: str, value: object, kind: str) -> None:
    publish(client, {name: value})
    close = client.expect(commands.Channel.Close, 1)
    text = f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def test_queues_keep_the_keys_for_dead_letters(node: NodeThread, client: RawClient) -> None:
    client.declare("a")
    publish(client, {"CC": ["b"], "BCC": ["c"]})
    client.send(1, commands.Basic.Qos(prefetch_count=0))
    client.expect(commands.Basic.QosOk, 1)
    assert node.do(lambda world: world.queue("a").ready[0].content.also) == ("b", "c")
