"""A consumer's client against a scripted server: which rows it writes, and when it keeps silent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pamqp import commands
from pamqp.base import Frame

from shalott.clients.amqp.consumer_client import (
    AmqpConsumerClient,
    Binding,
    ConsumerClients,
    QueueDeclaration,
)
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.history import History
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.message_body import encode_body
from shalott.core.op import Invocation
from shalott.core.recording import loop_clock_ns
from shalott.core.subscription import Settling, Subscription
from tests.world.clock.turns import turns
from tests.world.rabbit.scripted_server import FakeServer, Session, fake_server

pytestmark = pytest.mark.unit

CONSUMERS = 2  # the first channel that has some


@dataclass
class Broker:
    """Answers what a client asks; a test says the rest. ``unsaid``: methods that it ignores."""

    session: Session | None = None
    unsaid: tuple[type[Frame], ...] = ()
    refuses: tuple[type[Frame], ...] = ()
    ready: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)
    methods: list[Frame] = field(default_factory=list)

    async def __call__(self, session: Session, value: object) -> None:
        self.session = session
        if not isinstance(value, Frame):
            return
        self.methods.append(value)
        if not isinstance(value, self.unsaid):
            for answer in self._answers(value):
                session.send(answer)
        self.came.set()

    def _answers(self, method: Frame) -> list[Frame]:
        if isinstance(method, self.refuses):
            index = method.index
            return [
                commands.Channel.Close(404, "NOT_FOUND - no queue 'q'", index >> 16, index & 0xFFFF)
            ]
        match method:
            case commands.Basic.Consume():
                return [commands.Basic.ConsumeOk(method.consumer_tag)]
            case commands.Basic.Cancel():
                return [commands.Basic.CancelOk(method.consumer_tag)]
            case commands.Queue.Declare():
                return [commands.Queue.DeclareOk(method.queue, self.ready, 1)]
            case commands.Queue.Delete():
                return [commands.Queue.DeleteOk(0)]
            case commands.Queue.Bind():
                return [commands.Queue.BindOk()]
            case commands.Channel.Close():
                return [commands.Channel.CloseOk()]
            case commands.Basic.Recover():
                return [commands.Basic.RecoverOk()]
        return []

    def deliver(self, tag: int, value: int, consumer: str = "", **more: Any) -> None:
        assert self.session is not None
        name = consumer or "3.1.1.1"
        method = commands.Basic.Deliver(name, tag, more.pop("redelivered", False), "", "q")
        body = more.pop("body", encode_body(value, 16))
        properties = commands.Basic.Properties(**more)
        self.session.send_content(method, body, properties, channel=CONSUMERS)

    def send(self, *methods: Frame) -> None:
        assert self.session is not None
        self.session.send(*methods, channel=CONSUMERS)

    async def until(self, kind: type[Frame], count: int = 1) -> list[Any]:
        """The methods of that kind, once so many have come."""
        async with asyncio.timeout(5):
            while len(found := [one for one in self.methods if isinstance(one, kind)]) < count:
                self.came.clear()
                await self.came.wait()
            return found


@dataclass
class Scene:
    """A client with one consumer of q, and what it has written down."""

    client: AmqpConsumerClient
    broker: Broker
    server: FakeServer
    recorder: MemoryRecorder

    async def do(self, f: str, key: str = "q", **extra: Any) -> None:
        value = extra.pop("value", None)
        await self.client.invoke(Invocation(f=f, key=key, value=value, extra=extra or None))

    async def subscribe(self, wanted: Subscription) -> None:
        await self.do("subscribe", **wanted.extra())

    def rows(self, *fs: str) -> list[dict[str, Any]]:
        history: History = self.recorder.history()
        return [
            {**row, "extra": json.loads(row["extra"] or "{}")}
            for row in history.ops.to_pylist()
            if not fs or row["f"] in fs
        ]

    async def until_rows(
        self, *fs: str, count: int = 1, ended: bool = False
    ) -> list[dict[str, Any]]:
        async with asyncio.timeout(5):
            while True:
                found = self.rows(*fs)
                if sum(row["complete_ns"] is not None or not ended for row in found) >= count:
                    return found
                await asyncio.sleep(0.002)  # rows are written between operations: no event says it


async def later(seconds: float) -> None:
    """Let the clock of this loop jump: what is due by then happens, however slow the machine is.

    Less than the 5 s that the client waits for an answer: a longer jump would end its requests.
    """
    loop = asyncio.get_running_loop()
    jumped_to = loop.time() + seconds
    real = loop.time
    began = real()
    loop.time = lambda: jumped_to + (real() - began)  # type: ignore[method-assign]
    await turns()  # the loop looks at what is due,
    await turns()  # it has run,
    await asyncio.sleep(0.01)  # and what it sent has been read


@asynccontextmanager
async def scene(**broker: Any) -> AsyncIterator[Scene]:
    script = Broker(**broker)
    async with fake_server(script) as server:
        run = ConsumerClients(
            declarations={"q": QueueDeclaration(name="q", bindings=(Binding("x"),))}
        )
        client = run("127.0.0.1", server.port)
        clock = loop_clock_ns()
        recorder = MemoryRecorder(clock, clock)
        client.record_in(recorder, 3, "n1")
        await client.open()
        try:
            yield Scene(client, script, server, recorder)
        finally:
            await client.close()


def played(act: Callable[[Scene], Awaitable[None]], **broker: Any) -> None:
    async def main() -> None:
        async with scene(**broker) as on:
            await act(on)

    asyncio.run(main())


def test_a_delivery_is_a_row_and_its_ack_is_ok_when_the_queue_answered() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(prefetch=5, priority=2, cancel_on_failover=True))
        assert on.client.holds == ("q#0",)
        (consume,) = await on.broker.until(commands.Basic.Consume)
        assert consume.arguments == {"x-priority": 2, "x-cancel-on-ha-failover": True}
        death = {"queue": "q", "reason": "expired", "count": 1, "time": None}
        on.broker.deliver(1, 7, redelivered=True, headers={"x-death": [death]}, priority=4)
        (ack,) = await on.until_rows("ack", ended=True)
        assert (ack["type"], ack["value"], ack["key"]) == ("ok", 7, "q")
        assert ack["extra"] == {"channel": "3.1.1", "tag": 1}
        (deliver,) = on.rows("deliver")
        assert (deliver["value"], deliver["redelivered"]) == (7, True)
        assert deliver["extra"] == {
            "consumer": "3.1.1.1",
            "channel": "3.1.1",
            "tag": 1,
            "priority": 4,
            "deaths": [{"queue": "q", "reason": "expired", "count": 1}],
        }
        said = [type(one) for one in on.broker.methods]
        assert said[-2:] == [commands.Basic.Ack, commands.Queue.Declare]
        await on.client.close()
        (consumer,) = on.rows("consumer")
        assert consumer["extra"]["ended"] == "closed" and consumer["extra"]["prefetch"] == 5
        assert consumer["extra"]["active_ns"] < deliver["invoke_ns"]
        assert on.rows("channel")[0]["extra"]["ended"] == "closed"

    played(act)


def test_an_ack_without_an_answer_stays_indefinite_when_the_channel_ends() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription())
        on.broker.deliver(1, 7)
        await on.broker.until(commands.Queue.Declare)
        assert on.rows("ack")[0]["complete_ns"] is None
        on.broker.send(commands.Channel.Close(506, "RESOURCE_ERROR", 0, 0))
        (ack,) = await on.until_rows("ack", ended=True)
        assert ack["type"] == "info" and "506" in ack["error"]
        (consumer,) = on.rows("consumer")
        assert (consumer["type"], consumer["extra"]["ended"]) == ("ok", "channel-closed")
        assert "506" in consumer["error"]
        assert on.client.holds == ()

    played(act, unsaid=(commands.Queue.Declare,))


def test_multiple_settles_all_up_to_its_tag_in_one_row() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(batch=3)))
        for tag in (1, 2, 3):
            on.broker.deliver(tag, 10 + tag)
        (ack,) = await on.until_rows("ack", ended=True)
        assert (ack["type"], ack["value"]) == ("ok", None)
        assert ack["extra"] == {"channel": "3.1.1", "tag": 3, "upto": 3}
        (sent,) = await on.broker.until(commands.Basic.Ack)
        assert (sent.delivery_tag, sent.multiple) == (3, True)

    played(act)


def test_a_batch_that_stays_small_is_settled_after_a_while() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(batch=3)))
        on.broker.deliver(1, 11)
        (ack,) = await on.until_rows("ack", ended=True)
        assert ack["extra"]["upto"] == 1

    played(act)


@pytest.mark.parametrize("said", ["nack", "reject"])
def test_what_is_not_wanted_says_whether_it_comes_again(said: str) -> None:
    async def act(on: Scene) -> None:
        settling = Settling(**{said: 1.0}, requeue=1.0)  # type: ignore[arg-type]
        await on.subscribe(Subscription(settling=settling))
        on.broker.deliver(1, 7)
        (row,) = await on.until_rows(said, ended=True)
        assert row["extra"] == {"channel": "3.1.1", "tag": 1, "requeue": True}

    played(act)


def test_what_came_before_recover_was_answered_is_not_settled_any_more() -> None:
    async def act(on: Scene) -> None:
        wanted = Settling(key=9, recover=0.5, after_ms=4_000)
        await on.subscribe(Subscription(settling=wanted))
        said = [wanted.verdict(number).said for number in range(20)]
        first = said.index("recover")
        for tag in range(1, first + 3):
            on.broker.deliver(tag, tag)
        await on.until_rows("deliver", count=first + 2)
        await later(4.5)
        await on.broker.until(commands.Basic.Recover)
        acked = len(on.rows("ack"))
        on.broker.deliver(first + 3, 99)
        on.broker.send(commands.Basic.RecoverOk())
        (row,) = await on.until_rows("recover", ended=True)
        assert (row["type"], row["extra"]["upto"]) == ("ok", first + 3)
        await later(4.5)
        assert len(on.rows("ack")) == acked == first

    played(act, unsaid=(commands.Basic.Recover,))


def test_a_consumer_that_the_server_cancels_ends_and_its_acks_prove_nothing() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(after_ms=30)))
        on.broker.deliver(1, 7)
        await on.until_rows("deliver")
        on.broker.send(commands.Basic.Cancel("3.1.1.1", True))
        (ack,) = await on.until_rows("ack", ended=True)
        assert ack["type"] == "info"
        (consumer,) = on.rows("consumer")
        assert consumer["extra"]["ended"] == "cancelled-by-server"
        assert on.client.holds == ()
        await on.broker.until(commands.Channel.Close)
        assert not [one for one in on.broker.methods if isinstance(one, commands.Queue.Declare)]

    played(act)


def test_a_consumer_that_is_refused_fails() -> None:
    async def act(on: Scene) -> None:
        with pytest.raises(Definite, match="no queue"):
            await on.subscribe(Subscription())
        (consumer,) = on.rows("consumer")
        assert (consumer["type"], consumer["extra"]["ended"]) == ("fail", "refused")
        assert consumer["extra"]["active_ns"] is None
        assert on.rows("channel")[0]["extra"]["ended"] == "channel-closed"

    played(act, refuses=(commands.Basic.Consume,))


def test_a_cancelled_consumer_is_written_down_what_it_is_still_given() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(never=1.0)))
        on.broker.deliver(1, 7)
        await on.until_rows("deliver")
        await on.subscribe(Subscription(slot=1, join=True))
        await on.do("unsubscribe", slot=0)
        first, _ = on.rows("consumer")
        assert first["extra"]["ended"] == "cancelled"
        assert first["extra"]["leaving_ns"] < first["complete_ns"]
        on.broker.deliver(2, 8)
        _, late = await on.until_rows("deliver", count=2)
        assert late["extra"]["consumer"] == "3.1.1.1" and late["key"] == "q"

    played(act)


def test_who_hangs_up_settles_nothing_and_connects_anew() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(after_ms=4_000)))
        on.broker.deliver(1, 7)
        await on.until_rows("deliver")
        await on.do("hang-up", "")
        assert on.client.holds == ()
        assert on.rows("consumer")[0]["extra"]["ended"] == "hung-up"
        await later(4.5)
        assert not on.rows("ack")
        await on.subscribe(Subscription())
        assert on.server.connections == 2
        names = [row["extra"]["consumer"] for row in on.rows("consumer")]
        assert names == ["3.1.1.1", "3.2.1.1"]

    played(act)


def test_a_connection_that_breaks_ends_everything_as_lost() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(after_ms=4_000)))
        on.broker.deliver(1, 7)
        await on.until_rows("deliver")
        assert on.broker.session is not None
        on.broker.session.writer.transport.abort()
        (channel,) = await on.until_rows("channel", ended=True)
        assert channel["extra"]["ended"] == "lost" and channel["error"]
        await later(4.5)
        assert not on.rows("ack")
        with pytest.raises(Unreachable):
            await on.do("look", slot=0)

    played(act)


def test_a_subscription_without_an_answer_is_indefinite_and_its_row_too() -> None:
    async def act(on: Scene) -> None:
        task = asyncio.create_task(on.subscribe(Subscription()))
        await on.broker.until(commands.Basic.Consume)
        assert on.broker.session is not None
        on.broker.session.writer.transport.abort()
        with pytest.raises(Indefinite):
            await task
        (consumer,) = on.rows("consumer")
        assert consumer["type"] == "info" and consumer["extra"]["active_ns"] is None

    played(act, unsaid=(commands.Basic.Consume,))


def test_the_limit_of_a_channel_is_asked_for_once() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(prefetch=4, per_channel=True))
        await on.subscribe(Subscription(slot=1, prefetch=9, join=True))
        asked = [one for one in on.server.received if isinstance(one, commands.Basic.Qos)]
        assert [(one.prefetch_count, one.global_) for one in asked] == [(4, True)]
        told = [row["extra"] for row in on.rows("consumer")]
        assert [(one["prefetch"], one["global"]) for one in told] == [(4, True), (4, True)]
        assert told[0]["channel"] == told[1]["channel"]

    played(act)


def test_who_looks_finds_what_is_left_and_acknowledges_from_then_on() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(after_ms=4_000)))
        with pytest.raises(Definite, match="2 ready, 0 unsettled"):
            await on.do("look", slot=0)
        on.broker.ready = 0
        on.broker.deliver(1, 7)
        await on.until_rows("ack", ended=True)
        await on.do("look", slot=0)

    played(act, ready=2)


def test_who_keeps_deliveries_gives_them_back_when_asked_to_look() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(settling=Settling(never=1.0)))
        on.broker.deliver(1, 7)
        await on.until_rows("deliver")
        with pytest.raises(Definite, match="no such consumer"):
            await on.do("look", slot=0)
        assert on.rows("channel")[0]["extra"]["ended"] == "channel-closed"

    played(act)


def test_a_body_that_was_damaged_has_no_value() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription())
        on.broker.deliver(1, 7, body=b"nothing of ours")
        (row,) = await on.until_rows("deliver")
        assert (row["value"], row["error"]) == (None, "corrupted")

    played(act)


def test_without_acknowledgements_nothing_is_said() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription(no_ack=True))
        on.broker.deliver(1, 7)
        await on.until_rows("deliver")
        assert on.rows("consumer")[0]["extra"]["no_ack"] is True
        await on.do("unsubscribe", slot=0)
        await on.broker.until(commands.Channel.Close)
        assert not on.rows("ack")

    played(act)


def test_a_server_that_blocks_publishers_is_a_row_and_a_publish_fails() -> None:
    async def act(on: Scene) -> None:
        await on.subscribe(Subscription())
        assert on.broker.session is not None
        on.broker.session.send(commands.Connection.Blocked("low on memory"), channel=0)
        (row,) = await on.until_rows("blocked")
        assert row["extra"] == {"why": "low on memory", "connection": "3.1"}
        with pytest.raises(Definite, match="low on memory"):
            await on.do("enqueue", value=1)
        on.broker.session.send(commands.Connection.Unblocked(), channel=0)
        await on.until_rows("blocked", ended=True)

    played(act)


def test_a_message_goes_to_the_exchange_that_its_key_names() -> None:
    async def act(on: Scene) -> None:
        sending = on.do("enqueue", "exchange/x", value=1, routing_key="k", ttl_ms=50, priority=2)
        task = asyncio.create_task(sending)
        (sent,) = await on.broker.until(commands.Basic.Publish)
        assert (sent.exchange, sent.routing_key, sent.mandatory) == ("x", "k", True)
        assert on.broker.session is not None
        on.broker.session.send(commands.Basic.Ack(1), channel=1)
        await task

    played(act)


def test_a_queue_is_declared_with_its_bindings() -> None:
    async def act(on: Scene) -> None:
        await on.do("declare-queue")
        (bind,) = await on.broker.until(commands.Queue.Bind)
        assert (bind.queue, bind.exchange) == ("q", "x")

    played(act)
