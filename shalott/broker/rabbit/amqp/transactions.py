"""Transactions: a channel in tx mode.

As RabbitMQ has them (rabbit_channel.erl): what a client publishes and settles is kept until it
commits, or forgotten when it rolls back; then the deliveries that it settled are unsettled again.
A commit sends on all publishes and then the settlements; its answer comes by the path of publisher
confirms, when every publish is where its confirm would be true. If one is refused there, part of
the transaction is done and part is not, which 406 "partial tx completion" says. A channel that ends
forgets what was not committed.
"""

from __future__ import annotations

from pamqp import commands

from shalott.broker.rabbit.amqp.deliveries import Unsettled
from shalott.broker.rabbit.amqp.errors import CHANNEL_ERROR, PRECONDITION_FAILED, AmqpError
from shalott.broker.rabbit.amqp.publishing import Publisher
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.amqp.verdicts import Verdicts

_COMMIT = commands.Tx.Commit.index


class Transactions:
    """tx.select, commit and rollback, over the two halves of a channel."""

    def __init__(
        self, context: Context, publisher: Publisher, verdicts: Verdicts, unsettled: Unsettled
    ) -> None:
        self._context = context
        self._verdicts = verdicts
        self._publisher = publisher
        self._unsettled = unsettled
        self.selected = False
        self.is_committing = False

    async def select(self, method: commands.Tx.Select) -> None:
        if self._verdicts.confirming:
            raise AmqpError(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        if not self.selected:
            self.selected = True
            self._publisher.begin()
            self._unsettled.begin()
        await self._context.port.send(commands.Tx.SelectOk())

    async def commit(self, method: commands.Tx.Commit) -> None:
        self._check_selected()
        self.is_committing = True
        await self._publisher.commit()
        self._unsettled.commit()
        if not self._verdicts.has_some:
            await self.complete()

    async def rollback(self, method: commands.Tx.Rollback) -> None:
        self._check_selected()
        self._publisher.roll_back()
        self._unsettled.roll_back()
        await self._context.port.send(commands.Tx.RollbackOk())

    def check_quiet(self) -> None:
        """Before each method but channel.close. Raises 504 while a commit has no answer."""
        if self.is_committing:
            raise AmqpError(CHANNEL_ERROR, "unexpected command while processing 'tx.commit'")

    async def complete(self) -> None:
        """Answer the commit, if there is one whose publishes are all decided."""
        if not self.is_committing or len(self._verdicts):
            return
        self.is_committing = False
        if self._verdicts.refused:
            raise AmqpError(
                PRECONDITION_FAILED,
                "partial tx completion",
                class_id=_COMMIT >> 16,
                method_id=_COMMIT & 0xFFFF,
            )
        self._verdicts.committed()
        await self._context.port.send(commands.Tx.CommitOk())

    def _check_selected(self) -> None:
        if not self.selected:
            raise AmqpError(PRECONDITION_FAILED, "channel is not transactional")
