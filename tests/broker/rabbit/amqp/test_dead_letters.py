"""Dead letters on a real node, as an unmodified pika sees them: every way to die, what the headers
tell, and what ends a circle."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.broker.rabbit.amqp.pika_flows import Address, connected
from tests.world.processes.rabbit import running_nodes

pytestmark = pytest.mark.local

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running_nodes(tmp_path_factory.mktemp("dead")) as (process,):
        yield process.address
        assert "Traceback" not in process.last_words()


@contextmanager
def queues(node: Address, **arguments: dict[str, Any]) -> Iterator[BlockingChannel]:
    """A channel in confirm mode and these queues, deleted at the end."""
    with connected(node) as connection, ExitStack() as stack:
        cleaner, channel = connection.channel(), connection.channel()
        channel.confirm_delivery()
        for name, given in arguments.items():
            channel.queue_declare(name, durable=True, arguments=given)
            stack.callback(cleaner.queue_delete, name)
        yield channel


def to(queue: str, **more: Any) -> dict[str, Any]:
    """Arguments of a queue whose dead letters go to ``queue``."""
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, **more}


def publish(channel: BlockingChannel, queue: str, body: bytes, **properties: Any) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(**properties), mandatory=True)


def take(channel: BlockingChannel, queue: str) -> tuple[Any, pika.BasicProperties, bytes]:
    """The next message, acknowledged."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return method, properties, body
        assert time.monotonic() < deadline, f"nothing came to {queue}"
        time.sleep(0.005)


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def await_ready(channel: BlockingChannel, queue: str, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while ready(channel, queue) != count:
        assert time.monotonic() < deadline, f"{queue} has {ready(channel, queue)}, not {count}"
        time.sleep(0.005)


def reject(channel: BlockingChannel, queue: str) -> None:
    method, _, _ = channel.basic_get(queue)
    assert method is not None
    channel.basic_reject(method.delivery_tag, requeue=False)


def deaths(properties: pika.BasicProperties) -> list[tuple[str, str, int]]:
    assert properties.headers is not None
    return [(d["queue"], d["reason"], d["count"]) for d in properties.headers["x-death"]]


def test_a_rejected_message_goes_to_the_dead_letter_exchange_with_its_history(
    node: Address,
) -> None:
    with queues(node, work={"x-dead-letter-exchange": "morgue"}, grave={}) as channel:
        channel.exchange_declare("morgue", "fanout")
        channel.queue_bind("grave", "morgue")
        publish(
            channel,
            "work",
            b"poison",
            headers={"a": 1},
            correlation_id="c",
            delivery_mode=2,
            content_type="text/plain",
        )
        before = int(time.time())
        reject(channel, "work")
        method, properties, body = take(channel, "grave")
        channel.exchange_delete("morgue")
    assert (body, method.exchange, method.routing_key) == (b"poison", "morgue", "work")
    assert method.redelivered is False
    assert properties.correlation_id == "c"
    assert properties.content_type == "text/plain"
    assert properties.delivery_mode == 2
    assert properties.headers is not None
    (death,) = properties.headers.pop("x-death")
    died = death.pop("time")
    assert isinstance(died, datetime.datetime)
    assert before <= died.replace(tzinfo=datetime.UTC).timestamp() <= time.time()
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": "work",
        "exchange": "",
        "routing-keys": ["work"],
    }
    assert properties.headers == {
        "a": 1,
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "work",
        "x-first-death-exchange": "",
    }


def test_nacks_of_many_are_dead_letters_in_order(node: Address) -> None:
    with queues(node, work=to("grave"), grave={}) as channel:
        for number in range(5):
            publish(channel, "work", b"%d" % number)
        taken = [channel.basic_get("work")[0] for _ in range(5)]
        assert taken[3] is not None
        channel.basic_nack(taken[3].delivery_tag, multiple=True, requeue=False)
        assert [take(channel, "grave")[2] for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        assert ready(channel, "work") == 0


def test_a_message_with_an_expiration_dies_once_and_keeps_it_as_original(node: Address) -> None:
    with queues(node, work=to("grave"), grave={}) as channel:
        publish(channel, "work", b"short", expiration="30")
        _, properties, body = take(channel, "grave")
    assert body == b"short"
    assert properties.expiration is None, "or it would expire again in the next queue"
    assert properties.headers is not None
    assert properties.headers["x-death"][0]["original-expiration"] == "30"
    assert deaths(properties) == [("work", "expired", 1)]


def test_the_queues_time_to_live_ends_messages_from_the_head(node: Address) -> None:
    with queues(node, work=to("grave", **{"x-message-ttl": 50}), grave={}) as channel:
        for number in range(3):
            publish(channel, "work", b"%d" % number)
        assert [take(channel, "grave")[2] for _ in range(3)] == [b"0", b"1", b"2"]
        assert ready(channel, "work") == 0


def test_messages_of_a_queue_that_expires_are_not_dead_letters(node: Address) -> None:
    with queues(node, work=to("grave", **{"x-expires": 100}), grave={}) as channel:
        publish(channel, "work", b"left behind")
        channel.queue_bind("grave", "amq.fanout")
        await_gone(node, "work")
        # What is published later is there: had there been a dead letter, it would be before it.
        channel.basic_publish("amq.fanout", "", b"later")
        assert take(channel, "grave")[2] == b"later"


def await_gone(node: Address, queue: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    with connected(node) as connection:
        while True:
            try:
                # Binding does not count as use, as declaring would.
                connection.channel().queue_unbind(queue, "amq.direct", "no.such.binding")
                connection.channel().queue_bind(queue, "amq.direct", "no.such.binding")
            except pika.exceptions.ChannelClosedByBroker as closed:
                assert closed.reply_code == 404
                return
            assert time.monotonic() < deadline, f"{queue} is still there"
            time.sleep(0.01)


def test_a_full_queue_drops_its_head_to_the_dead_letters(node: Address) -> None:
    with queues(node, work=to("grave", **{"x-max-length": 2}), grave={}) as channel:
        for number in range(5):
            publish(channel, "work", b"%d" % number)
        buried = [take(channel, "grave") for _ in range(3)]
        assert [body for _, _, body in buried] == [b"0", b"1", b"2"]
        assert deaths(buried[0][1]) == [("work", "maxlen", 1)]
        assert [take(channel, "work")[2] for _ in range(2)] == [b"3", b"4"]


def test_bytes_count_as_length(node: Address) -> None:
    with queues(node, work=to("grave", **{"x-max-length-bytes": 10}), grave={}) as channel:
        publish(channel, "work", b"12345678")
        publish(channel, "work", b"abc")
        assert take(channel, "grave")[2] == b"12345678"
        publish(channel, "work", b"far too long for it")
        assert [take(channel, "grave")[2] for _ in range(2)] == [b"abc", b"far too long for it"]
        assert ready(channel, "work") == 0


def test_a_requeued_message_that_is_too_many_is_the_head_and_goes(node: Address) -> None:
    with queues(node, work=to("grave", **{"x-max-length": 1}), grave={}) as channel:
        publish(channel, "work", b"old")
        method, _, _ = channel.basic_get("work")
        assert method is not None
        publish(channel, "work", b"new")
        channel.basic_reject(method.delivery_tag, requeue=True)
        assert take(channel, "grave")[2] == b"old"
        assert take(channel, "work")[2] == b"new"


@pytest.mark.parametrize(("overflow", "buried"), [("reject-publish", 0), ("reject-publish-dlx", 1)])
def test_a_full_queue_may_refuse_instead_with_a_nack(
    node: Address, overflow: str, buried: int
) -> None:
    limits = to("grave", **{"x-max-length": 1, "x-overflow": overflow})
    with queues(node, work=limits, grave={}) as channel:
        publish(channel, "work", b"first")
        with pytest.raises(pika.exceptions.NackError):
            publish(channel, "work", b"second")
        await_ready(channel, "grave", buried)
        assert take(channel, "work")[2] == b"first"
        publish(channel, "work", b"third")
        assert ready(channel, "grave") == buried


def test_deaths_in_the_same_queue_are_counted_and_the_latest_is_first(node: Address) -> None:
    with queues(node, one=to("two"), two=to("one"), grave={}) as channel:
        publish(channel, "one", b"tossed", expiration="1")
        reject_next(channel, "two")
        reject_next(channel, "one")
        reject_next(channel, "two")
        _, properties, _ = take(channel, "one")
    assert deaths(properties) == [
        ("two", "rejected", 2),
        ("one", "rejected", 1),
        ("one", "expired", 1),
    ]
    assert properties.headers is not None
    assert properties.headers["x-first-death-reason"] == "expired"
    assert properties.headers["x-first-death-queue"] == "one"


def reject_next(channel: BlockingChannel, queue: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while ready(channel, queue) == 0:
        assert time.monotonic() < deadline, f"nothing came to {queue}"
        time.sleep(0.005)
    reject(channel, queue)


@contextmanager
def tapped(channel: BlockingChannel, tap: str, *destinations: str) -> Iterator[None]:
    """The exchange "ring" brings what has the name of a queue to that queue, and to ``tap``."""
    channel.exchange_declare("ring", "direct")
    for name in destinations:
        channel.queue_bind(name, "ring", name)
        channel.queue_bind(tap, "ring", name)
    yield
    channel.exchange_delete("ring")


def ring_to(queue: str) -> dict[str, Any]:
    return {
        "x-dead-letter-exchange": "ring",
        "x-dead-letter-routing-key": queue,
        "x-message-ttl": 10,
    }


def test_a_circle_without_a_client_in_it_ends(node: Address) -> None:
    with (
        queues(node, one=ring_to("two"), two=ring_to("one"), tap={}) as channel,
        tapped(channel, "tap", "one", "two"),
    ):
        publish(channel, "one", b"first")
        seen = [take(channel, "tap")[2] for _ in range(2)]
        # Were the first still under way, it would be back before the second has gone round.
        publish(channel, "one", b"second")
        seen += [take(channel, "tap")[2] for _ in range(2)]
        assert seen == [b"first", b"first", b"second", b"second"]
        assert [ready(channel, name) for name in ("one", "two", "tap")] == [0, 0, 0]


def test_a_queue_that_is_its_own_dead_letter_queue_drops_what_expires(node: Address) -> None:
    with (
        queues(node, loop=ring_to("loop"), tap={}) as channel,
        tapped(channel, "tap", "loop"),
    ):
        publish(channel, "loop", b"first")
        seen = [take(channel, "tap")[2]]
        publish(channel, "loop", b"second")
        seen.append(take(channel, "tap")[2])
        assert seen == [b"first", b"second"]
        assert [ready(channel, name) for name in ("loop", "tap")] == [0, 0]


def test_a_circle_with_a_rejection_in_it_goes_on(node: Address) -> None:
    with queues(node, work=to("work")) as channel:
        publish(channel, "work", b"sisyphus")
        for _ in range(3):
            reject_next(channel, "work")
        _, properties, body = take(channel, "work")
        assert body == b"sisyphus"
        assert deaths(properties) == [("work", "rejected", 3)]


def test_a_dead_letter_exchange_that_is_not_there_is_no_error(node: Address) -> None:
    with queues(node, work={"x-dead-letter-exchange": "nowhere"}) as channel:
        publish(channel, "work", b"gone")
        reject(channel, "work")
        assert ready(channel, "work") == 0
        channel.exchange_declare("nowhere", "direct")
        channel.queue_declare("late", exclusive=True)
        channel.queue_bind("late", "nowhere", "work")
        publish(channel, "work", b"kept")
        reject(channel, "work")
        assert take(channel, "late")[2] == b"kept"
        channel.exchange_delete("nowhere")


def test_a_headers_exchange_sees_the_deaths(node: Address) -> None:
    with queues(node, work={"x-dead-letter-exchange": "amq.headers"}, grave={}) as channel:
        arguments = {"x-match": "all-with-x", "x-first-death-reason": "rejected", "kind": "a"}
        channel.queue_bind("grave", "amq.headers", arguments=arguments)
        publish(channel, "work", b"other", headers={"kind": "b"})
        publish(channel, "work", b"wanted", headers={"kind": "a"})
        reject(channel, "work")
        reject(channel, "work")
        assert take(channel, "grave")[2] == b"wanted"
        assert ready(channel, "grave") == 0
