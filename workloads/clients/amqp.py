"""A queue client over AMQP 0-9-1 that knows exactly what became of each operation.

Enqueue: a persistent, mandatory publish on a channel in confirm mode.

    ok      the confirm is an ack
    fail    a return before the confirm (no route); the channel closed because of the publish
            itself; nothing was written: no connection, no channel, connection blocked
    info    a nack; no confirm in time; the connection or the channel ended otherwise after the
            publish was written

A nack is no proof that the message is gone: RabbitMQ nacks when every process of a queue died
before it confirmed, and the message may be on one's disk and be recovered with it.

Dequeue: basic.get, then an acknowledgement by hand.

    ok      a message came, whatever becomes of the acknowledgement: the client has it, and may be
            given it again
    fail    get-empty (error "empty"); the channel closed because of the get; nothing was written
    info    no answer in time, connection or channel ended: the server may hold it as delivered,
            and will give it to somebody again

Careless habits (checkers/habits.py) open the documented windows of loss. Without confirms an
enqueue is ok once it was written and a synchronous call on the same channel came back, which it
does behind the return of a message that has no route. Without acknowledgements by hand a dequeue
has the message deleted as it is sent. Transient queues may vanish with their nodes: one that an
answer says is not there is declared again by the next operation on it, as applications do.

A channel that the server closed (404: the queue's home node is down) is opened again by the next
operation; a connection that was lost is the worker's to replace (``Unreachable``). The AMQP 0-9-1
reference and RabbitMQ's guide on consumer acknowledgements and publisher confirms say what each
answer promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pamqp import commands

from checkers.habits import CAREFUL, Habits
from harness.errors import Definite, Indefinite, Unreachable
from harness.op import Completion, Invocation
from workloads.body import decode_body, encode_body
from workloads.clients.amqp_connection import Connection, ConnectionLost, Content, Event, connect

TRANSIENT, PERSISTENT = 1, 2  # delivery modes
EMPTY = "empty"
CORRUPTED = "corrupted"
_PUBLISH = commands.Basic.Publish.index
_GET = commands.Basic.Get.index
_DECLARE = commands.Queue.Declare.index
_NO_ROUTE = 312


class AmqpQueueClient:
    """Serves enqueue and dequeue on one node."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        body_bytes: int = 64,
        op_timeout_ms: int = 5000,
        habits: Habits = CAREFUL,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
    ) -> None:
        self._host = host
        self._port = port
        self._body_bytes = body_bytes
        self._timeout_s = op_timeout_ms / 1000
        self.habits = habits
        self._missing: dict[str, None] = {}  # transient queues to be declared again
        self._credentials = (user, password, vhost)
        self._connection: Connection | None = None
        self._channel_open = False
        self._published = 0  # the sequence number of the last publish on this channel
        self._unsettled = False  # an operation is under way, or ended without an answer

    async def open(self) -> None:
        user, password, vhost = self._credentials
        self._connection = await connect(
            self._host, self._port, user=user, password=password, vhost=vhost
        )
        try:
            await self._open_channel(self._connection)
        except ConnectionLost as error:
            raise Unreachable(str(error)) from error

    async def invoke(self, invocation: Invocation) -> Completion:
        async with self._deadline() as deadline:
            connection = await self._ready()
            if invocation.key in self._missing:
                await self._declare(connection, invocation.key)
            deadline.written = True
            if invocation.f == "enqueue":
                assert invocation.value is not None
                return await self._enqueue(connection, invocation.key, invocation.value)
            if invocation.f == "dequeue":
                return await self._dequeue(connection, invocation.key)
            raise Definite(f"a queue client knows no {invocation.f}")

    async def declare_passive(self, queue: str) -> int:
        """How many messages are ready in ``queue``; Definite if the server says it is not there."""
        async with self._deadline():
            connection = await self._ready()
            connection.send(commands.Queue.Declare(queue=queue, passive=True))
            method = commands.Queue.Declare.index
            event = await self._answer(connection, (commands.Queue.DeclareOk,), method)
            assert isinstance(event, commands.Queue.DeclareOk)
            return int(event.message_count or 0)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._channel_open = False
        if connection is None:
            return
        if self._unsettled:
            connection.abort("closed")  # it did not answer; it would not answer a goodbye
        else:
            await connection.close()

    async def _enqueue(self, connection: Connection, queue: str, value: int) -> Completion:
        if connection.blocked is not None:
            raise Definite(f"the server blocks publishers: {connection.blocked}")
        self._published += 1
        mode = PERSISTENT if self.habits.persistent else TRANSIENT
        connection.send_content(
            commands.Basic.Publish(routing_key=queue, mandatory=True),
            commands.Basic.Properties(delivery_mode=mode),
            encode_body(value, self._body_bytes),
        )
        if not self.habits.confirms:
            connection.send(commands.Basic.Qos(prefetch_count=0))
        returned: str | None = None
        wanted = (Content, commands.Basic.Ack, commands.Basic.Nack, commands.Basic.QosOk)
        while True:
            event = await self._answer(connection, wanted, _PUBLISH)
            match event:
                case Content(method=commands.Basic.Return() as refusal):
                    returned = f"returned: {refusal.reply_code} {refusal.reply_text}"
                    if refusal.reply_code == _NO_ROUTE:
                        self._misses(queue)
                case commands.Basic.QosOk() | commands.Basic.Ack() if self._answers_last(event):
                    if returned is not None:
                        raise Definite(returned)
                    return Completion(type="ok")
                case commands.Basic.Nack() if self._answers_last(event):
                    if returned is not None:
                        raise Definite(returned)
                    raise Indefinite("nack: no process of the queue lived to confirm it")

    async def _dequeue(self, connection: Connection, queue: str) -> Completion:
        no_ack = not self.habits.manual_acks
        connection.send(commands.Basic.Get(queue=queue, no_ack=no_ack))
        try:
            event = await self._answer(connection, (Content, commands.Basic.GetEmpty), _GET)
        except Definite as refusal:
            if ": 404 NOT_FOUND - no queue " in str(refusal):
                self._misses(queue)
            raise
        if isinstance(event, commands.Basic.GetEmpty):
            return Completion(type="fail", error=EMPTY)
        assert isinstance(event, Content) and isinstance(event.method, commands.Basic.GetOk)
        if not no_ack:
            connection.send(commands.Basic.Ack(delivery_tag=event.method.delivery_tag or 0))
        value = decode_body(event.body)
        redelivered = bool(event.method.redelivered)
        if value is None:
            head = {"body_hex": event.body[:64].hex(), "body_bytes": len(event.body)}
            return Completion(type="ok", redelivered=redelivered, error=CORRUPTED, extra=head)
        return Completion(type="ok", value=value, redelivered=redelivered)

    def _misses(self, queue: str) -> None:
        if not self.habits.durable:
            self._missing[queue] = None

    async def _declare(self, connection: Connection, queue: str) -> None:
        """Declare a transient queue. Definite if it can't be: nothing else was asked for yet."""
        connection.send(commands.Queue.Declare(queue=queue, durable=False))
        try:
            await self._answer(connection, (commands.Queue.DeclareOk,), _DECLARE)
        except Indefinite as error:
            raise Definite(f"{queue} could not be declared again: {error}") from error
        del self._missing[queue]

    def _answers_last(
        self, answer: commands.Basic.Ack | commands.Basic.Nack | commands.Basic.QosOk
    ) -> bool:
        """Whether it is the verdict on the last publish."""
        if isinstance(answer, commands.Basic.QosOk):
            return True
        tag = int(answer.delivery_tag or 0)
        return tag == self._published or (bool(answer.multiple) and tag in (0, self._published))

    async def _ready(self) -> Connection:
        """A connection with an open channel on which nothing was asked yet."""
        connection = self._connection
        if connection is None or connection.lost is not None:
            raise Unreachable("not connected" if connection is None else str(connection.lost))
        while (event := connection.poll_event()) is not None:
            if isinstance(event, commands.Channel.Close):
                self._accept_channel_close(connection)
        if not self._channel_open:
            try:
                await self._open_channel(connection)
            except ConnectionLost as error:
                raise Unreachable(str(error)) from error
        return connection

    async def _open_channel(self, connection: Connection) -> None:
        confirms = self.habits.confirms
        opening = (commands.Channel.Open(), *((commands.Confirm.Select(),) if confirms else ()))
        opened = commands.Confirm.SelectOk if confirms else commands.Channel.OpenOk
        connection.send(*opening)
        self._published = 0
        while True:
            event = await connection.next_event()
            if isinstance(event, commands.Channel.Close):
                self._accept_channel_close(connection)
                raise Definite(f"no channel: {event.reply_code} {event.reply_text}")
            if isinstance(event, opened):
                self._channel_open = True
                return

    def _accept_channel_close(self, connection: Connection) -> None:
        connection.send(commands.Channel.CloseOk())
        self._channel_open = False

    async def _answer(
        self, connection: Connection, wanted: tuple[type[Event], ...], method_index: int
    ) -> Event:
        """The first event of a wanted kind. ``method_index`` is the method that was sent."""
        while True:
            event = await connection.next_event()
            if isinstance(event, commands.Channel.Close):
                self._accept_channel_close(connection)
                text = f"channel closed: {event.reply_code} {event.reply_text}"
                caused_by = (int(event.class_id or 0) << 16) | int(event.method_id or 0)
                if caused_by == method_index:
                    raise Definite(text)
                raise Indefinite(text)
            if isinstance(event, wanted):
                return event

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[_Progress]:
        """Bound one operation, and turn what ends it into Unreachable or Indefinite."""
        progress = _Progress()
        self._unsettled = True
        try:
            async with asyncio.timeout(self._timeout_s):
                yield progress
        except TimeoutError as error:
            text = f"timeout: no answer in {self._timeout_s:g} s"
            if progress.written:
                raise Indefinite(text) from error
            raise Unreachable(text) from error
        except ConnectionLost as error:
            if progress.written:
                raise Indefinite(str(error)) from error
            raise Unreachable(str(error)) from error
        except Definite:
            self._unsettled = False
            raise
        self._unsettled = False


class _Progress:
    """Whether an operation may have reached the server."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written = False
