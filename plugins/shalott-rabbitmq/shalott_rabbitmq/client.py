"""Clients of RabbitMQ by aio-pika: queues, and streams as partitions.

A connection is a plain one, without the library's recovery: one that ended is opened anew by the
harness, under another process, so that no operation is repeated behind its back.

    send      done: the confirm is an ack. Definite: the message came back (mandatory), or the
              server closed the channel because of it, or there was no channel. Indefinite: all
              else. A nack is among it: the message may lie on a disk and be recovered.
    receive   basic.get. Definite: get-empty, or the server refused it. Indefinite: no answer
    settle    basic.ack, which has no answer: done if the channel was open when it was written
    poll      messages of a stream from an offset on (x-stream-offset). Nothing only if the last
              chunk, which another consumer asks for, ends before it. All else is Definite

Confirms tell no offsets, so a sent message has the one at which it is polled.
https://www.rabbitmq.com/docs/confirms, https://www.rabbitmq.com/docs/streams#consuming
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.connection import Connection, make_url
from aio_pika.exceptions import (
    AMQPChannelError,
    AMQPError,
    ChannelInvalidStateError,
    DeliveryError,
    PublishError,
)

from shalott.api import ClientError, Definite, Indefinite, Received, Unreachable

HEARTBEAT_S = 10
FIRST_S, NEXT_S, LAST_S = 0.3, 0.1, 1.0  # how long a poll waits for messages, see _poll
MOST = 300  # messages of a key in one poll
SEND = "send"
STREAM_PREFIX = "shalott.stream."


class AmqpClient:
    """One connection and its channel; not open yet when made."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._host, self._port, self._timeout_s = host, port, timeout_ms / 1000
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    async def open(self) -> None:
        url = make_url(host=self._host, port=self._port, heartbeat=HEARTBEAT_S)
        connection = self._connection = Connection(url)
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()
                self._channel = await connection.channel(on_return_raises=True)
        except Exception as error:
            await self.close()
            raise Unreachable(f"no channel: {told(error)}") from error

    async def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.close()

    def _open_channel(self) -> AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            raise Unreachable("the channel is closed")
        return self._channel

    async def send(self, queue: str, body: bytes) -> None:
        exchange = self._open_channel().default_exchange
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        async with self._outcome(Indefinite):
            await exchange.publish(message, queue, mandatory=True)

    @asynccontextmanager
    async def _outcome(self, closing: type[ClientError]) -> AsyncIterator[None]:
        """Of what is asked inside. Raises ClientError: ``closing`` if the server closed the
        channel, which it may have done because of something earlier."""
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except PublishError as error:
            raise Definite("returned: no queue took it") from error
        except DeliveryError as error:
            raise Indefinite("nack: no process of the queue lived to confirm it") from error
        except AMQPChannelError as error:
            raise closing(f"the server closed the channel: {told(error)}") from error
        except (AMQPError, ChannelInvalidStateError, OSError, TimeoutError) as error:
            raise Indefinite(told(error)) from error


class QueueClient(AmqpClient):
    """See ``Queued``."""

    async def receive(self, queue: str) -> Received | None:
        channel = self._open_channel()
        async with self._outcome(Definite):
            asked = await channel.get_queue(queue, ensure=False)
            message = await asked.get(no_ack=False, fail=False)
        if message is None:
            return None
        return Received(message.body, bool(message.redelivered), message)

    async def settle(self, received: Received) -> None:
        message = received.token
        assert isinstance(message, AbstractIncomingMessage)
        if self._channel is None or self._channel.is_closed:
            raise Definite("the channel ended before the acknowledgement was sent")
        async with self._outcome(Indefinite):
            await message.ack()


class StreamClient(AmqpClient):
    """See ``Partitioned``: a key is a stream, and each send and each poll is one by itself."""

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Sequence[tuple[int, int]]]]:
        (mop,) = mops
        if self._channel is None or self._channel.is_closed:
            await self.close()
            await self.open()  # the harness keeps this client: it knows where it stands
        if mop[0] == SEND:
            key, value = int(str(mop[1])), int(str(mop[2]))
            await self.send(f"{STREAM_PREFIX}{key}", str(value).encode())
            return [(-1, value)]
        polls = (self._poll(*each) for each in places.items())
        answers = await asyncio.gather(*polls, return_exceptions=True)
        found: dict[int, Sequence[tuple[int, int]]] = {}
        for key, answer in zip(places, answers, strict=True):
            if isinstance(answer, BaseException):
                raise Definite(f"a poll changes nothing: {told(answer)}") from answer
            found[key] = answer
        return [found]

    async def _poll(self, key: int, place: int) -> Sequence[tuple[int, int]]:
        """From there on. Nothing only if that is the stream's end: what its last chunk has."""
        found = await self._read(key, place, FIRST_S)
        if found := [pair for pair in found if pair[0] >= place]:
            return found
        last = await self._read(key, "last", LAST_S)
        if last[-1:] >= [(place, 0)] or (place and not last):
            raise Definite("what follows did not come in time")
        return []

    async def _read(self, key: int, place: int | str, first_s: float) -> list[tuple[int, int]]:
        """Offsets and values from there on, until none comes."""
        assert self._connection is not None
        came: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        found: list[tuple[int, int]] = []
        async with self._outcome(Indefinite):
            channel = await self._connection.channel(publisher_confirms=False)
            try:
                await channel.set_qos(prefetch_count=MOST)
                stream = await channel.get_queue(f"{STREAM_PREFIX}{key}", ensure=False)
                await stream.consume(came.put, arguments={"x-stream-offset": place})
                while len(found) < MOST:
                    try:
                        async with asyncio.timeout(NEXT_S if found else first_s):
                            message = await came.get()
                    except TimeoutError:
                        break
                    at = int(str(message.headers["x-stream-offset"]))
                    found.append((at, int(message.body)))
            finally:
                await channel.close()
        return found


def told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
