"""pika_flows, continued: declaring, binding and deleting queues and exchanges, and the refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.broker.rabbit.amqp.pika_flows import (
    Address,
    closes_channel,
    connected,
    drain,
    publish,
    queue,
)


def passive_declare_of_nothing_is_404(address: Address) -> None:
    with connected(address) as connection:
        channel = connection.channel()
        with closes_channel(404, "no queue 'pika.absent' in vhost '/'"):
            channel.queue_declare("pika.absent", passive=True)
        channel = connection.channel()
        with closes_channel(404, "no exchange 'pika.absent' in vhost '/'"):
            channel.exchange_declare("pika.absent", passive=True)
        assert connection.channel().is_open


def counts_in_declare_ok(address: Address) -> None:
    with queue(address, "pika.counts") as channel:
        publish(channel, "pika.counts", b"1", b"2")
        method = channel.queue_declare("pika.counts", passive=True).method
        assert (method.queue, method.message_count) == ("pika.counts", 2)
        assert method.consumer_count == 0
        assert channel.queue_purge("pika.counts").method.message_count == 2
        assert channel.queue_declare("pika.counts", passive=True).method.message_count == 0


def redeclare_mismatch_is_406(address: Address) -> None:
    with queue(address, "pika.mismatch") as channel:
        connection = channel.connection
        with closes_channel(406, "inequivalent arg 'durable'"):
            channel.queue_declare("pika.mismatch", durable=False)
        channel = connection.channel()
        with closes_channel(406, "inequivalent arg 'x-max-length'"):
            channel.queue_declare("pika.mismatch", durable=True, arguments={"x-max-length": 5})
        channel = connection.channel()
        channel.exchange_declare("pika.mismatch", "direct")
        with closes_channel(406, "inequivalent arg 'type'"):
            channel.exchange_declare("pika.mismatch", "fanout")
        connection.channel().exchange_delete("pika.mismatch")


def bad_arguments_are_406(address: Address) -> None:
    bad: list[dict[str, Any]] = [
        {"x-queue-type": "quorum"},
        {"x-expires": 0},
        {"x-message-ttl": -1},
        {"x-max-length": "ten"},
        {"x-overflow": "explode"},
        {"x-dead-letter-routing-key": "k"},
    ]
    with connected(address) as connection:
        for arguments in bad:
            with closes_channel(406, f"invalid arg '{next(iter(arguments))}'"):
                connection.channel().queue_declare("pika.bad", arguments=arguments)
        channel = connection.channel()
        channel.queue_declare("pika.bad", arguments={"x-ha-policy": "all", "x-custom": 1})
        channel.queue_delete("pika.bad")


def exclusive_queues_are_locked_and_go(address: Address) -> None:
    with connected(address) as owner, connected(address) as other:
        owner.channel().queue_declare("pika.exclusive", exclusive=True)
        for action in _ways_to_touch("pika.exclusive"):
            with closes_channel(405, "exclusive access to locked queue 'pika.exclusive'"):
                action(other.channel())
        owner.close()
        with closes_channel(404):
            other.channel().queue_declare("pika.exclusive", passive=True)


def _ways_to_touch(name: str) -> list[Callable[[BlockingChannel], Any]]:
    return [
        lambda channel: channel.queue_declare(name, passive=True),
        lambda channel: channel.queue_declare(name, exclusive=True),
        lambda channel: channel.queue_bind(name, "amq.direct", "k"),
        lambda channel: channel.queue_purge(name),
        lambda channel: channel.queue_delete(name),
        lambda channel: channel.basic_get(name),
        lambda channel: channel.basic_consume(name, lambda *_: None),
    ]


def auto_delete_queue_goes_with_its_last_consumer(address: Address) -> None:
    with connected(address) as connection:
        channel = connection.channel()
        channel.queue_declare("pika.auto", auto_delete=True)
        tag = channel.basic_consume("pika.auto", lambda *_: None)
        channel.basic_cancel(tag)
        with closes_channel(404):
            connection.channel().queue_declare("pika.auto", passive=True)


def delete_conditions(address: Address) -> None:
    with queue(address, "pika.delete") as channel:
        connection = channel.connection
        publish(channel, "pika.delete", b"1")
        with closes_channel(406, "not empty"):
            channel.queue_delete("pika.delete", if_empty=True)
        consumer = connection.channel()
        consumer.basic_consume("pika.delete", lambda *_: None)
        with closes_channel(406, "in use"):
            connection.channel().queue_delete("pika.delete", if_unused=True)
        consumer.close()
        channel = connection.channel()
        assert channel.queue_delete("pika.delete", if_unused=True).method.message_count == 1
        assert channel.queue_delete("pika.delete").method.message_count == 0


def server_names_and_reserved_names(address: Address) -> None:
    with connected(address) as connection:
        channel = connection.channel()
        name = channel.queue_declare("", exclusive=True).method.queue
        assert name.startswith("amq.gen-")
        channel.queue_bind("", "amq.direct", "named")  # the last declared one
        channel.basic_publish("amq.direct", "named", b"hello")
        assert channel.basic_get("", auto_ack=True)[2] == b"hello"
        with closes_channel(403, "reserved prefix"):
            channel.queue_declare("amq.mine")
        with closes_channel(403, "reserved prefix"):
            connection.channel().exchange_declare("amq.mine")
        with closes_channel(403, "default exchange"):
            connection.channel().exchange_declare("")
        with closes_channel(403):
            connection.channel().exchange_delete("amq.topic")


def bindings_route(address: Address) -> None:
    with queue(address, "pika.bound") as channel:
        cases: list[tuple[str, str, dict[str, Any] | None, list[bytes]]] = [
            ("amq.direct", "key", None, [b"key"]),
            ("amq.fanout", "", None, [b"key", b"a.b", b"a.b.c"]),
            ("amq.topic", "a.*", None, [b"a.b"]),
            ("amq.topic", "a.#", None, [b"a.b", b"a.b.c"]),
            ("amq.headers", "", {"x-match": "any", "h": "a.b"}, [b"a.b"]),
        ]
        for exchange, key, arguments, expected in cases:
            channel.queue_bind("pika.bound", exchange, key, arguments)
            for body in (b"key", b"a.b", b"a.b.c"):
                headers = pika.BasicProperties(headers={"h": body.decode()})
                channel.basic_publish(exchange, body.decode(), body, headers)
            assert drain(channel, "pika.bound") == expected, exchange
            channel.queue_unbind("pika.bound", exchange, key, arguments)
            channel.basic_publish(exchange, "key", b"unbound")
            assert drain(channel, "pika.bound") == []


def exchanges_bound_to_exchanges(address: Address) -> None:
    with queue(address, "pika.e2e") as channel:
        channel.exchange_declare("pika.alternate", "fanout")
        channel.exchange_declare("pika.inner", "direct", internal=True)
        channel.exchange_declare(
            "pika.outer", "topic", arguments={"alternate-exchange": "pika.alternate"}
        )
        channel.exchange_bind("pika.inner", "pika.outer", "a.#")
        channel.queue_bind("pika.e2e", "pika.inner", "a.b")
        channel.basic_publish("pika.outer", "a.b", b"through")
        assert drain(channel, "pika.e2e") == [b"through"]
        channel.queue_bind("pika.e2e", "pika.alternate")
        channel.basic_publish("pika.outer", "z", b"alternate")
        assert drain(channel, "pika.e2e") == [b"alternate"]
        channel.exchange_unbind("pika.inner", "pika.outer", "a.#")
        channel.basic_publish("pika.outer", "a.b", b"alternate too")
        assert drain(channel, "pika.e2e") == [b"alternate too"]
        connection = channel.connection
        with closes_channel(403, "internal exchange"):
            channel.basic_publish("pika.inner", "a.b", b"refused")
        channel = connection.channel()
        with closes_channel(406, "in use"):
            channel.exchange_delete("pika.inner", if_unused=True)
        channel = connection.channel()
        for name in ("pika.outer", "pika.inner", "pika.alternate"):
            channel.exchange_delete(name)


def auto_delete_exchange_goes_with_its_last_binding(address: Address) -> None:
    with queue(address, "pika.autox") as channel:
        ends: list[Callable[[], Any]] = [
            lambda: channel.queue_unbind("pika.autox", "pika.autox", "k"),
            lambda: channel.queue_delete("pika.autox"),
        ]
        for end in ends:
            channel.exchange_declare("pika.autox", "direct", auto_delete=True)
            channel.queue_bind("pika.autox", "pika.autox", "k")
            end()
            with closes_channel(404):
                channel.connection.channel().exchange_declare("pika.autox", passive=True)


FLOWS: tuple[Callable[[Address], None], ...] = (
    passive_declare_of_nothing_is_404,
    counts_in_declare_ok,
    redeclare_mismatch_is_406,
    bad_arguments_are_406,
    exclusive_queues_are_locked_and_go,
    auto_delete_queue_goes_with_its_last_consumer,
    delete_conditions,
    server_names_and_reserved_names,
    bindings_route,
    exchanges_bound_to_exchanges,
    auto_delete_exchange_goes_with_its_last_binding,
)
