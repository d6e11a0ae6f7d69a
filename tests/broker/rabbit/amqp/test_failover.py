"""Consumers and requests when masters die, move, or don't answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pamqp import commands

from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.rabbit.amqp import connection
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.metadata.records import QueueRow
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.doubles import MemoryQueue
from tests.world.rabbit.mirrored_queue import kill, mirrored_queue, round_trip
from tests.world.rabbit.node_thread import NodeThread, World
from tests.world.rabbit.raw_client import RawClient, opened

pytestmark = pytest.mark.local


# -- consumers -------------------------------------------------------------------------------------


def consume(client: RawClient, **options: Any) -> None:
    client.send(1, commands.Basic.Consume(queue="q", consumer_tag="t", **options))
    client.expect(commands.Basic.ConsumeOk, 1)


def test_consumers_follow_the_queue_to_its_new_master(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    consume(client)
    client.publish("q", b"1")
    delivered, _ = client.expect_content(commands.Basic.Deliver)
    assert (delivered.delivery_tag, delivered.redelivered) == (1, False)
    client.expect(commands.Basic.Ack, 1)
    node.run(node.world.fail_over("q"))
    again, data = client.expect_content(commands.Basic.Deliver)
    assert (again.delivery_tag, again.redelivered, data) == (2, True, b"1")
    client.send(1, commands.Basic.Ack(1))  # stale: means nothing, and is no error
    client.send(1, commands.Basic.Ack(2))
    round_trip(client)
    assert node.do(lambda world: (len(world.queue("q").given), len(world.queue("q").ready))) == (
        0,
        0,
    )


def test_consumers_wait_for_a_promotion_that_comes_late(
    node: NodeThread, client: RawClient
) -> None:
    mirrored_queue(node, client)
    consume(client)
    old = node.do(lambda world: world.queue("q"))
    kill(node, "master")
    round_trip(client)
    node.do(lambda world: world.promote("q", old))
    node.until(lambda world: len(world.queue("q").consumers) == 1)
    client.publish("q", b"x")
    _, data = client.expect_content(commands.Basic.Deliver)
    assert data == b"x"


def test_consumer_that_asked_for_it_is_cancelled_on_failover(
    node: NodeThread, client: RawClient
) -> None:
    mirrored_queue(node, client)
    consume(client, arguments={"x-cancel-on-ha-failover": True})
    node.run(node.world.fail_over("q"))
    assert client.expect(commands.Basic.Cancel, 1).consumer_tag == "t"
    client.send(1, commands.Basic.CancelOk("t"))
    round_trip(client)
    assert node.do(lambda world: world.queue("q").consumers) == []


def test_server_cancel_is_not_sent_to_clients_that_do_not_know_it(node: NodeThread) -> None:
    with opened(Address(node.host, node.port), capabilities={}) as client:
        client.declare("q")
        consume(client)
        client.send(1, commands.Queue.Delete(queue="q"))
        client.expect(commands.Queue.DeleteOk, 1)
        round_trip(client)


def test_consumer_of_a_deleted_queue_is_cancelled(node: NodeThread, client: RawClient) -> None:
    client.declare("q")
    consume(client)
    node.run(node.world.queues.remove(node.do(lambda world: world.queue("q").row)))
    assert client.expect(commands.Basic.Cancel, 1).consumer_tag == "t"


def test_messages_of_a_dead_channel_are_requeued(node: NodeThread, client: RawClient) -> None:
    client.declare("q")
    client.publish("q", b"1")
    consume(client)
    client.expect_content(commands.Basic.Deliver)
    client.send(1, commands.Channel.Close(200, "", 0, 0))
    client.expect(commands.Channel.CloseOk, 1)
    client.open_channel()
    client.send(1, commands.Basic.Get(queue="q"))
    got, _ = client.expect_content(commands.Basic.GetOk)
    assert got.redelivered is True


# -- a queue without a master ----------------------------------------------------------------------

DOWN = "home node 'n1' of durable queue 'q' in vhost '/' is down or inaccessible"

REQUESTS = {
    "get": commands.Basic.Get(queue="q"),
    "consume": commands.Basic.Consume(queue="q"),
    "passive declare": commands.Queue.Declare(queue="q", passive=True),
    "declare": commands.Queue.Declare(queue="q", durable=True),
    "purge": commands.Queue.Purge(queue="q"),
    "delete": commands.Queue.Delete(queue="q"),
}


@pytest.mark.parametrize("row_kept", [True, False], ids=["live row kept", "live row gone"])
@pytest.mark.parametrize("request_name", REQUESTS)
def test_requests_to_a_queue_that_is_down_are_404(
    node: NodeThread, client: RawClient, request_name: str, row_kept: bool
) -> None:
    mirrored_queue(node, client, mirrors=0)
    kill(node, "master")
    if not row_kept:
        node.do(lambda world: world.metadata.remove("queue", "q@/"))
    client.send(1, REQUESTS[request_name])
    close = client.expect(commands.Channel.Close, 1)
    assert (close.reply_code, close.reply_text) == (404, f"NOT_FOUND - {DOWN}")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel()


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("crashed", "queue 'q' in vhost '/' has crashed and failed to restart"),
        ("stopped", "queue 'q' in vhost '/' process is stopped by supervisor"),
    ],
)
def test_a_queue_whose_process_ended_says_how(
    node: NodeThread, client: RawClient, state: str, text: str
) -> None:
    mirrored_queue(node, client, mirrors=0)
    kill(node, "master")

    def mark(world: World) -> None:
        row = world.metadata.read("queue", "q@/")
        assert row is not None
        world.metadata.put("queue", "q@/", msgspec.structs.replace(row, state=state))

    node.do(mark)
    client.send(1, commands.Queue.Declare(queue="q", passive=True))
    close = client.expect(commands.Channel.Close, 1)
    assert (close.reply_code, close.reply_text) == (404, f"NOT_FOUND - {text}")
    client.send(1, commands.Channel.CloseOk())
    client.open_channel()


def test_requests_wait_for_a_mirror_to_be_promoted(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    client.publish("q", b"x")
    client.expect(commands.Basic.Ack, 1)
    old = node.do(lambda world: world.queue("q"))
    kill(node, "master")
    client.send(1, commands.Basic.Get(queue="q"))
    node.do(lambda world: world.promote("q", old))
    _, data = client.expect_content(commands.Basic.GetOk)
    assert data == b"x"


def test_tables_that_take_no_writes_are_an_internal_error(
    node: NodeThread, client: RawClient
) -> None:
    def break_tables(world: World) -> None:
        world.metadata.broken = MetadataUnavailable("no leader")

    node.do(break_tables)
    client.send(1, commands.Exchange.Declare(exchange="x"))
    close = client.expect(commands.Connection.Close)
    assert close.reply_code == 541
    assert "MetadataUnavailable: no leader" in close.reply_text


# -- a queue that does not answer ------------------------------------------------------------------


class _Mute(MemoryQueue):
    """Answers no calls."""

    async def handle_call(self, request: object, caller: object) -> None:
        pass


def mute(world: World) -> None:
    row = world.queues.lookup("/", "q")
    assert row is not None
    pid = world.runtime.spawn(_Mute(row, world.queues.remove))
    world.queues.store(msgspec.structs.replace(row, pid=pid))


def test_reading_stops_when_a_channel_falls_behind_and_goes_on_when_it_has_caught_up(
    node: NodeThread, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shalott.broker.rabbit.amqp.channel.BACKLOG_HIGH", 5)
    monkeypatch.setattr("shalott.broker.rabbit.amqp.channel.BACKLOG_LOW", 1)
    client.declare("q")
    client.declare("other")
    node.do(mute)
    client.send(1, commands.Basic.Get(queue="q"))  # stuck
    for _ in range(50):
        client.publish("other", b"x")
    client.send(2, commands.Channel.Open())

    def waiting(world: World) -> bool:
        (live,) = world.listener._connections.values()
        return live._heartbeats.reading_paused

    node.until(waiting)
    assert [info.channels for info in node.do(lambda world: world.listener.connections())] == [1]
    row = node.do(lambda world: world.queues.lookup("/", "q"))
    assert isinstance(row, QueueRow) and row.pid is not None
    node.run(node.world.runtime.kill(row.pid))
    assert client.expect(commands.Channel.Close, 1).reply_code == 404
    client.expect(commands.Channel.OpenOk, 2)


def test_stuck_channel_does_not_outlive_its_connection(
    node: NodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CHANNEL_GRACE_MS", 50)
    with opened(Address(node.host, node.port)) as client:
        client.declare("q")
        node.do(mute)
        client.send(1, commands.Basic.Get(queue="q"))
    node.until(lambda world: world.listener.connection_count == 0)
    node.until(lambda world: _channels(world) == 0)


def _channels(world: World) -> int:
    return sum(isinstance(process, Channel) for process in world.runtime.processes.values())


def test_crash_of_a_channel_is_an_internal_error_and_the_node_lives(
    node: NodeThread, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.declare("q")

    async def crash(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("shalott.broker.rabbit.amqp.consuming.Consumers.on_deliver", crash)
    consume(client)
    client.publish("q", b"x")
    close = client.expect(commands.Connection.Close)
    assert close.reply_code == 541
    assert "planted" in close.reply_text
    monkeypatch.undo()
    with opened(Address(node.host, node.port)) as other:
        other.send(1, commands.Basic.Get(queue="q"))
        got, _ = other.expect_content(commands.Basic.GetOk)
        assert got.redelivered is True
