"""A queue client whose channel is in tx mode: each operation is a transaction of its own.

Enqueue: publish and tx.commit.

    ok      commit-ok
    fail    a return before it (no route); the channel closed because of the publish; rolled back:
            the client thought better of it, or lost its channel before it had asked for the commit
    info    asked for the commit and got no answer, or 406 "partial tx completion"

Dequeue: basic.get, basic.ack and tx.commit. Who has the message has it, also if nothing comes of
the commit: without an answer the channel is left, and a client may be given the message again.

Every fourth transaction is rolled back. A publish that was rolled back must never be seen (it is a
``fail``, so it would be a phantom). An acknowledgement that was is the client's to make again: it
gives the message back instead (error "given back: rolled back"), so that it must come again.
"""

from __future__ import annotations

import asyncio

import msgspec
from pamqp import commands
from pamqp.base import Frame

from shalott.checkers.queues.redelivery import GIVEN_BACK, GIVEN_BACK_VALUE
from shalott.clients.amqp.connection import Connection, ConnectionLost, Content
from shalott.clients.amqp.queue_client import PUBLISH, AmqpQueueClient
from shalott.core.errors import Definite, Indefinite
from shalott.core.op import Completion, Invocation

UNDONE_EVERY = 4
SETTLE_SHARE = 0.1  # of an operation's time, which comes on top (core/worker.py TIMEOUT_GRACE)
_COMMIT = commands.Tx.Commit.index


class TransactionalQueueClient(AmqpQueueClient):
    """Made with ``transactions``."""

    _begun = 0
    _taken: tuple[int, int] | None = None  # the channel's life and the tag of what it was given

    @property
    def _undoes(self) -> bool:
        return self._begun % UNDONE_EVERY == 0

    async def invoke(self, invocation: Invocation) -> Completion:
        self._begun += 1
        self._taken = None
        try:
            completion = await super().invoke(invocation)
        except Indefinite as error:
            if invocation.f != "enqueue" or not self._undoes:
                raise
            self._channel.hang_up()
            raise Definite(f"never committed: {error}") from error
        if self._taken is None:
            return completion
        await self._settle(*self._taken)
        if not self._undoes:
            return completion
        extra = {GIVEN_BACK_VALUE: completion.value}
        why = f"{GIVEN_BACK}: rolled back"
        return msgspec.structs.replace(completion, type="fail", value=None, error=why, extra=extra)

    async def _enqueue(self, connection: Connection, queue: str, value: int) -> Completion:
        self._publish(connection, queue, value)
        if self._undoes:
            connection.send(commands.Tx.Rollback())
            await self._channel.answer(connection, (commands.Tx.RollbackOk,), PUBLISH)
            raise Definite("rolled back")
        connection.send(commands.Tx.Commit())
        returned: str | None = None
        while True:
            event = await self._channel.answer(connection, (Content, commands.Tx.CommitOk), PUBLISH)
            if isinstance(event, commands.Tx.CommitOk):
                if returned is not None:
                    raise Definite(returned)
                return Completion(type="ok")
            if isinstance(event, Content) and isinstance(event.method, commands.Basic.Return):
                returned = f"returned: {event.method.reply_code} {event.method.reply_text}"

    def _acknowledge(self, connection: Connection, tag: int) -> None:
        self._taken = (self._channel.lives, tag)

    async def _settle(self, life: int, tag: int) -> None:
        connection = self._channel.still(life)
        if connection is None:
            return
        settlement: Frame = commands.Basic.Ack(delivery_tag=tag)
        try:
            async with asyncio.timeout(self._channel.timeout_s * SETTLE_SHARE):
                if self._undoes:
                    connection.send(settlement, commands.Tx.Rollback())
                    await self._channel.answer(connection, (commands.Tx.RollbackOk,), _COMMIT)
                    settlement = commands.Basic.Nack(delivery_tag=tag, requeue=True)
                connection.send(settlement, commands.Tx.Commit())
                await self._channel.answer(connection, (commands.Tx.CommitOk,), _COMMIT)
        except (TimeoutError, ConnectionLost, Definite, Indefinite):
            self._channel.hang_up()
