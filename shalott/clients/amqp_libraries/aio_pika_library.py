"""aio-pika as its users have it: ``aio_pika.connect_robust``, with its recovery on.

The robust connection connects again by itself, opens its channels anew, and consumes again under
the old tags, also when the server cancelled a consumer. Nothing of that is undone or helped here.
A message keeps the channel that it came on: acknowledging one of a channel that is gone is refused
by the library, and nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shalott.broker.base.tasks import Tasks
from shalott.clients.amqp_libraries.library import Outgoing, Settler
from shalott.core.errors import Definite, Unreachable
from shalott.core.subscription import Subscription, Verdict

if TYPE_CHECKING:
    import aio_pika
    from aio_pika.abc import (
        AbstractIncomingMessage,
        AbstractRobustChannel,
        AbstractRobustConnection,
    )
    from pamqp.common import FieldTable

Underlay = Any  # the channel under aio_pika's, which is aiormq's
log = logging.getLogger("shalott.clients")

RECONNECT_S = 1.0  # the library's default is 5 s: an outage of its own
HEARTBEAT_S = 10
CLOSE_TIMEOUT_S = 0.5


@dataclass(slots=True)
class _Consumer:
    queue: aio_pika.abc.AbstractRobustQueue
    name: str  # of its queue
    tag: str
    wanted: Subscription


@dataclass(slots=True)
class _Channel:
    """A robust channel, and who settles what came on the channel that is under it now."""

    robust: AbstractRobustChannel
    wanted: Subscription  # of who opened it
    consumers: dict[str, _Consumer] = field(default_factory=dict)
    under: object = None
    settler: Settler | None = None
    messages: dict[int, AbstractIncomingMessage] = field(default_factory=dict)


class AioPika:
    """A Library. ``op_timeout_ms``: what is not answered by then is given up."""

    def __init__(self, op_timeout_ms: int, vhost: str = "/") -> None:
        self._vhost = vhost
        self._timeout_s = op_timeout_ms / 1000
        self._connection: AbstractRobustConnection | None = None
        self._publisher: AbstractRobustChannel | None = None
        self._channels: list[_Channel] = []
        self._tasks = Tasks(name="aio-pika settles")
        self._calm = False

    @property
    def holds(self) -> tuple[str, ...]:
        return tuple(name for channel in self._channels for name in channel.consumers)

    async def open(self, host: str, port: int) -> None:
        import aio_pika

        try:
            async with asyncio.timeout(self._timeout_s):
                self._connection = await aio_pika.connect_robust(
                    host=host,
                    port=port,
                    virtualhost=self._vhost,
                    reconnect_interval=RECONNECT_S,
                    heartbeat=HEARTBEAT_S,
                )
                self._publisher = await self._connection.channel(on_return_raises=True)
        except Exception as error:  # noqa: BLE001 - in any case nothing was asked yet
            await self.drop()
            raise Unreachable(f"aio-pika: {error or type(error).__name__}") from error

    async def publish(self, message: Outgoing) -> None:
        import aio_pika

        assert self._publisher is not None
        outgoing = aio_pika.Message(
            message.body,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            expiration=None if message.ttl_ms is None else message.ttl_ms / 1000,
            priority=message.priority,
        )
        async with asyncio.timeout(self._timeout_s):  # being cancelled, it sends nothing later
            exchange = self._publisher.default_exchange
            if message.exchange:
                exchange = await self._publisher.get_exchange(message.exchange, ensure=False)
            await exchange.publish(outgoing, message.routing_key)

    # -- consumers ---------------------------------------------------------------------------------

    async def subscribe(self, name: str, queue: str, wanted: Subscription) -> None:
        connection = self._connection
        if connection is None or not connection.connected.is_set():
            raise Definite("aio-pika is not connected")
        channel = self._channels[-1] if wanted.join and self._channels else None
        if channel is None:
            channel = _Channel(await connection.channel(publisher_confirms=False), wanted)
            self._channels.append(channel)
        try:
            await self._consume(channel, name, queue, wanted)
        except BaseException:
            if not channel.consumers:
                await self._close(channel)
            raise

    async def _consume(
        self, channel: _Channel, name: str, queue: str, wanted: Subscription
    ) -> None:
        from aio_pika.exceptions import AMQPChannelError

        limited = channel.wanted.per_channel and channel.wanted.prefetch
        try:
            if not (limited and channel.consumers):
                await channel.robust.set_qos(
                    wanted.prefetch, global_=bool(limited), timeout=self._timeout_s
                )
            robust: Any = await channel.robust.get_queue(queue)

            async def came(message: AbstractIncomingMessage) -> None:
                self._delivered(channel, queue, message, no_ack=wanted.no_ack)

            arguments: FieldTable = {}
            if wanted.priority:
                arguments["x-priority"] = wanted.priority
            if wanted.cancel_on_failover:
                arguments["x-cancel-on-ha-failover"] = True
            tag = await robust.consume(
                came,
                no_ack=wanted.no_ack,
                exclusive=wanted.exclusive,
                arguments=arguments,
                timeout=self._timeout_s,
            )
        except AMQPChannelError as error:
            raise Definite(f"channel closed: {error}") from error
        channel.consumers[name] = _Consumer(robust, queue, tag, wanted)

    def _delivered(
        self, channel: _Channel, queue: str, message: AbstractIncomingMessage, *, no_ack: bool
    ) -> None:
        if no_ack:
            return
        try:
            under = message.channel
        except Exception:  # noqa: BLE001 - the library says that its channel is gone
            return
        if channel.under is not under:
            self._begin_channel(channel, under)
        assert channel.settler is not None and message.delivery_tag is not None
        channel.messages[message.delivery_tag] = message
        channel.settler.delivered(message.delivery_tag, queue)

    def _begin_channel(self, channel: _Channel, under: Underlay) -> None:
        """The library has opened a channel, perhaps in place of one that is gone."""
        came = 0
        if channel.settler is not None:
            came = channel.settler.came
            channel.settler.over()
        channel.under, channel.messages = under, {}

        def say(tag: int, verdict: Verdict) -> None:
            self._tasks.start(_logged(self._say(channel, settler, under, tag, verdict)))

        def ask(queue: str) -> None:
            self._tasks.start(_logged(self._ask(channel, settler, under, queue)))

        settler = Settler(channel.wanted.settling, say, ask, came)
        if self._calm:
            settler.calm()
        channel.settler = settler

    async def _say(
        self, channel: _Channel, settler: Settler, under: Underlay, tag: int, verdict: Verdict
    ) -> None:
        message = channel.messages.pop(tag, None)
        if verdict.said == "recover":
            await under.basic_recover(requeue=True, timeout=self._timeout_s)
            settler.recovered()
        elif message is None:
            pass  # of a channel that is gone
        elif verdict.said == "ack":
            await message.ack(multiple=verdict.multiple)
        elif verdict.said == "nack":
            await message.nack(multiple=verdict.multiple, requeue=verdict.requeue)
        else:
            await message.reject(requeue=verdict.requeue)

    async def _ask(self, channel: _Channel, settler: Settler, under: Underlay, queue: str) -> None:
        if settler is channel.settler and not settler.is_over:
            await under.queue_declare(queue, passive=True, timeout=self._timeout_s)
        if not channel.consumers and settler.is_idle:
            await self._close(channel)

    async def cancel(self, name: str) -> None:
        for channel in self._channels:
            consumer = channel.consumers.pop(name, None)
            if consumer is None:
                continue
            try:
                await consumer.queue.cancel(consumer.tag, timeout=self._timeout_s)
            finally:
                if not channel.consumers and (channel.settler is None or channel.settler.is_idle):
                    await self._close(channel)
            return

    async def close_channel(self, name: str) -> None:
        for channel in list(self._channels):
            if name in channel.consumers:
                await self._close(channel)

    async def calm(self) -> None:
        self._calm = True
        for channel in list(self._channels):
            if channel.settler is not None:
                channel.settler.calm()
                if channel.settler.kept:
                    await self._close(channel)

    def unsettled(self, queue: str) -> int:
        settlers = [channel.settler for channel in self._channels if channel.settler is not None]
        return sum(name == queue for settler in settlers for name in settler.unsettled.values())

    async def _close(self, channel: _Channel) -> None:
        if channel not in self._channels:
            return
        self._channels.remove(channel)
        channel.consumers.clear()
        if channel.settler is not None:
            channel.settler.over()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await channel.robust.close()

    # -- ends --------------------------------------------------------------------------------------

    async def drop(self) -> None:
        await self._end()

    async def close(self) -> None:
        await self._end()

    async def _end(self) -> None:
        for channel in self._channels:
            if channel.settler is not None:
                channel.settler.over()
        self._channels.clear()
        await self._tasks.end()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await connection.close()


async def _logged(work: Coroutine[object, None, None]) -> None:
    """An application that settles logs what its library says, and goes on."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - in any case the next delivery is settled
        log.info("aio-pika: %s: %s", type(error).__name__, error)
