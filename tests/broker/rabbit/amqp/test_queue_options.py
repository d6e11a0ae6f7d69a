"""What queues and consumers may be asked for, on a real node with an unmodified pika: deletion with
conditions, disuse, auto-delete, priorities of consumers, the single active one, recover."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika.exceptions
import pytest
from pamqp import commands
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from tests.broker.rabbit.amqp.pika_flows import closes_channel, connected, queue
from tests.world.processes.rabbit import NodeProcess, running_nodes
from tests.world.rabbit.raw_client import opened
from tests.world.waiting import until

pytestmark = pytest.mark.local

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_nodes(tmp_path_factory.mktemp("options")) as (process,):
        yield process
        assert "Traceback" not in process.last_words()


def exists(node: NodeProcess, name: str) -> bool:
    """As the management API sees it: looking is not using."""
    listed = asyncio.run(node.management.get("/api/queues"))
    return any(each["name"] == name for each in listed)


def exchanges(node: NodeProcess) -> list[str]:
    return [each["name"] for each in asyncio.run(node.management.get("/api/exchanges"))]


class Collector:
    """A consumer that keeps what it gets."""

    def __init__(self, channel: BlockingChannel, name: str, tag: str, **options: Any) -> None:
        self.bodies: list[bytes] = []
        self.tags: list[int] = []
        self._channel = channel
        channel.basic_consume(name, self._on_message, consumer_tag=tag, **options)

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.bodies.append(body)
        self.tags.append(method.delivery_tag)

    def await_bodies(self, *expected: bytes) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while len(self.bodies) < len(expected) and time.monotonic() < deadline:
            self._channel.connection.process_data_events(0.02)
        assert self.bodies == list(expected)


@contextmanager
def channels(node: NodeProcess, count: int) -> Iterator[list[BlockingChannel]]:
    with connected(node.address) as connection:
        yield [connection.channel() for _ in range(count)]


def publish(channel: BlockingChannel, name: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", name, body, mandatory=True)


# -- deletion --------------------------------------------------------------------------------------


def test_a_queue_in_use_or_not_empty_is_deleted_only_without_that_condition(
    node: NodeProcess,
) -> None:
    with queue(node.address, "opt.delete") as publisher, channels(node, 4) as others:
        publish(publisher, "opt.delete", b"m")
        with closes_channel(406, "queue 'opt.delete' in vhost '/' not empty"):
            others[0].queue_delete("opt.delete", if_empty=True)
        Collector(others[1], "opt.delete", "user").await_bodies(b"m")
        with closes_channel(406, "queue 'opt.delete' in vhost '/' in use"):
            others[2].queue_delete("opt.delete", if_unused=True)
        others[1].basic_cancel("user")
        # Delivered and unacknowledged messages do not make it "not empty", as in the original.
        assert others[3].queue_delete("opt.delete", if_unused=True, if_empty=True)
        assert not exists(node, "opt.delete")


def test_a_queue_that_is_deleted_with_conditions_frees_its_name_at_once(node: NodeProcess) -> None:
    with channels(node, 1) as (channel,):
        for number in range(30):
            channel.queue_declare("opt.again", durable=True, arguments={"x-max-length": number})
            channel.queue_delete("opt.again", if_unused=True)
        for number in range(30):
            channel.queue_declare("opt.again", durable=True, arguments={"x-max-length": number})
            channel.queue_delete("opt.again")
        assert not exists(node, "opt.again")


@pytest.mark.parametrize("if_unused", [False, True])
def test_an_auto_delete_exchange_goes_with_the_last_queue_that_is_bound_to_it(
    node: NodeProcess, if_unused: bool
) -> None:
    with channels(node, 1) as (channel,):
        channel.exchange_declare("opt.auto", "fanout", auto_delete=True)
        channel.queue_declare("opt.bound")
        channel.queue_bind("opt.bound", "opt.auto")
        assert "opt.auto" in exchanges(node)
        channel.queue_delete("opt.bound", if_unused=if_unused)
        assert "opt.auto" not in exchanges(node)


# -- disuse ----------------------------------------------------------------------------------------


def test_an_auto_delete_queue_goes_with_its_last_consumer_and_its_exchange_too(
    node: NodeProcess,
) -> None:
    with channels(node, 3) as (channel, first, second):
        channel.exchange_declare("opt.auto", "fanout", auto_delete=True)
        channel.queue_declare("opt.auto.queue", auto_delete=True)
        channel.queue_bind("opt.auto.queue", "opt.auto")
        Collector(first, "opt.auto.queue", "a")
        Collector(second, "opt.auto.queue", "b")
        first.basic_cancel("a")
        assert channel.queue_declare("opt.auto.queue", passive=True).method.consumer_count == 1
        second.close()
        until(lambda: not exists(node, "opt.auto.queue"), "the queue is deleted")
        assert "opt.auto" not in exchanges(node)


def test_an_auto_delete_queue_that_never_had_a_consumer_stays(node: NodeProcess) -> None:
    with channels(node, 2) as (channel, other):
        channel.queue_declare("opt.unused", auto_delete=True)
        publish(other, "opt.unused", b"m")
        other.basic_get("opt.unused", auto_ack=True)
        other.close()
        assert channel.queue_declare("opt.unused", passive=True).method.consumer_count == 0
        channel.queue_delete("opt.unused")


EXPIRES_MS = 400
KEPT_MS = 2000  # far longer than this machine may stall between two uses


def test_a_queue_with_a_consumer_does_not_expire_and_one_without_does(node: NodeProcess) -> None:
    arguments = {"x-expires": EXPIRES_MS}
    with channels(node, 2) as (channel, consuming):
        channel.queue_declare("opt.expires.used", arguments=arguments)
        Collector(consuming, "opt.expires.used", "c")
        channel.queue_declare("opt.expires.idle", arguments=arguments)
        until(lambda: not exists(node, "opt.expires.idle"), "the idle one expires")
        for _ in range(2):  # two more lives of an idle queue
            channel.queue_declare("opt.expires.idle", arguments=arguments)
            until(lambda: not exists(node, "opt.expires.idle"), "the idle one expires again")
        assert exists(node, "opt.expires.used")
        consuming.basic_cancel("c")
        until(lambda: not exists(node, "opt.expires.used"), "it expires without its consumer")


@pytest.mark.parametrize("use", ["get", "declare"])
def test_use_keeps_a_queue_from_expiring(node: NodeProcess, use: str) -> None:
    arguments = {"x-expires": KEPT_MS}
    with channels(node, 1) as (channel,):
        channel.queue_declare("opt.kept", arguments=arguments)
        began = time.monotonic()
        while time.monotonic() - began < 1.5 * KEPT_MS / 1000:
            if use == "get":
                assert channel.basic_get("opt.kept") == (None, None, None)
            else:
                channel.queue_declare("opt.kept", arguments=arguments)
            channel.connection.process_data_events(0.02)
        assert exists(node, "opt.kept")
        until(lambda: not exists(node, "opt.kept"), "it expires when it is left alone")


# -- consumers -------------------------------------------------------------------------------------


def test_a_consumer_of_higher_priority_gets_all_that_it_can_take(node: NodeProcess) -> None:
    with queue(node.address, "opt.priority") as publisher, channels(node, 2) as (one, two):
        for channel in (one, two):
            channel.basic_qos(prefetch_count=2)
        low = Collector(one, "opt.priority", "low")
        high = Collector(two, "opt.priority", "high", arguments={"x-priority": 10})
        publish(publisher, "opt.priority", b"0", b"1", b"2", b"3", b"4")
        high.await_bodies(b"0", b"1")
        low.await_bodies(b"2", b"3")
        two.basic_ack(high.tags[-1], multiple=True)
        high.await_bodies(b"0", b"1", b"4")
        assert low.bodies == [b"2", b"3"]


def test_a_single_active_consumer_gets_everything_until_it_leaves(node: NodeProcess) -> None:
    arguments = {"x-single-active-consumer": True}
    with (
        queue(node.address, "opt.single", arguments=arguments) as publisher,
        channels(node, 3) as (one, two, three),
    ):
        first = Collector(one, "opt.single", "first")
        second = Collector(two, "opt.single", "second", auto_ack=True)
        third = Collector(three, "opt.single", "third", auto_ack=True, arguments={"x-priority": 1})
        publish(publisher, "opt.single", b"0", b"1", b"2")
        first.await_bodies(b"0", b"1", b"2")
        one.basic_ack(first.tags[0])
        one.close()  # what it had not acknowledged goes to the next: the one of higher priority
        third.await_bodies(b"1", b"2")
        three.basic_cancel("third")
        publish(publisher, "opt.single", b"3")
        second.await_bodies(b"3")
        assert first.bodies == [b"0", b"1", b"2"]
        assert third.bodies == [b"1", b"2"]


def test_a_full_active_consumer_is_not_helped_by_the_others(node: NodeProcess) -> None:
    arguments = {"x-single-active-consumer": True}
    with (
        queue(node.address, "opt.single", arguments=arguments) as publisher,
        channels(node, 2) as (one, two),
    ):
        one.basic_qos(prefetch_count=1)
        first = Collector(one, "opt.single", "first")
        second = Collector(two, "opt.single", "second", auto_ack=True)
        publish(publisher, "opt.single", b"0", b"1")
        first.await_bodies(b"0")
        # The answer comes after anything that the queue had sent to the second before.
        assert two.queue_declare("opt.single", passive=True).method.message_count == 1
        assert second.bodies == []
        one.basic_ack(first.tags[0])
        first.await_bodies(b"0", b"1")


def test_exclusive_use_and_a_single_active_consumer_exclude_each_other(node: NodeProcess) -> None:
    arguments = {"x-single-active-consumer": True}
    with (
        queue(node.address, "opt.single", arguments=arguments),
        channels(node, 1) as (one,),
        closes_channel(403, "in exclusive use"),
    ):
        one.basic_consume("opt.single", lambda *_: None, exclusive=True)


def test_a_limit_of_the_channel_that_was_taken_back_is_forgotten_by_the_queue(
    node: NodeProcess,
) -> None:
    with queue(node.address, "opt.limit") as publisher, channels(node, 1) as (channel,):
        publish(publisher, "opt.limit", b"0", b"1", b"2")
        channel.basic_qos(prefetch_count=1, global_qos=True)
        former = Collector(channel, "opt.limit", "former")
        former.await_bodies(b"0")
        channel.basic_cancel("former")
        channel.basic_qos(prefetch_count=0, global_qos=True)
        Collector(channel, "opt.limit", "later").await_bodies(b"1", b"2")


def test_messages_of_higher_priority_go_first_up_to_the_queues_maximum(node: NodeProcess) -> None:
    arguments = {"x-max-priority": 5}
    with queue(node.address, "opt.levels", arguments=arguments) as channel:
        for body, priority in ((b"none", None), (b"5", 5), (b"200", 200), (b"1", 1), (b"0", 0)):
            properties = BasicProperties(priority=priority)
            channel.basic_publish("", "opt.levels", body, properties, mandatory=True)
        taken = [channel.basic_get("opt.levels", auto_ack=True)[2] for _ in range(5)]
        assert taken == [b"5", b"200", b"1", b"none", b"0"]


@pytest.mark.parametrize("value", [-1, 256, "5", True])
def test_a_maximum_priority_is_a_number_that_an_octet_holds(node: NodeProcess, value: Any) -> None:
    with (
        channels(node, 1) as (channel,),
        closes_channel(406, "invalid arg 'x-max-priority' for queue 'opt.levels'"),
    ):
        channel.queue_declare("opt.levels", arguments={"x-max-priority": value})
    assert not exists(node, "opt.levels")


def test_the_maximum_priority_of_a_queue_can_not_change(node: NodeProcess) -> None:
    with (
        queue(node.address, "opt.fixed", arguments={"x-max-priority": 5}),
        channels(node, 1) as (channel,),
        closes_channel(406, "inequivalent arg 'x-max-priority'"),
    ):
        channel.queue_declare("opt.fixed", durable=True, arguments={"x-max-priority": 6})


def test_recover_brings_back_what_was_not_acknowledged_in_order_and_redelivered(
    node: NodeProcess,
) -> None:
    with queue(node.address, "opt.recover") as publisher, channels(node, 1) as (channel,):
        publish(publisher, "opt.recover", b"0", b"1", b"2")
        methods = [channel.basic_get("opt.recover")[0] for _ in range(3)]
        assert methods[1] is not None
        channel.basic_ack(methods[1].delivery_tag)
        channel.basic_recover(requeue=True)
        again = [channel.basic_get("opt.recover", auto_ack=True) for _ in range(2)]
        assert [body for _, _, body in again] == [b"0", b"2"]
        assert all(method is not None and method.redelivered for method, _, _ in again)
        with closes_channel(406, "unknown delivery tag"):
            channel.basic_ack(methods[0].delivery_tag)
            channel.queue_declare("opt.recover", passive=True)


def test_recover_redelivers_to_the_consumer(node: NodeProcess) -> None:
    with queue(node.address, "opt.recover") as publisher, channels(node, 1) as (channel,):
        publish(publisher, "opt.recover", b"0", b"1")
        consumer = Collector(channel, "opt.recover", "c")
        consumer.await_bodies(b"0", b"1")
        channel.basic_recover(requeue=True)
        consumer.await_bodies(b"0", b"1", b"0", b"1")


def test_recover_without_requeue_is_not_implemented(node: NodeProcess) -> None:
    with connected(node.address) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            channel.basic_recover(requeue=False)
        assert closed.value.reply_code == 540


def test_a_policy_that_shortens_a_queue_drops_its_head_at_once(node: NodeProcess) -> None:
    with queue(node.address, "opt.policy") as channel:
        publish(channel, "opt.policy", b"0", b"1", b"2", b"3")
        policy = {"pattern": "^opt.policy$", "definition": {"max-length": 1}, "apply-to": "queues"}
        asyncio.run(node.management.put("/api/policies/%2F/short", policy))
        until(
            lambda: channel.queue_declare("opt.policy", passive=True).method.message_count == 1,
            "the head is dropped",
        )
        asyncio.run(node.management.delete("/api/policies/%2F/short"))
        assert channel.basic_get("opt.policy", auto_ack=True)[2] == b"3"


def test_what_a_channel_has_no_room_for_is_not_kept_from_others(node: NodeProcess) -> None:
    """The channel-wide limit is used up by one queue: the other's message waits in its queue."""
    with queue(node.address, "opt.full") as other, opened(node.address) as client:
        client.declare("opt.full.first")
        client.send(1, commands.Basic.Qos(prefetch_count=1, global_=True))
        client.expect(commands.Basic.QosOk, 1)
        for name in ("opt.full.first", "opt.full"):
            client.send(1, commands.Basic.Consume(queue=name, consumer_tag=name))
            client.expect(commands.Basic.ConsumeOk, 1)
        client.publish("opt.full.first", b"1")
        client.expect(commands.Basic.Deliver, 1)
        publish(other, "opt.full", b"2")
        taken: list[bool] = []

        def takes_it() -> bool:
            method, _, body = other.basic_get("opt.full", auto_ack=True)
            taken.extend([] if method is None else [method.redelivered])
            return bool(body == b"2")

        until(takes_it, "the message went back to its queue")
        assert taken == [False]
        publish(other, "opt.full", b"3")
        client.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
        while not isinstance(client.receive()[1], commands.Basic.Deliver):
            pass  # what belongs to the first one
        client.send(1, commands.Queue.Delete(queue="opt.full.first", nowait=True))


def test_what_the_channels_limit_held_back_comes_behind_recover_ok(node: NodeProcess) -> None:
    """A client takes what came before recover-ok for taken back, and would never settle it."""
    with opened(node.address) as client:
        for name in ("opt.held.1", "opt.held.2"):
            client.declare(name)
            client.publish(name, name.encode())
        client.send(1, commands.Basic.Qos(prefetch_count=1, global_=True))
        client.expect(commands.Basic.QosOk, 1)
        for name in ("opt.held.1", "opt.held.2"):
            client.send(1, commands.Basic.Consume(queue=name, consumer_tag=name))
        client.send(1, commands.Queue.Declare(queue="opt.held.2", passive=True))
        came = [client.receive()[1]]
        while not isinstance(came[-1], commands.Queue.DeclareOk):
            came.append(client.receive()[1])
        assert [isinstance(frame, commands.Basic.Deliver) for frame in came].count(True) == 1
        client.send(1, commands.Basic.Recover(requeue=True))
        client.expect(commands.Basic.RecoverOk, 1)
        client.expect(commands.Basic.Deliver, 1)
        for name in ("opt.held.1", "opt.held.2"):
            client.send(1, commands.Queue.Delete(queue=name, nowait=True))
