"""A queue client over AMQP 0-9-1 that knows exactly what became of each operation.

Enqueue: a persistent, mandatory publish on a channel in confirm mode.

    ok      the confirm is an ack
    fail    a return before the confirm (no route); the channel closed because of the publish
            itself; nothing was written: no connection, no channel, connection blocked
    info    a nack; no confirm in time; the connection or the channel ended otherwise after the
            publish was written

A nack is no proof that the message is gone: RabbitMQ nacks when every process of a queue died
before it confirmed, and the message may be on one's disk and be recovered with it.

Dequeue: basic.get, then an acknowledgement by hand, at once or after ``ack_after_ms``, as an
application works on a message before it acknowledges it. If the client sees its channel end
meanwhile, it never acknowledges: the work counts for nothing, and the server must give the message
to a client again.

    ok      a message came, also if the acknowledgement is lost: the client has it, and may be
            given it again
    fail    get-empty (error "empty"); the channel closed because of the get; nothing was written;
            the channel ended before the acknowledgement was due (error "given back: ...", the
            value in ``extra`` as ``given_back``)
    info    no answer in time, connection or channel ended: the server may hold it as delivered,
            and will give it to a client again

``patient``: a client without a confirm in time stays connected (``lingers``), as one that goes on
to wait for it; the worker goes on with another.

``copied``: an enqueue names its queue in the headers CC and BCC only, there twice and once: the
message is to be there once, and no receiver may see BCC, which counts as corrupted.

``behind``: so many publishes follow each enqueue at once: two to no queue, one to its own with a
time to live of zero, and so on. Their acks, which may come before its own, count for nothing. One
that comes out all the same, of a queue that was recovered by a clock that went back, is taken for
nothing, too.

Weaker client guarantees (checkers/queues/guarantees.py) open the documented windows of loss.
Without confirms an enqueue is ok once it was written and a synchronous call on the same channel
came back, which it does behind the return of a message that has no route. Without acknowledgements
by hand a dequeue has the message deleted as it is sent. Transient queues may vanish with their
nodes: one that an answer says is not there is declared again by the next operation on it, as
applications do.

The channel is channel.py's. The AMQP 0-9-1 reference and RabbitMQ's guide on consumer
acknowledgements and publisher confirms say what each answer promises.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pamqp import commands
from pamqp.common import FieldValue

from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees
from shalott.checkers.queues.redelivery import GIVEN_BACK, GIVEN_BACK_VALUE
from shalott.clients.amqp.channel import GUEST, AmqpChannel, Credentials
from shalott.clients.amqp.connection import Connection, Content
from shalott.core.errors import Definite, Indefinite
from shalott.core.message_body import decode_body, encode_body
from shalott.core.op import Completion, Invocation

TRANSIENT, PERSISTENT = 1, 2  # delivery modes
EMPTY = "empty"
CORRUPTED = "corrupted"
PUBLISH = commands.Basic.Publish.index
_GET = commands.Basic.Get.index
_DECLARE = commands.Queue.Declare.index
_NO_ROUTE = 312
NO_QUEUE = ".to-nobody"  # ends the key of a publish that no queue gets
NOTHING = b"-"
BCC = "BCC"


@dataclass(frozen=True, slots=True)
class Habits:
    """What a client does beside its operations, see above."""

    ack_after_ms: int = 0
    behind: int = 0
    patient: bool = False
    copied: bool = False


class AmqpQueueClient:
    """Serves enqueue and dequeue on one node."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        body_bytes: int = 64,
        op_timeout_ms: int = 5000,
        habits: Habits = Habits(),
        guarantees: ClientGuarantees = CAREFUL,
        credentials: Credentials = GUEST,
        transactions: bool = False,
    ) -> None:
        self._body_bytes = body_bytes
        self._behind = habits.behind if guarantees.confirms and not transactions else 0
        self._ack_after_ms = habits.ack_after_ms
        self._patient = habits.patient
        self._copied = habits.copied
        self._awaits_confirm = False
        self.guarantees = guarantees
        self._missing: dict[str, None] = {}  # transient queues to be declared again
        self._channel = AmqpChannel(
            host,
            port,
            op_timeout_ms=op_timeout_ms,
            confirms=guarantees.confirms,
            transactions=transactions,
            credentials=credentials,
        )

    async def open(self) -> None:
        await self._channel.open()

    @property
    def lingers(self) -> bool:
        return self._patient and self._awaits_confirm and self._channel.is_open

    async def invoke(self, invocation: Invocation) -> Completion:
        async with self._channel.deadline() as deadline:
            connection = await self._channel.ready()
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
        async with self._channel.deadline():
            connection = await self._channel.ready()
            connection.send(commands.Queue.Declare(queue=queue, passive=True))
            method = commands.Queue.Declare.index
            event = await self._channel.answer(connection, (commands.Queue.DeclareOk,), method)
            assert isinstance(event, commands.Queue.DeclareOk)
            return int(event.message_count or 0)

    async def close(self) -> None:
        await self._channel.close()

    async def _enqueue(self, connection: Connection, queue: str, value: int) -> Completion:
        self._publish(connection, queue, value)
        self._awaits_confirm = True
        tag = self._channel.published
        for number in range(self._behind):
            self._channel.published += 1
            key = queue if number % 3 == 2 else f"{queue}{NO_QUEUE}"
            properties = commands.Basic.Properties(delivery_mode=PERSISTENT, expiration="0")
            connection.send_content(commands.Basic.Publish(routing_key=key), properties, NOTHING)
        if not self.guarantees.confirms:
            connection.send(commands.Basic.Qos(prefetch_count=0))
        returned: str | None = None
        wanted = (Content, commands.Basic.Ack, commands.Basic.Nack, commands.Basic.QosOk)
        while True:
            event = await self._channel.answer(connection, wanted, PUBLISH)
            match event:
                case Content(method=commands.Basic.Return() as refusal):
                    returned = f"returned: {refusal.reply_code} {refusal.reply_text}"
                    if refusal.reply_code == _NO_ROUTE:
                        self._misses(queue)
                case commands.Basic.QosOk() | commands.Basic.Ack() if _answers(event, tag):
                    self._awaits_confirm = False
                    if returned is not None:
                        raise Definite(returned)
                    return Completion(type="ok")
                case commands.Basic.Nack() if _answers(event, tag):
                    self._awaits_confirm = False
                    if returned is not None:
                        raise Definite(returned)
                    raise Indefinite("nack: no process of the queue lived to confirm it")

    def _publish(self, connection: Connection, queue: str, value: int) -> None:
        if connection.blocked is not None:
            raise Definite(f"the server blocks publishers: {connection.blocked}")
        self._channel.published += 1
        mode = PERSISTENT if self.guarantees.persistent else TRANSIENT
        key, headers = queue, dict[str, FieldValue]()
        if self._copied:
            key, headers = f"{queue}{NO_QUEUE}", {"CC": [queue, queue], BCC: [queue]}
        connection.send_content(
            commands.Basic.Publish(routing_key=key, mandatory=True),
            commands.Basic.Properties(delivery_mode=mode, headers=headers or None),
            encode_body(value, self._body_bytes),
        )

    async def _dequeue(self, connection: Connection, queue: str) -> Completion:
        no_ack, life = not self.guarantees.manual_acks, self._channel.lives
        connection.send(commands.Basic.Get(queue=queue, no_ack=no_ack))
        try:
            event = await self._channel.answer(connection, (Content, commands.Basic.GetEmpty), _GET)
        except Definite as refusal:
            if ": 404 NOT_FOUND - no queue " in str(refusal):
                self._misses(queue)
            raise
        if isinstance(event, commands.Basic.GetEmpty):
            return Completion(type="fail", error=EMPTY)
        assert isinstance(event, Content) and isinstance(event.method, commands.Basic.GetOk)
        if event.body == NOTHING:
            if not no_ack:
                self._acknowledge(connection, event.method.delivery_tag or 0)
            return await self._dequeue(connection, queue)
        value = decode_body(event.body)
        redelivered = bool(event.method.redelivered)
        if not no_ack and self._ack_after_ms:
            await asyncio.sleep(self._ack_after_ms / 1000)
            if self._channel.still(life) is None:
                why = f"{GIVEN_BACK}: {self._channel.why_lost}"
                extra = {GIVEN_BACK_VALUE: value}
                return Completion(type="fail", redelivered=redelivered, error=why, extra=extra)
        if not no_ack:
            self._acknowledge(connection, event.method.delivery_tag or 0)
        if value is None or BCC in ((event.properties and event.properties.headers) or {}):
            head = {"body_hex": event.body[:64].hex(), "body_bytes": len(event.body)}
            return Completion(type="ok", redelivered=redelivered, error=CORRUPTED, extra=head)
        return Completion(type="ok", value=value, redelivered=redelivered)

    def _acknowledge(self, connection: Connection, tag: int) -> None:
        connection.send(commands.Basic.Ack(delivery_tag=tag))

    def _misses(self, queue: str) -> None:
        if not self.guarantees.durable:
            self._missing[queue] = None

    async def _declare(self, connection: Connection, queue: str) -> None:
        """Declare a transient queue. Definite if it can't be: nothing else was asked for yet."""
        connection.send(commands.Queue.Declare(queue=queue, durable=False))
        try:
            await self._channel.answer(connection, (commands.Queue.DeclareOk,), _DECLARE)
        except Indefinite as error:
            raise Definite(f"{queue} could not be declared again: {error}") from error
        del self._missing[queue]


def _answers(
    answer: commands.Basic.Ack | commands.Basic.Nack | commands.Basic.QosOk, publish: int
) -> bool:
    """Whether it is the verdict on the publish of that number."""
    if isinstance(answer, commands.Basic.QosOk):
        return True
    tag = int(answer.delivery_tag or 0)
    return tag == publish or (bool(answer.multiple) and (tag == 0 or tag >= publish))
