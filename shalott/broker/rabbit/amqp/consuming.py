"""Consumers: consume, cancel and qos on a channel, and what a failover does to consumers.

Only masters deliver. When a master dies, its unsettled deliveries are stale (deliveries.py),
and each of its consumers is either cancelled (it asked for that with x-cancel-on-ha-failover, or
the queue is gone) or subscribed again at the new master, once the queue's row names one that is
alive; until then the channel looks again every ``RETRY_MS``.
"""

from __future__ import annotations

from pamqp import commands

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.amqp.arguments import check_consumer_arguments
from shalott.broker.rabbit.amqp.deliveries import Unsettled
from shalott.broker.rabbit.amqp.direct_reply import REPLY_TO, DirectReplies
from shalott.broker.rabbit.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    AmqpError,
)
from shalott.broker.rabbit.amqp.queue_methods import QueueAccess, unexpected_answer
from shalott.broker.rabbit.amqp.queue_protocol import (
    CancelConsumer,
    Consume,
    ConsumerCancelled,
    Deliver,
)
from shalott.broker.rabbit.amqp.services import ConsumerInfo, Context
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Done, Failed, Message, Pid

RETRY_MS = 100


class Consumer:
    """One basic.consume. ``process`` None: the queue has no master at the moment."""

    __slots__ = ("cancelling", "process", "queue", "request")

    def __init__(self, queue: str, request: Consume) -> None:
        self.queue = queue
        self.request = request
        self.process: Pid | None = None
        self.cancelling = False


class CancelDone(Message, frozen=True):
    """channel -> itself: all deliveries before the end of ``consumer`` were passed on."""

    consumer: Consumer
    nowait: bool


class Consumers:
    """The consumers of one channel."""

    def __init__(
        self, context: Context, access: QueueAccess, unsettled: Unsettled, replies: DirectReplies
    ) -> None:
        self._context = context
        self._replies = replies
        self._access = access
        self._unsettled = unsettled
        self._consumers: dict[str, Consumer] = {}
        self.prefetch = 0  # of consumers to come

    def infos(self) -> tuple[ConsumerInfo, ...]:
        """As they are shown, in the order in which they came."""
        return tuple(
            ConsumerInfo(
                tag=tag,
                queue=consumer.queue,
                no_ack=consumer.request.no_ack,
                exclusive=consumer.request.exclusive,
                prefetch=consumer.request.prefetch,
                priority=consumer.request.priority,
            )
            for tag, consumer in self._consumers.items()
        )

    def places(self) -> list[tuple[str, Pid | None]]:
        """By tag, the master that serves it; None: it looks for one."""
        return [(tag, consumer.process) for tag, consumer in self._consumers.items()]

    @property
    def waiting(self) -> bool:
        """Whether some consumer has no master, so that RetryConsumers should come."""
        consumers = self._consumers
        return bool(consumers) and any(one.process is None for one in consumers.values())

    # -- requests ----------------------------------------------------------------------------------

    async def qos(self, method: commands.Basic.Qos) -> None:
        if method.prefetch_size:
            text = f"prefetch_size!=0 ({method.prefetch_size})"
            raise AmqpError(NOT_IMPLEMENTED, text)
        if method.global_:
            self._unsettled.prefetch = method.prefetch_count
            for process in dict.fromkeys(c.process for c in self._consumers.values()):
                self._unsettled.send_limit(process)
        else:
            self.prefetch = method.prefetch_count
        await self._context.port.send(commands.Basic.QosOk())
        self._unsettled.resume()

    async def consume(self, method: commands.Basic.Consume) -> None:
        if method.queue == REPLY_TO:
            await self._replies.consume(method, self._consumers)
            return
        name = self._access.name(method.queue)
        existing = self._consumers.get(method.consumer_tag)
        if existing is not None and not existing.cancelling:
            text = f"attempt to reuse consumer tag '{method.consumer_tag}'"
            raise AmqpError(NOT_ALLOWED, text)
        arguments: dict[str, object] = {**(method.arguments or {})}
        check_consumer_arguments(
            f"queue '{name}' in vhost '{self._context.session.vhost}'", arguments
        )
        priority = arguments.get("x-priority", 0)
        is_cancelled = arguments.get("x-cancel-on-ha-failover", False)
        assert isinstance(priority, int) and isinstance(is_cancelled, bool)
        request = Consume(
            channel=self._context.pid,
            tag=method.consumer_tag or self._new_tag(),
            no_ack=method.no_ack,
            exclusive=method.exclusive,
            prefetch=self.prefetch,
            priority=priority,
            cancel_on_failover=is_cancelled,
        )
        consumer = Consumer(name, request)
        row = await self._access.available(name)
        self._unsettled.send_limit(row.pid)
        asked, answer = await self._access.ask(name, request)
        if isinstance(answer, Failed) and answer.kind == "access_refused":
            text = f"queue '{row.name}' in vhost '{row.vhost}' in exclusive use"
            raise AmqpError(ACCESS_REFUSED, text)
        if not isinstance(answer, Done):
            raise unexpected_answer(asked, answer)
        self._subscribed(consumer, asked)
        self._consumers[request.tag] = consumer
        if not method.nowait:
            await self._context.port.send(commands.Basic.ConsumeOk(request.tag))

    async def cancel(self, method: commands.Basic.Cancel) -> CancelDone | None:
        """What the channel is to send itself, so that cancel-ok follows the last delivery."""
        tag = method.consumer_tag or ""
        consumer = None if self._replies.cancel(tag) else self._consumers.get(tag)
        if consumer is None:
            await self._send_cancel_ok(tag, nowait=method.nowait)
            return None
        consumer.cancelling = True
        if consumer.process is not None:
            request = CancelConsumer(self._context.pid, consumer.request.tag)
            try:
                await self._context.services.runtime.call(
                    consumer.process, request, timeout_ms=None, caller=self._context.pid
                )
            except ProcessError:
                pass  # the consumer went down with its queue process
        return CancelDone(consumer, method.nowait)

    async def on_cancel_done(self, message: CancelDone) -> None:
        tag = message.consumer.request.tag
        if self._consumers.get(tag) is message.consumer:
            self._drop(message.consumer)
        await self._send_cancel_ok(tag, nowait=message.nowait)

    # -- from queue processes ----------------------------------------------------------------------

    async def on_deliver(self, message: Deliver) -> None:
        consumer = self._consumers.get(message.tag)
        if consumer is None:  # cancelled by the server while this was on its way
            self._unsettled.requeue(message)
        elif consumer.request.no_ack:
            await self._unsettled.pass_on(message, no_ack=True)
        elif not self._unsettled.is_returned(message):
            await self._unsettled.pass_on(message, no_ack=False)
        self._unsettled.written.count(message.process)

    async def on_consumer_cancelled(self, message: ConsumerCancelled) -> None:
        consumer = self._consumers.get(message.tag)
        if consumer is None or consumer.process != message.process:
            return
        row = self._context.services.queues.lookup(self._context.session.vhost, consumer.queue)
        moved = row is not None and row.pid != message.process
        if moved and not consumer.request.cancel_on_failover:
            consumer.process = None
            await self.resubscribe()
        else:
            await self._cancel_by_server(consumer)

    async def on_down(self, process: Pid, reason: str) -> None:
        """A queue process ended. "normal": its queue was deleted; all else is a failover."""
        self._unsettled.process_down(process)
        for consumer in list(self._consumers.values()):
            if consumer.process == process and not consumer.cancelling:
                if reason == "normal" or consumer.request.cancel_on_failover:
                    await self._cancel_by_server(consumer)
                else:
                    consumer.process = None
        await self.resubscribe()
        self._unsettled.resume()

    async def resubscribe(self) -> None:
        """Give consumers that lost their master the new one, where there is one."""
        for consumer in list(self._consumers.values()):
            if consumer.process is None and not consumer.cancelling:
                await self._resubscribe(consumer)

    async def _resubscribe(self, consumer: Consumer) -> None:
        queues = self._context.services.queues
        row = queues.lookup(self._context.session.vhost, consumer.queue)
        if row is None:
            await self._cancel_by_server(consumer)
            return
        if row.pid is None or not queues.is_available(row):
            return
        self._unsettled.send_limit(row.pid)
        try:
            answer = await self._context.services.runtime.call(
                row.pid, consumer.request, timeout_ms=None, caller=self._context.pid
            )
        except ProcessError:
            return  # that one is gone as well
        if isinstance(answer, Done):
            self._subscribed(consumer, row)
        elif isinstance(answer, Failed) and answer.kind == "access_refused":
            await self._cancel_by_server(consumer)

    def _subscribed(self, consumer: Consumer, row: QueueRow) -> None:
        assert row.pid is not None
        consumer.process = row.pid
        self._context.watch(row.pid)
        self._unsettled.send_limit(row.pid)  # it may be another one than was looked up first

    def _drop(self, consumer: Consumer) -> None:
        del self._consumers[consumer.request.tag]

    async def _cancel_by_server(self, consumer: Consumer) -> None:
        self._drop(consumer)
        if self._context.session.consumer_cancel_notify:
            await self._context.port.send(commands.Basic.Cancel(consumer.request.tag, nowait=True))

    async def _send_cancel_ok(self, tag: str, *, nowait: bool) -> None:
        if not nowait:
            await self._context.port.send(commands.Basic.CancelOk(tag))

    def _new_tag(self) -> str:
        return f"amq.ctag-{self._context.services.env.rng.getrandbits(128):032x}"
