"""/metrics of a running node: what it says is what its clients and queues have done."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from shalott.broker.base.http_api import Request
from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.management.metrics import GLOBALS, METRICS, respond
from shalott.cluster.local.backend import HOST
from tests.broker.rabbit.amqp.pika_flows import connected
from tests.world.processes.child import held_ports
from tests.world.processes.rabbit import NodeProcess, nodes, running_nodes
from tests.world.rabbit.asking import ask, on_node
from tests.world.rabbit.management_node import FakeNode
from tests.world.waiting import until

SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$')


def read(text: str) -> dict[str, dict[str, float]]:
    """Name -> labels -> figure. Each line is one that Prometheus understands."""
    found: dict[str, dict[str, float]] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, "each is told once"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            sample = SAMPLE.match(line)
            assert sample is not None, line
            assert sample[1] in kinds, "its type comes first"
            found.setdefault(sample[1], {})[sample[2] or ""] = float(sample[3])
    assert all(kind in ("gauge", "counter", "untyped") for kind in kinds.values())
    return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path_factory.mktemp("metrics"), ("n1",)) as (one,):
        yield one


def metrics(node: NodeProcess, path: str = "metrics") -> Mapping[str, Mapping[str, float]]:
    asked = Asked(HOST, node.management_port)
    return read(asyncio.run(asked.request("GET", f"/{path}")).body.decode())


@pytest.mark.local
def test_what_is_told_has_happened(node: NodeProcess) -> None:
    before = metrics(node)
    with connected(node.address) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare('odd "name"\\', durable=True)
        stamped = pika.BasicProperties(delivery_mode=2, timestamp=1234)
        for body in (b"a", b"bc", b"def"):
            channel.basic_publish("", 'odd "name"\\', body, stamped)
        channel.basic_get('odd "name"\\')
        told = metrics(node)
        each = metrics(node, "metrics/per-object")
        detailed = metrics(node, "metrics/detailed?family=queue_coarse_metrics&vhost=%2F")
    sums = {
        "queues": 1,
        "queue_messages": 3,
        "queue_messages_ready": 2,
        "queue_messages_unacked": 1,
        "queue_messages_bytes": 6,
        "queue_messages_ready_bytes": 5,
        "queue_messages_ram": 3,
        "queue_messages_persistent": 3,
        "queue_messages_persistent_bytes": 6,
        "queue_disk_writes_total": 3,
        "queue_messages_published_total": 3,
        "connections": 1,
        "channels": 1,
        "channel_messages_unacked": 1,
        "connection_channels": 1,
    }
    assert {name: told[f"rabbitmq_{name}"][""] for name in sums} == sums
    opened = "rabbitmq_connections_opened_total"
    assert told[opened][""] == before[opened][""] + 1
    assert told["rabbitmq_connection_incoming_bytes_total"][""] > 100
    assert told["rabbitmq_erlang_uptime_seconds"][""] < 600
    labels = 'vhost="/",queue="odd \\"name\\"\\\\"'
    assert each["rabbitmq_queue_messages_ready"] == {labels: 2}
    assert each["rabbitmq_queue_head_message_timestamp"] == {labels: 1234}
    assert detailed["rabbitmq_detailed_queue_messages_unacked"] == {labels: 1}
    assert len(detailed) == 3
    closed = "rabbitmq_connections_closed_total"
    until(lambda: metrics(node)[closed][""] > told[closed][""], "the connection's end is counted")


# Of ``publish_and_consume``, as RabbitMQ 3.10.8 counts it.
DONE = {
    "publish": 6,
    "confirm": 6,
    "return_unroutable": 1,
    "drop_unroutable": 1,
    "get": 2,
    "get_no_ack": 1,
    "get_empty": 1,
    "deliver": 2,
    "deliver_no_ack": 0,
    "deliver_get": 5,
    "redeliver": 1,
    "ack": 3,
}
DONE_BY_ALL = {
    "received": 6,
    "received_confirm": 6,
    "confirmed": 6,
    "routed": 4,
    "unroutable_dropped": 1,
    "unroutable_returned": 1,
    "delivered": 5,
    "redelivered": 1,
    "delivered_consume_manual_ack": 2,
    "delivered_consume_auto_ack": 0,
    "get_empty": 1,
    "delivered_get_manual_ack": 2,
    "delivered_get_auto_ack": 1,
    "acknowledged": 3,
}


def publish_and_consume(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    channel.queue_declare("counted", exclusive=True, arguments={"x-dead-letter-exchange": ""})
    for body in (b"1", b"2", b"3", b"4"):
        channel.basic_publish("", "counted", body)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"", mandatory=True)
    channel.basic_publish("", "nowhere", b"")
    tags = [channel.basic_get("counted")[0].delivery_tag for _ in range(2)]
    channel.basic_ack(tags[0])
    channel.basic_nack(tags[1])  # back to the queue
    channel.basic_get("counted", auto_ack=True)
    for number, (delivery, _, _) in enumerate(channel.consume("counted")):
        channel.basic_ack(delivery.delivery_tag)
        if number == 1:
            break
    channel.basic_get("counted")


@pytest.mark.local
def test_what_channels_do_is_counted_for_each_and_for_all(node: NodeProcess) -> None:
    before = metrics(node)
    with connected(node.address) as connection:
        channel = connection.channel()
        publish_and_consume(channel)
        shown = asyncio.run(node.management.get("/api/channels"))
        told, each = metrics(node), metrics(node, "metrics/per-object")
    (stats,) = (row["message_stats"] for row in shown)
    assert {name: stats[name] for name in DONE} == DONE
    (pid,) = (row["pid"] for row in shown)
    assert each["rabbitmq_channel_messages_acked_total"] == {f'channel="{pid}"': 3}
    for name, count in DONE_BY_ALL.items():
        (figure,) = told[f"rabbitmq_global_messages_{name}_total"].values()
        (was,) = before[f"rabbitmq_global_messages_{name}_total"].values()
        assert figure - was == count, name
    assert told["rabbitmq_global_publishers"] == {'protocol="amqp091"': 1}
    assert told["rabbitmq_global_consumers"] == {'protocol="amqp091"': 1}
    ended = "rabbitmq_channels_closed_total"
    until(lambda: metrics(node)[ended][""] > before[ended][""], "the channel's end is counted")
    assert metrics(node)["rabbitmq_global_publishers"] == {'protocol="amqp091"': 0}


@pytest.mark.unit
def test_they_are_for_those_who_monitor_and_open_on_their_own_port() -> None:
    async def body(node: FakeNode) -> None:
        await ask(node, "PUT", "/api/users/al", {"password": "p", "tags": "management"})
        al = "Basic " + base64.b64encode(b"al:p").decode()
        assert (await ask(node, "GET", "/metrics", authorization=al)).status == 401
        assert (await ask(node, "GET", "/metrics")).status == 200
        own = await respond(node, Request("GET", ("metrics",)))
        assert own.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        found = read(own.body.decode())
        assert found["rabbitmq_queues"] == {"": 0}
        figures = [m for m in METRICS if m.source != "head_message_timestamp"]
        assert len(found) == len(figures) + 2 + len(GLOBALS)
        for other in (("api", "users"), ("",), ("metrics", "other")):
            assert (await respond(node, Request("GET", other))).status == 404
        assert (await respond(node, Request("POST", ("metrics",)))).status == 404

    on_node(body)


@pytest.mark.local
def test_the_port_of_its_own(tmp_path: Path) -> None:
    with held_ports(("n1",), ("metrics",)) as ports, nodes(tmp_path) as (one,):
        port = ports["n1"]["metrics"]
        one.config = msgspec.structs.replace(one.config, prometheus_port=port)
        one.start()
        one.await_running(("n1",))
        answer = asyncio.run(Asked(HOST, port, password="none").request("GET", "/metrics"))
        assert answer.status == 200
        assert read(answer.body.decode())["rabbitmq_connections"] == {"": 0}
