"""Publisher confirms: who must have spoken before the client hears ack, nack or return."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.world.rabbit.mirrored_queue import (
    await_published,
    hold,
    kill,
    mirrored_queue,
    round_trip,
)
from tests.world.rabbit.node_thread import NodeThread, World
from tests.world.rabbit.raw_client import RawClient

pytestmark = pytest.mark.local


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
