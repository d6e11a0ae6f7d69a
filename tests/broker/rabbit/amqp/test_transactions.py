"""Channels in tx mode: what is kept until a commit, what a rollback forgets, what both answer."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, header

from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.mirrored_queue import await_published, hold, kill
from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import RawClient, opened

pytestmark = pytest.mark.local

EXCLUDE = "cannot switch from {} to {} mode"


@pytest.fixture
def tx(node: NodeThread, client: RawClient) -> RawClient:
    """In tx mode, beside a queue with two mirrors."""
    node.do(lambda world: world.queues.mirrored.update(q=2))
    client.declare("q", durable=True)
    client.send(1, commands.Tx.Select())
    client.expect(commands.Tx.SelectOk, 1)
    return client


def commit(client: RawClient) -> None:
    client.send(1, commands.Tx.Commit())
    client.expect(commands.Tx.CommitOk, 1)


def roll_back(client: RawClient) -> None:
    client.send(1, commands.Tx.Rollback())
    client.expect(commands.Tx.RollbackOk, 1)


def get(client: RawClient) -> tuple[Any, bytes]:
    client.send(1, commands.Basic.Get(queue="q"))
    return client.expect_content(commands.Basic.GetOk)


def ready(node: NodeThread) -> int:
    return node.do(lambda world: len(world.queue("q").ready))


def unsettled(node: NodeThread) -> int:
    return node.do(lambda world: len(world.queue("q").given))


def expect_closed(client: RawClient, code: int, text: str) -> commands.Channel.Close:
    close = client.expect(commands.Channel.Close, 1)
    assert (close.reply_code, text in close.reply_text) == (code, True), close.reply_text
    return close


def test_publishes_wait_for_the_commit(node: NodeThread, tx: RawClient) -> None:
    for body in (b"a", b"b"):
        tx.publish("q", body)
    tx.send(1, commands.Basic.Qos(prefetch_count=0))
    tx.expect(commands.Basic.QosOk, 1)
    assert ready(node) == 0
    commit(tx)
    assert ready(node) == 2
    assert [get(tx)[1], get(tx)[1]] == [b"a", b"b"]


def test_commit_waits_for_the_master_and_every_mirror(node: NodeThread, tx: RawClient) -> None:
    hold(node)
    tx.publish("q", b"x")
    tx.send(1, commands.Tx.Commit(), commands.Tx.Rollback())  # is not to be sent now
    await_published(node, 1)
    close = tx.expect(commands.Connection.Close)
    assert close.reply_code == 504
    assert close.reply_text.endswith("unexpected command while processing 'tx.commit'")


def test_commit_is_answered_when_the_last_has_confirmed(node: NodeThread, tx: RawClient) -> None:
    hold(node)
    tx.publish("q", b"x")
    tx.send(1, commands.Tx.Commit())
    await_published(node, 1)
    node.do(lambda world: world.queue("q").release())
    node.do(lambda world: world.mirrors("q")[0].release())
    tx.send(2, commands.Channel.Open())
    tx.expect(commands.Channel.OpenOk, 2)  # and no commit-ok before it
    node.do(lambda world: world.mirrors("q")[1].release())
    tx.expect(commands.Tx.CommitOk, 1)


def test_commit_waits_while_the_node_may_be_in_a_minority(node: NodeThread, tx: RawClient) -> None:
    node.world.guard[0] = False
    tx.publish("q", b"x")
    tx.send(1, commands.Tx.Commit())
    await_published(node, 1)
    tx.send(2, commands.Channel.Open())
    tx.expect(commands.Channel.OpenOk, 2)
    node.world.guard[0] = True
    tx.expect(commands.Tx.CommitOk, 1)


def test_commit_of_what_died_is_partial(node: NodeThread, tx: RawClient) -> None:
    hold(node)
    tx.publish("q", b"x")
    tx.send(1, commands.Tx.Commit())
    await_published(node, 1)
    kill(node, "all")
    close = expect_closed(tx, 406, "partial tx completion")
    assert (close.class_id, close.method_id) == (90, 20)


def test_rolled_back_publishes_are_gone(node: NodeThread, tx: RawClient) -> None:
    tx.publish("q", b"not this")
    roll_back(tx)
    tx.publish("q", b"this")
    commit(tx)
    assert ready(node) == 1
    assert get(tx)[1] == b"this"


def test_publishes_of_a_channel_that_ends_are_gone(node: NodeThread, tx: RawClient) -> None:
    tx.publish("q", b"x")
    tx.send(1, commands.Channel.Close(200, "", 0, 0))
    tx.expect(commands.Channel.CloseOk, 1)
    assert ready(node) == 0


@pytest.mark.parametrize("settle", [commands.Basic.Ack, commands.Basic.Reject])
def test_settlements_wait_for_the_commit(node: NodeThread, tx: RawClient, settle: type) -> None:
    tx.publish("q", b"x")
    commit(tx)
    tag = get(tx)[0].delivery_tag
    tx.send(1, settle(delivery_tag=tag))
    tx.send(1, commands.Basic.Qos(prefetch_count=0))
    tx.expect(commands.Basic.QosOk, 1)
    assert unsettled(node) == 1
    commit(tx)
    node.until(lambda world: not world.queue("q").given)
    assert ready(node) == (settle is commands.Basic.Reject)


def test_rolled_back_settlements_can_be_made_again(node: NodeThread, tx: RawClient) -> None:
    for body in (b"a", b"b"):
        tx.publish("q", body)
    commit(tx)
    first, second = get(tx)[0].delivery_tag, get(tx)[0].delivery_tag
    tx.send(1, commands.Basic.Ack(second), commands.Basic.Ack(first))
    roll_back(tx)
    assert unsettled(node) == 2
    tx.send(1, commands.Basic.Ack(second, multiple=True))
    commit(tx)
    node.until(lambda world: not world.queue("q").given)
    assert ready(node) == 0


def test_a_tag_settled_twice_in_a_transaction_is_406(tx: RawClient) -> None:
    tx.publish("q", b"x")
    commit(tx)
    tag = get(tx)[0].delivery_tag
    tx.send(1, commands.Basic.Ack(tag), commands.Basic.Ack(tag))
    expect_closed(tx, 406, f"unknown delivery tag {tag}")


def test_uncommitted_settlements_of_a_channel_that_ends_come_back(
    node: NodeThread, tx: RawClient
) -> None:
    tx.publish("q", b"x")
    commit(tx)
    tx.send(1, commands.Basic.Ack(get(tx)[0].delivery_tag))
    tx.send(1, commands.Channel.Close(200, "", 0, 0))
    tx.expect(commands.Channel.CloseOk, 1)
    node.until(lambda world: len(world.queue("q").ready) == 1)


def test_uncommitted_settlements_count_for_the_prefetch(node: NodeThread, tx: RawClient) -> None:
    tx.send(1, commands.Basic.Qos(prefetch_count=1, global_=True))
    tx.expect(commands.Basic.QosOk, 1)
    for body in (b"a", b"b"):
        tx.publish("q", body)
    commit(tx)
    tx.send(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
    tx.expect(commands.Basic.ConsumeOk, 1)
    delivered, body = tx.expect_content(commands.Basic.Deliver)
    assert delivered.delivery_tag is not None
    tx.send(1, commands.Basic.Ack(delivered.delivery_tag), commands.Basic.Recover(requeue=True))
    tx.expect(commands.Basic.RecoverOk, 1)  # and nothing before it
    tx.send(1, commands.Tx.Commit())
    tx.expect(commands.Tx.CommitOk, 1)
    assert (body, tx.expect_content(commands.Basic.Deliver)[1]) == (b"a", b"b")


def test_mandatory_returns_come_at_the_commit(tx: RawClient) -> None:
    tx.publish("nowhere", b"x", mandatory=True)
    tx.send(1, commands.Basic.Qos(prefetch_count=0))
    tx.expect(commands.Basic.QosOk, 1)
    tx.send(1, commands.Tx.Commit())
    returned, body = tx.expect_content(commands.Basic.Return)
    assert (returned.reply_code, body) == (312, b"x")
    tx.expect(commands.Tx.CommitOk, 1)


@pytest.mark.parametrize("method", [commands.Tx.Commit(), commands.Tx.Rollback()])
def test_without_select_there_is_no_transaction(client: RawClient, method: object) -> None:
    client.send(1, method)
    expect_closed(client, 406, "channel is not transactional")


def test_confirms_and_transactions_exclude_each_other(node: NodeThread, tx: RawClient) -> None:
    tx.send(1, commands.Tx.Select())  # once more is no error
    tx.expect(commands.Tx.SelectOk, 1)
    tx.send(1, commands.Confirm.Select())
    expect_closed(tx, 406, EXCLUDE.format("tx", "confirm"))
    with opened(Address(node.host, node.port)) as other:
        other.send(1, commands.Confirm.Select())
        other.expect(commands.Confirm.SelectOk, 1)
        other.send(1, commands.Tx.Select())
        expect_closed(other, 406, EXCLUDE.format("confirm", "tx"))


def test_what_is_refused_is_refused_before_the_commit(tx: RawClient) -> None:
    tx.send(1, commands.Basic.Publish(exchange="none", routing_key="q"), header.ContentHeader())
    expect_closed(tx, 404, "no exchange 'none' in vhost '/'")
