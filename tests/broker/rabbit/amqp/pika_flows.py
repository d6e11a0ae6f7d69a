"""What unmodified pika must be able to do with a node, as functions of the node's address.

Every flow cleans up after itself and uses names of its own, so that it can run against a node that
others use, alone or in a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@dataclass(frozen=True)
class Address:
    host: str
    port: int


def parameters(address: Address, **options: Any) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(
        address.host, address.port, socket_timeout=10, blocked_connection_timeout=20, **options
    )


@contextmanager
def connected(address: Address, **options: Any) -> Iterator[BlockingConnection]:
    connection = pika.BlockingConnection(parameters(address, **options))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def queue(address: Address, name: str, **options: Any) -> Iterator[BlockingChannel]:
    """A channel in confirm mode with an empty queue; the queue is deleted at the end."""
    with connected(address) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, **options)
        try:
            yield channel
        finally:
            cleaner = connection.channel()
            cleaner.queue_delete(name)


def publish(channel: BlockingChannel, name: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", name, body, PERSISTENT, mandatory=True)


@contextmanager
def closes_channel(code: int, text: str = "") -> Iterator[None]:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code, caught.value
    assert text in caught.value.reply_text, caught.value


@contextmanager
def closes_connection(code: int, text: str = "") -> Iterator[None]:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code, caught.value
    assert text in caught.value.reply_text, caught.value


def drain(channel: BlockingChannel, name: str) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(name, auto_ack=True)
        if method is None:
            return bodies
        assert body is not None
        bodies.append(body)


def publish_get_ack(address: Address) -> None:
    with queue(address, "pika.get") as channel:
        publish(channel, "pika.get", b"one", b"two")
        method, properties, body = channel.basic_get("pika.get")
        assert (body, method.redelivered, method.message_count) == (b"one", False, 1)
        assert (method.exchange, method.routing_key) == ("", "pika.get")
        assert properties.delivery_mode == 2
        channel.basic_ack(method.delivery_tag)
        assert drain(channel, "pika.get") == [b"two"]
        assert channel.basic_get("pika.get") == (None, None, None)


def properties_come_back_unchanged(address: Address) -> None:
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1, "b": "two", "c": [True, None, 2**40], "d": {"e": b"\xff\x00"}},
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        reply_to="r",
        expiration="600000",
        message_id="m",
        timestamp=1700000000,
        type="t",
        user_id="guest",
        app_id="app",
    )
    with queue(address, "pika.properties") as channel:
        channel.basic_publish("", "pika.properties", b"x", sent, mandatory=True)
        _, received, _ = channel.basic_get("pika.properties", auto_ack=True)
        assert received == sent


def large_and_empty_bodies(address: Address) -> None:
    body = bytes(range(256)) * 2000  # several frames
    with queue(address, "pika.bodies") as channel:
        publish(channel, "pika.bodies", body, b"")
        assert drain(channel, "pika.bodies") == [body, b""]


def small_frame_max(address: Address) -> None:
    with connected(address, frame_max=4096) as connection:
        channel = connection.channel()
        channel.queue_declare("pika.frames")
        channel.basic_publish("", "pika.frames", b"z" * 20000)
        assert drain(channel, "pika.frames") == [b"z" * 20000]
        channel.queue_delete("pika.frames")


def nack_and_reject_requeue_or_drop(address: Address) -> None:
    with queue(address, "pika.nack") as channel:
        publish(channel, "pika.nack", b"a", b"b", b"c")
        tags = [channel.basic_get("pika.nack")[0].delivery_tag for _ in range(3)]
        channel.basic_nack(tags[1], multiple=True, requeue=True)
        channel.basic_reject(tags[2], requeue=False)
        method, _, body = channel.basic_get("pika.nack")
        assert (body, method.redelivered) == (b"a", True)
        channel.basic_reject(method.delivery_tag, requeue=True)
        assert drain(channel, "pika.nack") == [b"a", b"b"]


def mandatory_returns_before_ack(address: Address) -> None:
    with connected(address) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError) as caught:
            channel.basic_publish("", "pika.nowhere", b"lost", mandatory=True)
        (returned,) = caught.value.messages
        assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
        assert returned.body == b"lost"
        channel.basic_publish("", "pika.nowhere", b"acknowledged all the same")


def closing_a_channel_requeues(address: Address) -> None:
    with queue(address, "pika.requeue") as channel:
        publish(channel, "pika.requeue", b"mine")
        other = channel.connection.channel()
        other.basic_get("pika.requeue")
        assert drain(channel, "pika.requeue") == []
        other.close()
        method, _, body = channel.basic_get("pika.requeue", auto_ack=True)
        assert (body, method.redelivered) == (b"mine", True)


def closing_a_connection_requeues(address: Address) -> None:
    with queue(address, "pika.requeue2") as channel:
        publish(channel, "pika.requeue2", b"mine")
        with connected(address) as other:
            assert other.channel().basic_get("pika.requeue2")[2] == b"mine"
        assert drain(channel, "pika.requeue2") == [b"mine"]


def consume_and_cancel(address: Address) -> None:
    with queue(address, "pika.consume") as channel:
        bodies = [b"%d" % i for i in range(20)]
        publish(channel, "pika.consume", *bodies)
        channel.basic_qos(prefetch_count=3)
        seen = []
        for method, _, body in channel.consume("pika.consume", inactivity_timeout=10):
            assert method is not None, "nothing was delivered"
            seen.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(seen) == 15:
                break
        assert seen == bodies[:15]
        channel.cancel()
        assert drain(channel, "pika.consume") == bodies[15:]


def prefetch_per_consumer(address: Address) -> None:
    with queue(address, "pika.qos") as channel:
        publish(channel, "pika.qos", b"1", b"2", b"3")
        got: list[tuple[int, bytes]] = []
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume("pika.qos", lambda _c, m, _p, b: got.append((m.delivery_tag, b)))
        while len(got) < 2:
            channel.connection.process_data_events(5)
        assert channel.queue_declare("pika.qos", passive=True).method.message_count == 1
        assert [body for _, body in got] == [b"1", b"2"]
        channel.basic_ack(got[0][0])
        while len(got) < 3:
            channel.connection.process_data_events(5)
        assert got[2][1] == b"3"


def prefetch_of_the_whole_channel(address: Address) -> None:
    """Two queues, one channel, two messages at most: whichever queue they come from."""
    with queue(address, "pika.global1") as channel, queue(address, "pika.global2") as second:
        publish(channel, "pika.global1", b"1", b"2")
        publish(second, "pika.global2", b"3", b"4")
        got: list[int] = []
        bodies: list[bytes] = []

        def on_message(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
            got.append(method.delivery_tag)
            bodies.append(body)

        channel.basic_qos(prefetch_count=2, global_qos=True)
        channel.basic_consume("pika.global1", on_message)
        channel.basic_consume("pika.global2", on_message)
        while len(got) < 2:
            channel.connection.process_data_events(5)
        channel.queue_declare("pika.global2", passive=True)  # what came before has arrived
        channel.connection.process_data_events(0)
        assert len(got) == 2
        channel.basic_ack(got[1], multiple=True)
        while len(got) < 4:
            channel.connection.process_data_events(5)
        assert sorted(bodies) == [b"1", b"2", b"3", b"4"]


def unknown_delivery_tag_is_406(address: Address) -> None:
    with queue(address, "pika.tags") as channel:
        publish(channel, "pika.tags", b"1")
        method, _, _ = channel.basic_get("pika.tags")
        channel.basic_ack(method.delivery_tag)
        channel.basic_ack(method.delivery_tag)
        with closes_channel(406, f"unknown delivery tag {method.delivery_tag}"):
            channel.basic_get("pika.tags")


def consumer_tags_and_exclusive_consumers(address: Address) -> None:
    with queue(address, "pika.tag") as channel:
        channel.basic_consume("pika.tag", lambda *_: None, consumer_tag="t", exclusive=True)
        with closes_channel(403, "in exclusive use"):
            channel.connection.channel().basic_consume("pika.tag", lambda *_: None)


def recover_redelivers(address: Address) -> None:
    with queue(address, "pika.recover") as channel:
        publish(channel, "pika.recover", b"1", b"2")
        channel.basic_get("pika.recover")
        channel.basic_get("pika.recover")
        channel.basic_recover(requeue=True)
        assert drain(channel, "pika.recover") == [b"1", b"2"]


def deleting_a_queue_cancels_its_consumers(address: Address) -> None:
    with queue(address, "pika.cancelled") as channel:
        cancelled: list[Any] = []
        channel.add_on_cancel_callback(cancelled.append)
        channel.basic_consume("pika.cancelled", lambda *_: None, consumer_tag="t")
        with connected(address) as other:
            other.channel().queue_delete("pika.cancelled")
        while not cancelled:
            channel.connection.process_data_events(5)
        assert cancelled[0].method.consumer_tag == "t"


def connection_errors(address: Address) -> None:
    with (
        pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost 'nowhere' not found"),
        connected(address, virtual_host="nowhere"),
    ):
        pass
    credentials = pika.PlainCredentials("guest", "wrong")
    with (
        pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403"),
        connected(address, credentials=credentials),
    ):
        pass
    with connected(address) as connection, closes_connection(540, "prefetch_size"):
        connection.channel().basic_qos(prefetch_size=1)
    with connected(address) as connection, closes_connection(503, "unknown exchange type"):
        connection.channel().exchange_declare("pika.type", "no-such-type")
    with connected(address) as connection:
        assert connection.channel().is_open, "the node lives on"


def publish_to_absent_exchange_is_404(address: Address) -> None:
    with connected(address) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with closes_channel(404, "no exchange 'pika.nothing' in vhost '/'"):
            channel.basic_publish("pika.nothing", "k", b"")


def many_channels(address: Address) -> None:
    with connected(address) as connection:
        channels = [connection.channel() for _ in range(50)]
        for channel in channels:
            channel.close()
        assert connection.channel().channel_number == 1


FLOWS: tuple[Callable[[Address], None], ...] = (
    publish_get_ack,
    properties_come_back_unchanged,
    large_and_empty_bodies,
    small_frame_max,
    nack_and_reject_requeue_or_drop,
    mandatory_returns_before_ack,
    closing_a_channel_requeues,
    closing_a_connection_requeues,
    consume_and_cancel,
    prefetch_per_consumer,
    prefetch_of_the_whole_channel,
    unknown_delivery_tag_is_406,
    consumer_tags_and_exclusive_consumers,
    recover_redelivers,
    deleting_a_queue_cancels_its_consumers,
    connection_errors,
    publish_to_absent_exchange_is_404,
    many_channels,
)
