"""A client that publishes and consumes on one connection, as applications do.

Channel 1 publishes with confirms, declares, deletes and, after the heal, gets: what became of these
is decided as in queue_client.py. Each consumer has a channel of its own or shares one (channel.py),
and is served between operations.

    enqueue         as in queue_client.py; to ``exchange/NAME`` with ``extra``'s ``routing_key``
    dequeue         as in queue_client.py
    subscribe       ok: consume-ok came; fail: refused, or there is one already in that place
    unsubscribe     ok: cancel-ok came; fail: there is none. Without a key: all of them, and their
                    channels are closed
    close-channel   ok: the close was sent; fail: there is none
    hang-up         ok: the connection is dropped without a word; the next operation connects anew
    look            from now on everything is acknowledged at once. ok: the queue has nothing ready,
                    and this client holds nothing of it; fail: there is something
    delete-queue    ok: delete-ok came
    purge-queue     ok: purge-ok came
    declare-queue   ok: declare-ok came

An operation that ends without an answer is Indefinite, which retires the process: its connection is
dropped, and with it the process' consumers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple

from pamqp import commands
from pamqp.base import Frame
from pamqp.common import FieldTable

from shalott.clients.amqp.channel import GUEST, AmqpChannel, Credentials
from shalott.clients.amqp.channel_answers import ChannelEnded
from shalott.clients.amqp.connection import Connection, Content
from shalott.clients.amqp.consumer_channel import CORRUPTED, Consumer, ConsumerChannel, told_in
from shalott.core.client import ClientRows
from shalott.core.consumer_generator import slot_name
from shalott.core.errors import Definite, Indefinite
from shalott.core.history import Recorder
from shalott.core.message_body import decode_body, encode_body
from shalott.core.op import Completion, Invocation, OpType
from shalott.core.subscription import Subscription, subscription_of

Operation = Callable[[Connection, Invocation], Awaitable[Completion]]

EMPTY = "empty"
_PERSISTENT = 2
_PUBLISH = commands.Basic.Publish.index
_GET = commands.Basic.Get.index
_ANSWERS: Mapping[type[Frame], type[Frame]] = {
    commands.Queue.Declare: commands.Queue.DeclareOk,
    commands.Queue.Bind: commands.Queue.BindOk,
    commands.Queue.Delete: commands.Queue.DeleteOk,
    commands.Queue.Purge: commands.Queue.PurgeOk,
    commands.Exchange.Declare: commands.Exchange.DeclareOk,
    commands.Exchange.Bind: commands.Exchange.BindOk,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerClients:
    """Makes the clients of one run; they share nothing but the numbers of their connections."""

    declarations: Declarations
    body_bytes: int = 64
    op_timeout_ms: int = 5000
    credentials: Credentials = GUEST
    numbers: count[int] = field(default_factory=lambda: count(1))

    def __call__(self, host: str, port: int) -> AmqpConsumerClient:
        return AmqpConsumerClient(host, port, self)


class AmqpConsumerClient:
    """Serves one process on one node. It records nothing unless ``record_in`` was called."""

    def __init__(self, host: str, port: int, run: ConsumerClients) -> None:
        self._run = run
        self._channel = AmqpChannel(
            host, port, op_timeout_ms=run.op_timeout_ms, confirms=True, credentials=run.credentials
        )
        self._consuming = ConsumingChannels()
        self._connected = False
        self._blocked: int | None = None  # row

    # The protocols of core/client.py.

    def record_in(self, recorder: Recorder, process: int, node: str) -> None:
        self._consuming.rows = ClientRows(recorder, process, node)

    @property
    def holds(self) -> tuple[str, ...]:
        return self._consuming.holds

    async def open(self) -> None:
        await self._channel.open()
        self._connected = True
        self._consuming.begin(next(self._run.numbers))
        connection = await self._channel.ready()
        connection.on_blocked = self._on_blocked

    async def close(self) -> None:
        why = "hung-up" if self._channel.owes_an_answer else "closed"
        self._drop_channels(why)
        await self._channel.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        if not self._connected:
            await self.open()
        operation = self._operations().get(invocation.f)
        if operation is None:
            raise Definite(f"a consumer's client knows no {invocation.f}")
        async with self._channel.deadline() as deadline:
            connection = await self._channel.ready()
            deadline.written = True
            try:
                return await operation(connection, invocation)
            except ChannelEnded as error:
                if error.refused:
                    raise Definite(str(error)) from error
                raise Indefinite(str(error)) from error

    def _operations(self) -> Mapping[str, Operation]:
        return {
            "enqueue": self._enqueue,
            "dequeue": self._dequeue,
            "subscribe": self._consuming.subscribe,
            "unsubscribe": self._consuming.unsubscribe,
            "close-channel": self._consuming.close_channel,
            "hang-up": self._hang_up,
            "look": self._consuming.look,
            "delete-queue": self._delete_queue,
            "purge-queue": self._purge_queue,
            "declare-queue": self._declare,
            "declare-exchange": self._declare,
        }

    # Publishing, and getting what is left.

    async def _enqueue(self, connection: Connection, invocation: Invocation) -> Completion:
        assert invocation.value is not None
        if connection.blocked is not None:
            raise Definite(f"the server blocks publishers: {connection.blocked}")
        extra = invocation.extra or {}
        key, exchange, routing_key = invocation.key, "", invocation.key
        if key.startswith(EXCHANGE_PREFIX):
            exchange, routing_key = key.removeprefix(EXCHANGE_PREFIX), extra["routing_key"]
        ttl_ms = extra.get("ttl_ms")
        self._channel.published += 1
        connection.send_content(
            commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True),
            commands.Basic.Properties(
                delivery_mode=_PERSISTENT,
                expiration=None if ttl_ms is None else str(ttl_ms),
                priority=extra.get("priority"),
                headers=extra.get("headers"),
            ),
            encode_body(invocation.value, self._run.body_bytes),
        )
        returned: str | None = None
        wanted = (Content, commands.Basic.Ack, commands.Basic.Nack)
        while True:
            event = await self._channel.answer(connection, wanted, _PUBLISH)
            if isinstance(event, Content) and isinstance(event.method, commands.Basic.Return):
                returned = f"returned: {event.method.reply_code} {event.method.reply_text}"
            elif isinstance(event, commands.Basic.Ack | commands.Basic.Nack):
                if not self._is_of_last(event):
                    continue
                if returned is not None:
                    raise Definite(returned)
                if isinstance(event, commands.Basic.Nack):
                    raise Indefinite("nack: a queue refused it, or did not live to confirm it")
                return Completion(type="ok")

    def _is_of_last(self, answer: commands.Basic.Ack | commands.Basic.Nack) -> bool:
        tag, published = int(answer.delivery_tag or 0), self._channel.published
        return tag == published or (bool(answer.multiple) and tag in (0, published))

    async def _dequeue(self, connection: Connection, invocation: Invocation) -> Completion:
        connection.send(commands.Basic.Get(queue=invocation.key, no_ack=False))
        event = await self._channel.answer(connection, (Content, commands.Basic.GetEmpty), _GET)
        if isinstance(event, commands.Basic.GetEmpty):
            return Completion(type="fail", error=EMPTY)
        assert isinstance(event, Content) and isinstance(event.method, commands.Basic.GetOk)
        connection.send(commands.Basic.Ack(delivery_tag=event.method.delivery_tag or 0))
        value = decode_body(event.body)
        return Completion(
            type="ok",
            value=value,
            redelivered=bool(event.method.redelivered),
            error=CORRUPTED if value is None else None,
            extra=told_in(event.properties) if event.properties is not None else {},
        )

    async def _hang_up(self, connection: Connection, invocation: Invocation) -> Completion:
        self._drop_channels("hung-up")
        self._channel.hang_up()
        self._connected = False
        return Completion(type="ok")

    def _drop_channels(self, why: str) -> None:
        self._consuming.drop(why)
        self._on_blocked(None, "info")

    # Declaring.

    async def _declare(self, connection: Connection, invocation: Invocation) -> Completion:
        declared = self._run.declarations[invocation.key]
        for method in declared.methods():
            await self._request(connection, method)
        return Completion(type="ok")

    async def _delete_queue(self, connection: Connection, invocation: Invocation) -> Completion:
        await self._request(connection, commands.Queue.Delete(queue=invocation.key))
        return Completion(type="ok")

    async def _purge_queue(self, connection: Connection, invocation: Invocation) -> Completion:
        await self._request(connection, commands.Queue.Purge(queue=invocation.key))
        return Completion(type="ok")

    async def _request(self, connection: Connection, method: Frame) -> None:
        connection.send(method)
        await self._channel.answer(connection, (_ANSWERS[type(method)],), method.index)

    def _on_blocked(self, why: str | None, kind: OpType = "ok") -> None:
        rows = self._consuming.rows
        if rows is None:
            return
        if self._blocked is not None:
            rows.end(self._blocked, Completion(type=kind))
            self._blocked = None
        if why is not None:
            told = {"why": why, "connection": self._consuming.connection_name}
            self._blocked = rows.begin("blocked", "", told)


class ConsumingChannels:
    """The channels with consumers of one connection after the other."""

    def __init__(self) -> None:
        self.rows: ClientRows | None = None
        self.channels: list[ConsumerChannel] = []
        self.connection_name = ""
        self._opened = 0  # channels of the connection

    def begin(self, number: int) -> None:
        """A connection is open, of the run's that number."""
        self._opened = 0
        process = self.rows.process if self.rows is not None else 0
        self.connection_name = f"{process}.{number}"

    @property
    def holds(self) -> tuple[str, ...]:
        """Names of the places whose consumers are not about to leave."""
        return tuple(
            slot_name(consumer.queue, consumer.wanted.slot)
            for channel in self.channels
            for consumer in channel.consumers.values()
            if consumer.leaving_ns is None
        )

    def drop(self, why: str) -> None:
        """The client ends the connection itself."""
        for channel in list(self.channels):
            channel.drop(why)

    async def subscribe(self, connection: Connection, invocation: Invocation) -> Completion:
        wanted = subscription_of(invocation.extra)
        if self._find(invocation.key, wanted.slot) is not None:
            raise Definite("there is one already")
        channel = self.channels[-1] if wanted.join and self.channels else None
        if channel is None:
            channel = await self._open_channel(connection, wanted)
        await channel.consume(invocation.key, wanted)
        return Completion(type="ok")

    async def _open_channel(self, connection: Connection, wanted: Subscription) -> ConsumerChannel:
        assert self.rows is not None, "who consumes records"
        self._opened += 1
        channel = ConsumerChannel(
            connection,
            self.rows,
            f"{self.connection_name}.{self._opened}",
            self.connection_name,
            wanted.settling,
            self._ended,
        )
        self.channels.append(channel)
        await channel.open()
        return channel

    async def unsubscribe(self, connection: Connection, invocation: Invocation) -> Completion:
        if not invocation.key:
            for channel in list(self.channels):
                for consumer in list(channel.consumers.values()):
                    await channel.cancel(consumer)
                channel.close()
            return Completion(type="ok")
        channel, consumer = self._held(invocation)
        await channel.cancel(consumer)
        return Completion(type="ok")

    async def close_channel(self, connection: Connection, invocation: Invocation) -> Completion:
        channel, _ = self._held(invocation)
        channel.close()
        return Completion(type="ok")

    async def look(self, connection: Connection, invocation: Invocation) -> Completion:
        for channel in list(self.channels):
            channel.settle_all_from_now()
        channel, _ = self._held(invocation)
        ready = await channel.look(invocation.key)
        unsettled = sum(
            delivery.queue == invocation.key
            for channel in self.channels
            for delivery in channel.unsettled.values()
        )
        if ready or unsettled:
            raise Definite(f"{ready} ready, {unsettled} unsettled")
        return Completion(type="ok")

    def _held(self, invocation: Invocation) -> tuple[ConsumerChannel, Consumer]:
        found = self._find(invocation.key, int((invocation.extra or {}).get("slot", 0)))
        if found is None:
            raise Definite("there is no such consumer")
        return found

    def _find(self, queue: str, slot: int) -> tuple[ConsumerChannel, Consumer] | None:
        for channel in self.channels:
            consumer = channel.find(queue, slot)
            if consumer is not None:
                return channel, consumer
        return None

    def _ended(self, channel: ConsumerChannel) -> None:
        self.channels.remove(channel)


Arguments = FieldTable  # of a declaration
EXCHANGE_PREFIX = "exchange/"  # of a key that is no queue


class Binding(NamedTuple):
    """To an exchange."""

    exchange: str
    key: str = ""
    arguments: Arguments = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclaration:
    """A durable queue."""

    name: str
    arguments: Arguments = field(default_factory=dict)
    bindings: tuple[Binding, ...] = ()

    def methods(self) -> tuple[Frame, ...]:
        """In this order; the last answer says that all is done."""
        declare = commands.Queue.Declare(
            queue=self.name, durable=True, arguments=dict(self.arguments)
        )
        bind = (
            commands.Queue.Bind(
                queue=self.name,
                exchange=each.exchange,
                routing_key=each.key,
                arguments=dict(each.arguments),
            )
            for each in self.bindings
        )
        return (declare, *bind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDeclaration:
    """A durable exchange. ``alternate``: the exchange that gets what has no route here.
    ``bindings``: to exchanges that pass on to this one."""

    name: str
    kind: Literal["direct", "fanout", "topic", "headers"]
    alternate: str = ""
    bindings: tuple[Binding, ...] = ()

    def methods(self) -> tuple[Frame, ...]:
        arguments = {"alternate-exchange": self.alternate} if self.alternate else {}
        return (
            commands.Exchange.Declare(
                exchange=self.name, exchange_type=self.kind, durable=True, arguments=dict(arguments)
            ),
            *(
                commands.Exchange.Bind(
                    destination=self.name, source=each.exchange, routing_key=each.key
                )
                for each in self.bindings
            ),
        )


Declaration = QueueDeclaration | ExchangeDeclaration
Declarations = Mapping[str, Declaration]  # by key: a queue, or exchange/NAME
