"""What unmodified aio-pika must be able to do with a node, as coroutines of the node's address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aio_pika
import aiormq.exceptions
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from tests.broker.rabbit.amqp.pika_flows import Address


@asynccontextmanager
async def channel_to(address: Address, *, robust: bool = True) -> AsyncIterator[AbstractChannel]:
    connect = aio_pika.connect_robust if robust else aio_pika.connect
    connection = await connect(host=address.host, port=address.port, timeout=10)
    async with connection:
        yield await connection.channel(on_return_raises=True)


@asynccontextmanager
async def fresh_queue(channel: AbstractChannel, name: str) -> AsyncIterator[AbstractQueue]:
    await channel.queue_delete(name)
    queue = await channel.declare_queue(name, durable=True)
    try:
        yield queue
    finally:
        await channel.queue_delete(name)


async def publish(channel: AbstractChannel, name: str, *bodies: bytes) -> None:
    for body in bodies:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, name, mandatory=True, timeout=10)


async def publish_get_ack(address: Address) -> None:
    async with channel_to(address) as channel, fresh_queue(channel, "aio.get") as queue:
        await publish(channel, "aio.get", b"one")
        message = await queue.get(timeout=10)
        assert (message.body, message.redelivered) == (b"one", False)
        await message.ack()
        assert await queue.get(fail=False, timeout=10) is None


async def many_confirms_at_once(address: Address) -> None:
    async with channel_to(address) as channel, fresh_queue(channel, "aio.many") as queue:
        bodies = [b"%d" % i for i in range(300)]
        await asyncio.gather(*(publish(channel, "aio.many", body) for body in bodies))
        got = [(await queue.get(no_ack=True, timeout=10)).body for _ in bodies]
        assert sorted(got) == sorted(bodies)


async def iterate_with_prefetch(address: Address) -> None:
    async with channel_to(address) as channel, fresh_queue(channel, "aio.iterate") as queue:
        await channel.set_qos(prefetch_count=2)
        await publish(channel, "aio.iterate", *(b"%d" % i for i in range(10)))
        seen = []
        async with queue.iterator(timeout=10) as messages:
            async for message in messages:
                seen.append(message.body)
                await message.ack()
                if len(seen) == 10:
                    break
        assert seen == [b"%d" % i for i in range(10)]


async def callbacks_and_requeue(address: Address) -> None:
    async with channel_to(address) as channel, fresh_queue(channel, "aio.callback") as queue:
        seen: asyncio.Queue[tuple[bytes, bool | None]] = asyncio.Queue()

        async def on_message(message: AbstractIncomingMessage) -> None:
            seen.put_nowait((message.body, message.redelivered))
            if message.redelivered:
                await message.ack()
            else:
                await message.nack(requeue=True)

        tag = await queue.consume(on_message)
        await publish(channel, "aio.callback", b"x")
        async with asyncio.timeout(10):
            assert await seen.get() == (b"x", False)
            assert await seen.get() == (b"x", True)
        await queue.cancel(tag)
        assert await queue.get(fail=False, timeout=10) is None


async def unroutable_is_returned(address: Address) -> None:
    async with channel_to(address) as channel:
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await publish(channel, "aio.nowhere", b"x")


async def exchanges_and_bindings(address: Address) -> None:
    async with channel_to(address) as channel, fresh_queue(channel, "aio.bound") as queue:
        exchange = await channel.declare_exchange("aio.topic", aio_pika.ExchangeType.TOPIC)
        await queue.bind(exchange, "a.*")
        await exchange.publish(aio_pika.Message(b"hit"), "a.b", mandatory=True)
        assert (await queue.get(no_ack=True, timeout=10)).body == b"hit"
        await queue.unbind(exchange, "a.*")
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await exchange.publish(aio_pika.Message(b"miss"), "a.b", mandatory=True)
        await exchange.delete()


async def errors_close_the_channel(address: Address) -> None:
    async with channel_to(address, robust=False) as channel:
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity, match="no queue 'aio.absent'"):
            await channel.declare_queue("aio.absent", passive=True)
    async with channel_to(address, robust=False) as channel:
        with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed, match="x-max-length"):
            await channel.declare_queue("aio.bad", arguments={"x-max-length": -1})


FLOWS: tuple[Callable[[Address], Awaitable[None]], ...] = (
    publish_get_ack,
    many_confirms_at_once,
    iterate_with_prefetch,
    callbacks_and_requeue,
    unroutable_is_returned,
    exchanges_and_bindings,
    errors_close_the_channel,
)
