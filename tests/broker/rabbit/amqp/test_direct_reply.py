"""Direct reply-to: what a channel may ask of the pseudo-queue, and how replies come to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp import body, commands, header

from shalott.broker.rabbit.amqp.direct_reply import REPLY_TO, make_address, read_address
from shalott.broker.rabbit.processes.messages import Pid
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import RawClient, opened


@pytest.fixture
def server(node: NodeThread) -> Iterator[RawClient]:
    """Another client, with a queue rpc."""
    with opened(Address(node.host, node.port)) as other:
        other.declare("rpc")
        yield other


def consume(client: RawClient, **options: object) -> None:
    client.send(1, commands.Basic.Consume(queue=REPLY_TO, **options))  # type: ignore[arg-type]


def ask(client: RawClient) -> None:
    properties = commands.Basic.Properties(reply_to=REPLY_TO, correlation_id="7")
    client.send(
        1,
        commands.Basic.Publish(routing_key="rpc"),
        header.ContentHeader(body_size=1, properties=properties),
        body.ContentBody(b"q"),
    )


def take_request(server: RawClient) -> str:
    """Where the answer is to go."""
    while True:
        server.send(1, commands.Basic.Get(queue="rpc", no_ack=True))
        _, answer = server.receive()
        if isinstance(answer, commands.Basic.GetOk):
            break
    properties = server.expect(header.ContentHeader, 1).properties
    server.expect(body.ContentBody, 1)
    assert properties.correlation_id == "7"
    return str(properties.reply_to)


def asked(client: RawClient, server: RawClient) -> str:
    consume(client, no_ack=True, consumer_tag="replies")
    assert client.expect(commands.Basic.ConsumeOk, 1).consumer_tag == "replies"
    ask(client)
    return take_request(server)


def exists(client: RawClient, queue: str, channel: int = 1) -> bool:
    """Asked on a channel that is closed if not."""
    client.send(channel, commands.Queue.Declare(queue=queue, passive=True))
    _, answer = client.receive()
    if isinstance(answer, commands.Queue.DeclareOk):
        return (answer.queue, answer.message_count, answer.consumer_count) == (queue, 0, 1)
    assert answer.reply_text == f"NOT_FOUND - no queue '{queue}' in vhost '/'"
    client.send(channel, commands.Channel.CloseOk())
    client.open_channel(channel)
    return False


@pytest.mark.local
def test_a_reply_goes_to_who_asked(client: RawClient, server: RawClient) -> None:
    address = asked(client, server)
    assert address.startswith(f"{REPLY_TO}.")
    assert exists(server, address) and exists(client, address)
    for answer in (b"one", b"two"):
        server.publish(address, answer)
        delivered, content = client.expect_content(commands.Basic.Deliver)
        assert content == answer
        assert (delivered.consumer_tag, delivered.delivery_tag) == ("replies", 1)
        assert (delivered.exchange, delivered.routing_key) == ("", address)
    client.send(1, commands.Basic.Ack(delivery_tag=1))
    assert client.expect(commands.Channel.Close, 1).reply_code == 406


@pytest.mark.local
def test_a_mandatory_reply_is_returned_as_it_is_in_no_queue(
    client: RawClient, server: RawClient
) -> None:
    address = asked(client, server)
    server.publish(address, b"x", mandatory=True)
    assert server.expect_content(commands.Basic.Return)[1] == b"x"
    assert client.expect_content(commands.Basic.Deliver)[1] == b"x"


@pytest.mark.local
def test_replies_to_who_is_gone_vanish(client: RawClient, server: RawClient) -> None:
    address = asked(client, server)
    client.send(1, commands.Basic.Cancel("replies"))
    client.expect(commands.Basic.CancelOk, 1)
    server.publish(address, b"x")
    assert not exists(server, address)
    consume(client, no_ack=True)  # another consumer has another address
    client.expect(commands.Basic.ConsumeOk, 1)
    server.publish(address, b"x")
    assert not exists(server, address)
    client.send(1, commands.Channel.Close(200, "", 0, 0))
    client.expect(commands.Channel.CloseOk, 1)
    assert not exists(server, address)


@pytest.mark.local
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"no_ack": False}, "reply consumer cannot acknowledge"),
        ({"no_ack": True}, "reply consumer already set"),
    ],
)
def test_what_a_reply_consumer_may_not_be(
    client: RawClient, options: dict[str, bool], text: str
) -> None:
    consume(client, no_ack=True)
    client.expect(commands.Basic.ConsumeOk, 1)
    consume(client, **options)
    close = client.expect(commands.Channel.Close, 1)
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


@pytest.mark.local
def test_asking_without_a_consumer_is_406(client: RawClient) -> None:
    ask(client)
    text = client.expect(commands.Channel.Close, 1).reply_text
    assert text == "PRECONDITION_FAILED - fast reply consumer does not exist"


@pytest.mark.local
def test_the_pseudo_queue_itself(client: RawClient) -> None:
    assert exists(client, REPLY_TO)
    for name in (f"{REPLY_TO}.x", f"{REPLY_TO}.x.y", f"{REPLY_TO}."):
        assert not exists(client, name)
    client.send(1, commands.Basic.Get(queue=REPLY_TO))
    assert client.expect(commands.Channel.Close, 1).reply_code == 404


@pytest.mark.unit
def test_only_nodes_of_the_cluster_make_addresses() -> None:
    pid = Pid("n2", 3, 17)
    address, key = make_address("cookie", pid, b"12345678")
    assert read_address("cookie", address) == (pid, key)
    assert read_address("other", address) is None
    forged = make_address("cookie", Pid("n2", 3, 18), b"12345678")[0].rpartition(".")[0]
    assert read_address("cookie", f"{forged}.{key}") is None
    assert len(make_address("c", Pid("n" * 60, 2**31, 2**31), b"12345678")[0]) < 256
