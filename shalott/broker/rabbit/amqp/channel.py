"""Channel: the process behind one AMQP channel.

Its mailbox merges three streams: commands from the client, in the client's order; deliveries and
confirms from queue processes; the ends of those processes. The work is done by its parts
(Publisher, Consumers, Transactions, ExchangeMethods, QueueMethods); this file passes on and ends
the channel.

A refusal (AmqpError) ends the channel, or the connection if it is a hard one. When a channel ends,
every queue process learns it through its monitor and takes back what was
unsettled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from pamqp import commands

from shalott.broker.base.errors import BrokerError
from shalott.broker.rabbit.amqp import counts
from shalott.broker.rabbit.amqp.consuming import RETRY_MS, CancelDone, Consumers
from shalott.broker.rabbit.amqp.deliveries import Unsettled, check_timeout
from shalott.broker.rabbit.amqp.direct_reply import DirectReplies
from shalott.broker.rabbit.amqp.errors import (
    COMMAND_INVALID,
    INTERNAL_ERROR,
    NOT_IMPLEMENTED,
    AmqpError,
)
from shalott.broker.rabbit.amqp.exchange_methods import ExchangeMethods
from shalott.broker.rabbit.amqp.exchanges import Router
from shalott.broker.rabbit.amqp.publishing import Publisher
from shalott.broker.rabbit.amqp.queue_methods import QueueAccess, QueueMethods
from shalott.broker.rabbit.amqp.queue_protocol import (
    Confirmed,
    ConsumerCancelled,
    Deliver,
    Paused,
    Refused,
    Reply,
    ReplyConsumer,
)
from shalott.broker.rabbit.amqp.rights import check
from shalott.broker.rabbit.amqp.services import (
    ChannelInfo,
    CheckTimeouts,
    CommandArrived,
    ConnectionGone,
    Context,
    Port,
    RetryConfirms,
    RetryConsumers,
    Services,
    Session,
)
from shalott.broker.rabbit.amqp.transactions import Transactions
from shalott.broker.rabbit.amqp.verdicts import Verdicts
from shalott.broker.rabbit.amqp.wire import Command, Method
from shalott.broker.rabbit.metadata.permissions import Permissions
from shalott.broker.rabbit.processes.messages import Down, Message, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller

TICK_MS = 60_000  # between looks at deliveries that are held for long (channel_tick_interval)
CONFIRM_RETRY_MS = 50  # how often may_confirm is asked again while it says no
BACKLOG_HIGH = 500  # commands in the mailbox at which the connection stops reading
BACKLOG_LOW = 100

Handler = Callable[[Any], Awaitable[None]]


class Backlog:
    """Commands in a channel's mailbox. The connection stops reading while there are many."""

    def __init__(self) -> None:
        self._count = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def room(self) -> None:
        """Returns once the mailbox is not far behind, or the channel has ended."""
        await self._room.wait()

    def grow(self) -> None:
        self._count += 1
        if self._count >= BACKLOG_HIGH:
            self._room.clear()

    def shrink(self) -> None:
        self._count -= 1
        if self._count <= BACKLOG_LOW:
            self._room.set()

    def end(self) -> None:
        """The channel has ended: the connection need not wait for it."""
        self._room.set()


class Channel(Process):
    """Spawned by its connection, which feeds it with ``accept`` and waits while its ``backlog``
    is long.
    """

    def __init__(self, services: Services, session: Session, port: Port, router: Router) -> None:
        super().__init__()
        self._services = services
        self._session = session
        self._port = port
        self._router = router
        self._permissions = Permissions(services.metadata, session.vhost, session.user)
        self._watched: dict[Pid, int] = {}  # process -> monitor
        self.backlog = Backlog()
        self._counts = counts.Counts(services.counts)
        self._retrying_confirms = False
        self._retrying_consumers = False
        self.has_started = False

    async def started(self) -> None:
        self._context = context = Context(
            services=self._services,
            session=self._session,
            port=self._port,
            router=self._router,
            pid=self.pid,
            number=self._port.number,
            watch=self._watch,
            counts=self._counts,
        )
        self.replies = DirectReplies(context)
        self.verdicts = Verdicts(context)
        self.publisher = Publisher(context, self.replies, self.verdicts)
        self._access = access = QueueAccess(context)
        self.unsettled = Unsettled(context, access)
        self.consumers = Consumers(context, access, self.unsettled, self.replies)
        self.transactions = Transactions(context, self.publisher, self.verdicts, self.unsettled)
        self._handlers = self._dispatch_table(
            ExchangeMethods(context), QueueMethods(context, access, self.replies)
        )
        self.has_started = True
        self._schedule_timeouts()

    # -- for the connection ------------------------------------------------------------------------

    def info(self, number: int) -> ChannelInfo:
        """As it is shown; the channel has started."""
        return ChannelInfo(
            number=number,
            pid=self.pid,
            confirms=self.verdicts.confirming,
            transactional=self.transactions.selected,
            uncommitted=self.publisher.uncommitted,
            uncommitted_acks=self.unsettled.uncommitted_acks,
            prefetch=self.consumers.prefetch,
            channel_prefetch=self.unsettled.prefetch,
            unacknowledged=len(self.unsettled),
            unconfirmed=len(self.verdicts),
            counts=self._counts.message_stats(),
            consumers=self.consumers.infos(),
        )

    def accept(self, command: Command) -> None:
        self.backlog.grow()
        self.deliver(CommandArrived(command))

    # -- the process -------------------------------------------------------------------------------

    async def run(self) -> None:
        self._services.counts.add(counts.CHANNELS_OPENED)
        try:
            await super().run()
        finally:
            self._services.counts.add(counts.CHANNELS_CLOSED)
            self._services.counts.add(counts.PUBLISHERS, -self._counts.of(counts.PUBLISHERS))

    async def handle(self, message: Message) -> None:
        command = message.command if isinstance(message, CommandArrived) else None
        try:
            if command is not None:
                self.backlog.shrink()
                await self._on_command(command)
            elif isinstance(message, Confirmed):  # one from each process for each publish
                self.verdicts.on_confirmed(message)
            else:
                await self._on_message(message)
            if self.verdicts.flush_due:
                await self._flush()
        except AmqpError as error:
            await self._fail(error, command)
        except BrokerError as error:
            text = f"{type(error).__name__}: {error}"
            await self._fail(AmqpError(INTERNAL_ERROR, text), command)
        self._schedule_consumers()

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if isinstance(request, ReplyConsumer):
            return self.replies.on_asked(request)
        return await super().handle_call(request, caller)

    async def idle(self) -> None:
        if self.verdicts.has_some:
            try:
                await self._flush()
            except AmqpError as error:
                await self._fail(error, None)

    async def _on_command(self, command: Command) -> None:
        method = command.method
        if command.oversized is not None:
            raise command.oversized
        if not isinstance(method, commands.Channel.Close):
            self.transactions.check_quiet()
        check(self._permissions, self._session, method, self._access.name)
        if isinstance(method, commands.Basic.Publish):
            await self.publisher.publish(method, command.properties, command.body)
            return
        if isinstance(method, commands.Channel.Close):
            self._port.closed()
            self.exit("normal")
        handler = self._handlers.get(type(method))
        if handler is None:
            raise AmqpError(COMMAND_INVALID, f"{method.name} is not for servers")
        await handler(method)

    async def _on_message(self, message: Message) -> None:
        match message:
            case Refused():
                self.verdicts.on_refused(message)
            case Deliver():
                await self.consumers.on_deliver(message)
            case Paused(process):
                self.unsettled.paused(process)
            case ConsumerCancelled():
                await self.consumers.on_consumer_cancelled(message)
            case CancelDone():
                await self.consumers.on_cancel_done(message)
            case Reply():
                await self.replies.on_reply(message, self.unsettled.deliveries.upcoming_tag)
            case Down():
                await self._on_down(message)
            case RetryConfirms():
                self._retrying_confirms = False
                await self._flush()
            case CheckTimeouts():
                check_timeout(self._context, self.unsettled.deliveries)
                self._schedule_timeouts()
            case RetryConsumers():
                self._retrying_consumers = False
                await self.consumers.resubscribe()
            case ConnectionGone():
                self.exit("normal")

    async def _on_down(self, message: Down) -> None:
        if self._watched.get(message.pid) == message.ref:
            del self._watched[message.pid]
        self.verdicts.on_down(message.pid, message.reason)
        await self.consumers.on_down(message.pid, message.reason)

    async def _fail(self, error: AmqpError, command: Command | None) -> None:
        if command is not None and not error.class_id:
            index = command.method.index
            error.class_id, error.method_id = index >> 16, index & 0xFFFF
        with contextlib.suppress(BrokerError):
            await self._flush()
        self._port.failed(error)
        self.exit("normal")

    async def _flush(self) -> None:
        # Confirms may come late: then they are sent when it looks again.
        is_late = self._services.env.buggify("channel.confirm_late")
        done = not is_late and await self.verdicts.flush()
        if done:
            await self.transactions.complete()
        if not done and not self._retrying_confirms:
            self._retrying_confirms = True
            self.after(CONFIRM_RETRY_MS, RetryConfirms())

    def _schedule_consumers(self) -> None:
        if self.consumers.waiting and not self._retrying_consumers:
            self._retrying_consumers = True
            self.after(RETRY_MS, RetryConsumers())

    def _schedule_timeouts(self) -> None:
        timeout_ms = self._services.config.consumer_timeout_ms
        if timeout_ms:
            self.after(min(timeout_ms, TICK_MS), CheckTimeouts())

    def _watch(self, process: Pid) -> None:
        if process not in self._watched:
            self._watched[process] = self.runtime.monitor(process, self.pid)

    # -- methods -----------------------------------------------------------------------------------

    def _dispatch_table(
        self, exchanges: ExchangeMethods, queues: QueueMethods
    ) -> dict[type[Method], Handler]:
        return {
            commands.Channel.Flow: self._flow,
            commands.Exchange.Declare: exchanges.declare,
            commands.Exchange.Delete: exchanges.delete,
            commands.Exchange.Bind: exchanges.bind,
            commands.Exchange.Unbind: exchanges.unbind,
            commands.Queue.Declare: queues.declare,
            commands.Queue.Bind: queues.bind,
            commands.Queue.Unbind: queues.unbind,
            commands.Queue.Purge: queues.purge,
            commands.Queue.Delete: queues.delete,
            commands.Confirm.Select: self.publisher.select,
            commands.Basic.Qos: self.consumers.qos,
            commands.Basic.Get: self.unsettled.get,
            commands.Basic.Consume: self.consumers.consume,
            commands.Basic.Cancel: self._cancel,
            commands.Basic.CancelOk: self._ignore,  # the answer to our basic.cancel
            commands.Basic.Ack: self.unsettled.ack,
            commands.Basic.Nack: self.unsettled.nack,
            commands.Basic.Reject: self.unsettled.reject,
            commands.Basic.Recover: self._recover,
            commands.Basic.RecoverAsync: self._recover_async,
            commands.Tx.Select: self.transactions.select,
            commands.Tx.Commit: self.transactions.commit,
            commands.Tx.Rollback: self.transactions.rollback,
        }

    async def _cancel(self, method: commands.Basic.Cancel) -> None:
        done = await self.consumers.cancel(method)
        if done is not None:
            self.deliver(done)

    async def _recover(self, method: commands.Basic.Recover) -> None:
        await self.unsettled.recover(bool(method.requeue), answers=True)

    async def _recover_async(self, method: commands.Basic.RecoverAsync) -> None:
        await self.unsettled.recover(bool(method.requeue), answers=False)

    async def _flow(self, method: commands.Channel.Flow) -> None:
        if not method.active:
            raise AmqpError(NOT_IMPLEMENTED, "active=false")
        await self._port.send(commands.Channel.FlowOk(True))

    async def _ignore(self, method: Method) -> None:
        pass
