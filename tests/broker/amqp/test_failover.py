"""Confirms and consumers when queue processes confirm late, die, move or refuse."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from pamqp import commands

from broker.amqp import channel_table, connection
from broker.errors import MetadataUnavailable
from broker.metadata.records import QueueRow
from tests.broker.amqp.doubles import MemoryQueue, NodeThread, World
from tests.broker.amqp.pika_flows import Address
from tests.broker.amqp.raw_client import RawClient, opened

pytestmark = pytest.mark.local


@pytest.fixture
def client(node: NodeThread) -> Iterator[RawClient]:
    with opened(Address(node.host, node.port)) as opened_client:
        yield opened_client


def mirrored_queue(node: NodeThread, client: RawClient, mirrors: int = 2) -> None:
    """Queue q with mirrors; the channel confirms."""
    node.do(lambda world: world.queues.mirrored.update(q=mirrors))
    client.declare("q", durable=True)
    client.send(1, commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk, 1)


def hold(node: NodeThread) -> None:
    """Nobody confirms until told to."""

    def action(world: World) -> None:
        for process in (world.queue("q"), *world.mirrors("q")):
            process.holding = True

    node.do(action)


def round_trip(client: RawClient) -> None:
    """Everything sent before is done, and nothing came back for it."""
    client.send(1, commands.Basic.Qos(prefetch_count=0))
    client.expect(commands.Basic.QosOk, 1)


def await_published(node: NodeThread, count: int) -> None:
    def arrived(world: World) -> bool:
        everywhere = [len(mirror.received) for mirror in world.mirrors("q")]
        return all(received == count for received in everywhere)

    node.until(arrived)


def kill(node: NodeThread, choose: str) -> None:
    row = node.do(lambda world: world.queues.lookup("/", "q"))
    assert isinstance(row, QueueRow) and row.pid is not None
    pids = {"master": (row.pid,), "mirrors": row.slave_pids, "all": (row.pid, *row.slave_pids)}
    for pid in pids[choose]:
        node.run(node.world.runtime.kill(pid))


# -- confirms --------------------------------------------------------------------------------------


def test_ack_waits_for_the_master_and_every_mirror(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    hold(node)
    client.publish("q", b"x")
    await_published(node, 1)
    node.do(lambda world: world.queue("q").release())
    round_trip(client)
    node.do(lambda world: world.mirrors("q")[0].release())
    round_trip(client)
    node.do(lambda world: world.mirrors("q")[1].release())
    assert client.expect(commands.Basic.Ack, 1).delivery_tag == 1


def test_every_mirror_gets_the_same_message(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    client.publish("q", b"x")
    client.expect(commands.Basic.Ack, 1)

    def ids(world: World) -> list[int]:
        mirrored = [mirror.received[0].content.id for mirror in world.mirrors("q")]
        return [world.queue("q").ready[0].content.id, *mirrored]

    first, *others = node.do(ids)
    assert others == [first, first]
    assert 0 <= first < 1 << 63


def test_acks_are_coalesced(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client, mirrors=1)
    hold(node)
    for _ in range(5):
        client.publish("q", b"x")
    await_published(node, 5)
    node.do(lambda world: world.mirrors("q")[0].release())
    node.do(lambda world: world.queue("q").release())
    ack = client.expect(commands.Basic.Ack, 1)
    assert (ack.delivery_tag, ack.multiple) == (5, True)


def test_mirrors_that_die_are_not_waited_for(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    hold(node)
    client.publish("q", b"x")
    await_published(node, 1)
    node.do(lambda world: world.queue("q").release())
    kill(node, "mirrors")
    assert client.expect(commands.Basic.Ack, 1).delivery_tag == 1


def test_nack_when_all_processes_died_unconfirmed(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    hold(node)
    client.publish("q", b"x")
    await_published(node, 1)
    kill(node, "all")
    nack = client.expect(commands.Basic.Nack, 1)
    assert (nack.delivery_tag, nack.multiple) == (1, False)


def test_publish_to_a_dead_master_without_mirrors_is_nacked(
    node: NodeThread, client: RawClient
) -> None:
    mirrored_queue(node, client, mirrors=0)
    kill(node, "master")
    client.publish("q", b"x", mandatory=True)  # routed, so not returned
    assert client.expect(commands.Basic.Nack, 1).delivery_tag == 1


def test_deleted_queue_acks_what_was_on_its_way(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    hold(node)
    client.publish("q", b"x")
    await_published(node, 1)
    client.send(1, commands.Queue.Delete(queue="q"))
    client.expect(commands.Queue.DeleteOk, 1)
    assert client.expect(commands.Basic.Ack, 1).delivery_tag == 1


def test_refused_publish_is_nacked(node: NodeThread, client: RawClient) -> None:
    client.declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.send(1, commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk, 1)
    client.publish("q", b"fits")
    assert client.expect(commands.Basic.Ack, 1).delivery_tag == 1
    client.publish("q", b"does not")
    assert client.expect(commands.Basic.Nack, 1).delivery_tag == 2


def test_return_precedes_ack(node: NodeThread, client: RawClient) -> None:
    client.send(1, commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk, 1)
    client.publish("nowhere", b"lost", mandatory=True)
    returned, data = client.expect_content(commands.Basic.Return)
    assert (returned.reply_code, returned.routing_key, data) == (312, "nowhere", b"lost")
    assert client.expect(commands.Basic.Ack, 1).delivery_tag == 1


def test_sequence_starts_at_one_with_confirm_select(node: NodeThread, client: RawClient) -> None:
    client.declare("q")
    client.publish("q", b"before")
    client.send(1, commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk, 1)
    client.publish("q", b"after")
    assert client.expect(commands.Basic.Ack, 1).delivery_tag == 1


# -- the guard -------------------------------------------------------------------------------------


def guard(node: NodeThread, allow: bool) -> None:
    node.do(lambda world: world.guard.__setitem__(0, allow))


def test_acks_are_held_while_the_node_may_not_confirm(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    guard(node, False)
    client.publish("q", b"1")
    client.publish("q", b"2")
    await_published(node, 2)
    round_trip(client)
    guard(node, True)
    told: list[int] = []
    while told[-1:] != [2]:
        told.append(client.expect(commands.Basic.Ack, 1).delivery_tag)
    assert told in ([2], [1, 2])


def test_held_acks_are_dropped_when_the_connection_closes(
    node: NodeThread, client: RawClient
) -> None:
    mirrored_queue(node, client)
    guard(node, False)
    client.publish("q", b"1")
    await_published(node, 1)
    round_trip(client)
    stopping = node.begin(node.world.listener.stop())
    client.expect(commands.Connection.Close)
    client.send(0, commands.Connection.CloseOk())
    guard(node, True)
    assert client.at_end()
    stopping.result(10)


def test_nacks_are_not_held(node: NodeThread, client: RawClient) -> None:
    mirrored_queue(node, client)
    hold(node)
    guard(node, False)
    client.publish("q", b"1")
    await_published(node, 1)
    kill(node, "all")
    assert client.expect(commands.Basic.Nack, 1).delivery_tag == 1


# -- consumers -------------------------------------------------------------------------------------


def consume(client: RawClient, **options: object) -> None:
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
    monkeypatch.setattr("broker.amqp.channel.BACKLOG_HIGH", 5)
    monkeypatch.setattr("broker.amqp.channel.BACKLOG_LOW", 1)
    client.declare("q")
    client.declare("other")
    node.do(mute)
    client.send(1, commands.Basic.Get(queue="q"))  # stuck
    for _ in range(50):
        client.publish("other", b"x")
    client.send(2, commands.Channel.Open())

    def waiting(world: World) -> bool:
        (live,) = world.listener._connections.values()
        return live._reading_paused

    node.until(waiting)
    assert node.do(lambda world: world.listener.channel_count) == 1
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
    kind = channel_table.Channel
    return sum(isinstance(process, kind) for process in world.runtime._processes.values())


def test_crash_of_a_channel_is_an_internal_error_and_the_node_lives(
    node: NodeThread, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.declare("q")

    async def crash(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("broker.amqp.consuming.Consumers.on_deliver", crash)
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
