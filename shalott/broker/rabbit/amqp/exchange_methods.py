"""ExchangeMethods: exchange.declare, delete, bind and unbind on one channel."""

from __future__ import annotations

from typing import cast

from pamqp import commands

from shalott.broker.rabbit.amqp.arguments import (
    check_binding_arguments,
    check_exchange_arguments,
    check_same,
    check_same_arguments,
)
from shalott.broker.rabbit.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpError,
)
from shalott.broker.rabbit.amqp.exchanges import (
    EXCHANGE_TYPES,
    add_binding,
    declare_exchange,
    drop_exchange,
    is_bound,
    remove_binding,
)
from shalott.broker.rabbit.amqp.rights import check_topic
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import BindingRow, ExchangeRow, ExchangeType

RESERVED_PREFIX = "amq."


class ExchangeMethods:
    """Each method checks names and rights, then changes the tables in one transaction."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._vhost = context.session.vhost

    async def declare(self, method: commands.Exchange.Declare) -> None:
        if method.passive:
            self.find(method.exchange)
        else:
            await self._declare(method)
        if not method.nowait:
            await self._context.port.send(commands.Exchange.DeclareOk())

    async def delete(self, method: commands.Exchange.Delete) -> None:
        name = method.exchange
        refuse_default(name)
        if name.startswith(RESERVED_PREFIX):
            text = f"deletion of system exchange '{name}' in vhost '{self._vhost}' not allowed"
            raise AmqpError(ACCESS_REFUSED, text)
        vhost = self._vhost

        def body(tx: Transaction) -> bool:
            if method.if_unused and is_bound(tx, vhost, name):
                return False
            drop_exchange(tx, vhost, name)
            return True

        exists = self._context.router.exchange(vhost, name) is not None
        if exists and not await self._context.services.metadata.transact(body):
            raise AmqpError(PRECONDITION_FAILED, f"exchange '{name}' in vhost '{vhost}' in use")
        if not method.nowait:
            await self._context.port.send(commands.Exchange.DeleteOk())

    async def bind(self, method: commands.Exchange.Bind) -> None:
        row = self._binding(method)
        await bind(self._context, row)
        if not method.nowait:
            await self._context.port.send(commands.Exchange.BindOk())

    async def unbind(self, method: commands.Exchange.Unbind) -> None:
        row = self._binding(method)
        await unbind(self._context, row)
        if not method.nowait:
            await self._context.port.send(commands.Exchange.UnbindOk())

    def find(self, name: str) -> ExchangeRow:
        return find_exchange(self._context, name)

    async def _declare(self, method: commands.Exchange.Declare) -> None:
        name = method.exchange
        refuse_default(name)
        arguments: dict[str, object] = {**(method.arguments or {})}
        if method.exchange_type not in EXCHANGE_TYPES:
            raise AmqpError(COMMAND_INVALID, f"unknown exchange type '{method.exchange_type}'")
        check_exchange_arguments(f"exchange '{name}' in vhost '{self._vhost}'", arguments)
        row = ExchangeRow(
            vhost=self._vhost,
            name=name,
            type=cast(ExchangeType, method.exchange_type),
            durable=bool(method.durable),
            auto_delete=bool(method.auto_delete),
            internal=bool(method.internal),
            arguments=arguments,
        )
        current = self._context.router.exchange(self._vhost, name)
        if current is None:
            if name.startswith(RESERVED_PREFIX):
                text = f"exchange name '{name}' contains reserved prefix '{RESERVED_PREFIX}*'"
                raise AmqpError(ACCESS_REFUSED, text)
            transact = self._context.services.metadata.transact
            current = await transact(lambda tx: declare_exchange(tx, row))
        _check_same_exchange(row, current)

    def _binding(self, method: commands.Exchange.Bind | commands.Exchange.Unbind) -> BindingRow:
        arguments: dict[str, object] = {**(method.arguments or {})}
        check_binding_arguments(arguments)
        refuse_default(method.source)
        refuse_default(method.destination)
        source = self._context.router.exchange(self._vhost, method.source)
        destination = self._context.router.exchange(self._vhost, method.destination)
        return BindingRow(
            vhost=self._vhost,
            source=method.source,
            destination=method.destination,
            to_exchange=True,
            routing_key=method.routing_key,
            arguments=arguments,
            durable=source is not None
            and destination is not None
            and source.durable
            and destination.durable,
        )


def find_exchange(context: Context, name: str) -> ExchangeRow:
    """Raises AmqpError(404)."""
    row = context.router.exchange(context.session.vhost, name)
    if row is None:
        text = f"no exchange '{name}' in vhost '{context.session.vhost}'"
        raise AmqpError(NOT_FOUND, text)
    return row


def refuse_default(name: str) -> None:
    if name == "":
        raise AmqpError(ACCESS_REFUSED, "operation not permitted on the default exchange")


async def bind(context: Context, row: BindingRow) -> None:
    """Raises AmqpError(404) if one end doesn't exist."""
    source = context.router.exchange(row.vhost, row.source)
    check_topic(context, source, "read", row.routing_key)
    missing = await context.services.metadata.transact(lambda tx: add_binding(tx, row))
    if missing is not None:
        name = row.source if missing == "exchange" else row.destination
        what = missing.removeprefix("destination ")
        raise AmqpError(NOT_FOUND, f"no {what} '{name}' in vhost '{row.vhost}'")


async def unbind(context: Context, row: BindingRow) -> None:
    """No error if there is nothing to unbind."""
    source = context.router.exchange(row.vhost, row.source)
    check_topic(context, source, "read", row.routing_key)
    await context.services.metadata.transact(lambda tx: remove_binding(tx, row))


def _check_same_exchange(received: ExchangeRow, current: ExchangeRow) -> None:
    where = f"exchange '{received.name}' in vhost '{received.vhost}'"
    check_same("type", where, received.type, current.type)
    check_same("durable", where, received.durable, current.durable)
    check_same("auto_delete", where, received.auto_delete, current.auto_delete)
    check_same("internal", where, received.internal, current.internal)
    names = ("alternate-exchange",)
    check_same_arguments(where, received.arguments, current.arguments, names)
