"""QueueMethods: queue.declare, bind, unbind, purge and delete on one channel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pamqp import commands

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.amqp.arguments import (
    check_binding_arguments,
    check_queue_arguments,
    check_same,
    check_same_queue_arguments,
)
from shalott.broker.rabbit.amqp.direct_reply import DirectReplies, is_reply_queue
from shalott.broker.rabbit.amqp.errors import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
)
from shalott.broker.rabbit.amqp.exchange_methods import (
    RESERVED_PREFIX,
    bind,
    find_exchange,
    refuse_default,
    unbind,
)
from shalott.broker.rabbit.amqp.queue_protocol import Count, Delete, Purge, Stat, Stats
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.amqp.wire import encode_declare_ok
from shalott.broker.rabbit.metadata.records import BindingRow, QueueRow, queue_key
from shalott.broker.rabbit.processes.messages import Failed, Message


class QueueMethods:
    """Checks names, rights and arguments; the queue's own work is done by its master."""

    def __init__(self, context: Context, access: QueueAccess, replies: DirectReplies) -> None:
        self._context = context
        self._access = access
        self._replies = replies
        self._vhost = context.session.vhost

    async def declare(self, method: commands.Queue.Declare) -> None:
        if is_reply_queue(method.queue):
            await self._replies.declare(method)
            self._access.last_declared = method.queue
            return
        if method.passive:
            name = self._access.name(method.queue)
        else:
            name = (await self._declare(method)).name
        row, answer = await self._access.ask(name, Stat())
        if not isinstance(answer, Stats):
            raise unexpected_answer(row, answer)
        self._access.last_declared = name
        if not method.nowait:
            payload = encode_declare_ok(name, answer.ready, answer.consumers)
            await self._context.port.send_payload(payload)

    async def bind(self, method: commands.Queue.Bind) -> None:
        queue = self._access.find(self._access.name(method.queue))
        exchange = find_exchange(self._context, method.exchange)
        row = self._binding(method, queue.name, durable=queue.durable and exchange.durable)
        await bind(self._context, row)
        if not method.nowait:
            await self._context.port.send(commands.Queue.BindOk())

    async def unbind(self, method: commands.Queue.Unbind) -> None:
        name = self._access.name(method.queue)
        row = self._context.services.queues.lookup(self._vhost, name)
        if row is not None:
            self._access.check_owner(row)
        await unbind(self._context, self._binding(method, name, durable=True))
        await self._context.port.send(commands.Queue.UnbindOk())

    async def purge(self, method: commands.Queue.Purge) -> None:
        row, answer = await self._access.ask(self._access.name(method.queue), Purge())
        if not isinstance(answer, Count):
            raise unexpected_answer(row, answer)
        if not method.nowait:
            await self._context.port.send(commands.Queue.PurgeOk(answer.count))

    async def delete(self, method: commands.Queue.Delete) -> None:
        name = self._access.name(method.queue)
        # Deleting what doesn't exist is no error (RabbitMQ since 3.0); what is merely down does.
        if self._context.services.queues.lookup(self._vhost, name) is not None:
            count = await self._delete(name, method)
        elif (down := self._access.down(name)) is not None:
            raise down
        else:
            count = 0
        if not method.nowait:
            await self._context.port.send(commands.Queue.DeleteOk(count))

    # -- helpers -----------------------------------------------------------------------------------

    async def _declare(self, method: commands.Queue.Declare) -> QueueRow:
        name = method.queue or self._new_name()
        arguments: dict[str, object] = {**(method.arguments or {})}
        check_queue_arguments(f"queue '{name}' in vhost '{self._vhost}'", arguments)
        owner = self._context.session.connection if method.exclusive else None
        row = self._context.services.queues.lookup(self._vhost, name)
        if row is None:
            if (down := self._access.down(name)) is not None:
                raise down
            if method.queue.startswith(RESERVED_PREFIX):
                text = f"queue name '{name}' contains reserved prefix '{RESERVED_PREFIX}*'"
                raise AmqpError(ACCESS_REFUSED, text)
            row = await self._context.services.queues.declare(
                vhost=self._vhost,
                name=name,
                durable=bool(method.durable),
                auto_delete=bool(method.auto_delete),
                exclusive_owner=owner,
                arguments=arguments,
            )
        self._access.check_owner(row)
        _check_same_queue(row, method, arguments, exclusive=owner is not None)
        return row

    async def _delete(self, name: str, method: commands.Queue.Delete) -> int:
        """If there are conditions the master must judge them; it then deletes the queue itself."""
        if not (method.if_unused or method.if_empty):
            row = await self._access.available(name)
            return await self._context.services.queues.remove(row)
        request = Delete(if_unused=bool(method.if_unused), if_empty=bool(method.if_empty))
        row, answer = await self._access.ask(name, request)
        if isinstance(answer, Failed) and answer.kind in ("in_use", "not_empty"):
            state = "in use" if answer.kind == "in_use" else "not empty"
            text = f"queue '{name}' in vhost '{self._vhost}' {state}"
            raise AmqpError(PRECONDITION_FAILED, text)
        if not isinstance(answer, Count):
            raise unexpected_answer(row, answer)
        return answer.count

    def _binding(
        self, method: commands.Queue.Bind | commands.Queue.Unbind, queue: str, *, durable: bool
    ) -> BindingRow:
        refuse_default(method.exchange)
        arguments: dict[str, object] = {**(method.arguments or {})}
        check_binding_arguments(arguments)
        routing_key = method.routing_key
        if not method.queue and not routing_key:
            routing_key = queue  # the specification's shorthand for the last declared queue
        return BindingRow(
            vhost=self._vhost,
            source=method.exchange,
            destination=queue,
            routing_key=routing_key,
            arguments=arguments,
            durable=durable,
        )

    def _new_name(self) -> str:
        return f"amq.gen-{self._context.services.env.rng.getrandbits(128):032x}"


def _check_same_queue(
    row: QueueRow,
    method: commands.Queue.Declare,
    arguments: Mapping[str, object],
    *,
    exclusive: bool,
) -> None:
    where = f"queue '{row.name}' in vhost '{row.vhost}'"
    if exclusive != (row.exclusive_owner is not None):
        raise _locked(row)
    check_same("durable", where, bool(method.durable), row.durable)
    check_same("auto_delete", where, bool(method.auto_delete), row.auto_delete)
    check_same_queue_arguments(where, arguments, row.arguments)


# -- queue access ----------------------------------------------------------------------------------

# QueueAccess: how a channel finds a queue and talks to its master, and the errors when it can't.
#
# A mirrored queue whose master just died has no master for a moment; a request that comes then
# waits for the promotion, but not for long. A queue that has no mirror is simply down, and 404 says
# so at once.

PROMOTION_WAIT_MS = 2000  # how long a request waits for a mirror to be promoted
POLL_MS = 30


class QueueAccess:
    """Lookups in the channel's vhost, with the rights of the channel's connection."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.last_declared = ""  # what an empty queue name means

    def name(self, given: str) -> str:
        if given:
            return given
        if not self.last_declared:
            raise AmqpError(NOT_FOUND, "no previously declared queue")
        return self.last_declared

    def find(self, name: str) -> QueueRow:
        """The row, wherever its master may be. Raises 404, or 405 for another's queue."""
        row = self._context.services.queues.lookup(self._context.session.vhost, name)
        if row is None:
            raise self.absent(name)
        self.check_owner(row)
        return row

    def check_owner(self, row: QueueRow) -> None:
        if row.exclusive_owner not in (None, self._context.session.connection):
            raise _locked(row)

    def down(self, name: str) -> AmqpError | None:
        """The 404 for a durable queue that exists, but none of whose processes does."""
        key = queue_key(self._context.session.vhost, name)
        row = self._context.services.metadata.read("durable_queue", key)
        return _home_node_down(row) if isinstance(row, QueueRow) else None

    def absent(self, name: str) -> AmqpError:
        vhost = self._context.session.vhost
        return self.down(name) or AmqpError(NOT_FOUND, f"no queue '{name}' in vhost '{vhost}'")

    async def available(self, name: str) -> QueueRow:
        """The row of a queue whose master can be reached."""
        deadline = asyncio.get_running_loop().time() + PROMOTION_WAIT_MS / 1000
        while True:
            row = self.find(name)
            if row.pid is not None and self._context.services.queues.is_available(row):
                return row
            if not row.slave_pids or asyncio.get_running_loop().time() >= deadline:
                raise _absent(row)
            await pause_ms(POLL_MS)

    async def ask(self, name: str, request: Message) -> tuple[QueueRow, Message]:
        """Call the queue's master; once more if it dies meanwhile and another takes its place."""
        deadline = asyncio.get_running_loop().time() + PROMOTION_WAIT_MS / 1000
        while True:
            row = await self.available(name)
            assert row.pid is not None
            try:
                # No timeout: a master that synchronises its mirrors answers late, and one that is
                # gone ends the call.
                answer = await self._context.services.runtime.call(
                    row.pid, request, timeout_ms=None, caller=self._context.pid
                )
            except ProcessError as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise _absent(row) from error
                await pause_ms(POLL_MS)
                continue
            return row, answer


def _locked(row: QueueRow) -> AmqpError:
    return AmqpError(
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked queue '{row.name}' in vhost '{row.vhost}'. It"
        " could be originally declared on another connection or the exclusive property value does"
        " not match that of the original declaration.",
    )


def _absent(row: QueueRow) -> AmqpError:
    """Why a queue that exists can't be reached, in the words of rabbit_misc:absent."""
    queue = f"queue '{row.name}' in vhost '{row.vhost}'"
    if row.state == "crashed":
        return AmqpError(NOT_FOUND, f"{queue} has crashed and failed to restart")
    if row.state == "stopped":
        return AmqpError(NOT_FOUND, f"{queue} process is stopped by supervisor")
    return _home_node_down(row)


def _home_node_down(row: QueueRow) -> AmqpError:
    node = "unknown" if row.pid is None else row.pid.node
    kind = "durable queue" if row.durable else "queue"
    return AmqpError(
        NOT_FOUND,
        f"home node '{node}' of {kind} '{row.name}' in vhost '{row.vhost}' is down or inaccessible",
    )


def unexpected_answer(row: QueueRow, answer: Message) -> AmqpError:
    """A queue process refused for a reason that the protocol has no code for."""
    text = f"{answer.kind} {answer.text}" if isinstance(answer, Failed) else type(answer).__name__
    return AmqpError(
        INTERNAL_ERROR, f"queue '{row.name}' in vhost '{row.vhost}' answered: {text.strip()}"
    )
