"""A lock over AMQP 0-9-1: one un-acknowledged message, as Jepsen's RabbitMQ semaphore has it.

A lock is a durable queue that holds one message. The client that was given the message and has not
settled it holds the lock (jepsen/rabbitmq/src/jepsen/rabbitmq.clj, after a recipe of RabbitMQ's own
blog of 2014). The recipe is unsound by design: a broker that loses sight of a holder's node or
connection gives the message to another client, and the holder can't know. There is no fencing token
either: a delivery tag counts one channel's deliveries and orders nothing.

create (in the setup): one persistent, mandatory, confirmed publish.

Acquire: basic.get without acknowledging.

    ok      a message came: this client holds the lock
    fail    get-empty (error "empty"): another client holds it; the channel closed because of the
            get; nothing was written
    info    no answer in time, or the connection ended: the message may be held for a client that
            is gone, until the broker notices

Release: basic.reject with requeue on the channel of the acquire, then a synchronous call on it,
since a reject has no answer.

    ok      the channel has processed the reject
    info    everything else. Never fail: the client has let go, even if the broker does not know

Where Jepsen's client calls every release ok, ours says info for what was not confirmed; to a mutex
it is the same, as a release counts from its call. A client whose channel or connection ends while
it holds a lock notices at once (``until_lost``), so that its release is called then, and it is not
charged with holding what it knows to have lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from pamqp import commands

from shalott.clients.amqp.channel import GUEST, AmqpChannel, Credentials
from shalott.clients.amqp.connection import Content
from shalott.core.errors import Definite, Indefinite
from shalott.core.message_body import SMALLEST_BYTES, encode_body
from shalott.core.op import Completion, Invocation

EMPTY = "empty"
_PERSISTENT = 2
_GET = commands.Basic.Get.index
_PUBLISH = commands.Basic.Publish.index
_NO_METHOD = -1  # a channel that closes leaves a release's outcome unknown


@dataclass(frozen=True, slots=True)
class Hold:
    """A lock that this client holds, on the channel with that number."""

    key: str
    delivery_tag: int
    life: int


class AmqpLockClient:
    """Serves acquire and release on one node; holds one lock at most."""

    def __init__(
        self, host: str, port: int, *, op_timeout_ms: int = 5000, credentials: Credentials = GUEST
    ) -> None:
        self._channel = AmqpChannel(
            host, port, op_timeout_ms=op_timeout_ms, confirms=True, credentials=credentials
        )
        self._hold: Hold | None = None

    async def open(self) -> None:
        await self._channel.open()

    async def close(self) -> None:
        self._hold = None  # the broker takes back what the connection held
        await self._channel.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        match invocation.f:
            case "acquire":
                return await self._acquire(invocation.key)
            case "release":
                return await self._release(invocation.key)
            case "create":
                return await self._create(invocation.key)
        raise Definite(f"a lock client knows no {invocation.f}")

    async def until_lost(self) -> None:
        """See ``core.client.Watchful``."""
        await self._channel.until_lost()

    async def _acquire(self, key: str) -> Completion:
        if self._hold is not None:
            raise Definite(f"it holds {self._hold.key}")
        async with self._channel.deadline() as deadline:
            connection = await self._channel.ready()
            deadline.written = True
            connection.send(commands.Basic.Get(queue=key, no_ack=False))
            wanted = (Content, commands.Basic.GetEmpty)
            event = await self._channel.answer(connection, wanted, _GET)
            if isinstance(event, commands.Basic.GetEmpty):
                return Completion(type="fail", error=EMPTY)
            assert isinstance(event, Content) and isinstance(event.method, commands.Basic.GetOk)
            tag = int(event.method.delivery_tag or 0)
            self._hold = Hold(key, tag, self._channel.lives)
            return Completion(type="ok", redelivered=bool(event.method.redelivered))

    async def _release(self, key: str) -> Completion:
        hold, self._hold = self._hold, None
        if hold is None or hold.key != key:
            self._hold = hold
            raise Definite(f"it does not hold {key}")
        connection = self._channel.still(hold.life)
        if connection is None:
            raise Indefinite(f"{self._channel.why_lost} while it held {key}")
        async with self._channel.deadline() as deadline:
            deadline.written = True
            connection.send(
                commands.Basic.Reject(delivery_tag=hold.delivery_tag, requeue=True),
                commands.Basic.Qos(prefetch_count=0),
            )
            await self._channel.answer(connection, (commands.Basic.QosOk,), _NO_METHOD)
            return Completion(type="ok")

    async def _create(self, key: str) -> Completion:
        """Put the one message into an empty lock."""
        async with self._channel.deadline() as deadline:
            connection = await self._channel.ready()
            deadline.written = True
            self._channel.published += 1
            connection.send_content(
                commands.Basic.Publish(routing_key=key, mandatory=True),
                commands.Basic.Properties(delivery_mode=_PERSISTENT),
                encode_body(self._channel.published, SMALLEST_BYTES),
            )
            wanted = (Content, commands.Basic.Ack, commands.Basic.Nack)
            event = await self._channel.answer(connection, wanted, _PUBLISH)
            if not isinstance(event, commands.Basic.Ack):
                raise Indefinite(f"no confirm of the message of {key}")
            return Completion(type="ok")
