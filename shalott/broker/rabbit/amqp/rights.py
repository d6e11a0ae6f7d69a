"""Which permissions a method needs (rabbit/rabbit_channel.erl, check_*_permitted)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pamqp import commands

from shalott.broker.rabbit.amqp.direct_reply import is_reply_queue
from shalott.broker.rabbit.amqp.errors import ACCESS_REFUSED, AmqpError
from shalott.broker.rabbit.amqp.services import Context, Session
from shalott.broker.rabbit.amqp.wire import Method
from shalott.broker.rabbit.metadata.permissions import Permissions, Right, may_topic
from shalott.broker.rabbit.metadata.records import ExchangeRow

GENERATED = "amq.gen-"  # how the names begin that the node chooses

Need = tuple[Right, str, str]  # "exchange" or "queue", and its name


def needs(method: Method, queue: Callable[[str], str]) -> list[Need]:
    """What the user must be allowed. ``queue`` says what an empty name of a queue means."""
    match method:
        case commands.Basic.Publish():
            return [("write", "exchange", method.exchange)]
        case commands.Basic.Consume(queue=name) | commands.Queue.Declare(queue=name) if (
            is_reply_queue(name)
        ):
            return []
        case commands.Basic.Get() | commands.Basic.Consume() | commands.Queue.Purge():
            return [("read", "queue", queue(method.queue))]
        case commands.Queue.Declare():
            return [] if method.passive else _to_declare_queue(method)
        case commands.Queue.Delete():
            return [("configure", "queue", queue(method.queue))]
        case commands.Queue.Bind() | commands.Queue.Unbind():
            name = queue(method.queue)
            return [("write", "queue", name), ("read", "exchange", method.exchange)]
        case commands.Exchange.Declare():
            return [] if method.passive else _to_declare_exchange(method)
        case commands.Exchange.Delete():
            return [("configure", "exchange", method.exchange)]
        case commands.Exchange.Bind() | commands.Exchange.Unbind():
            return [("write", "exchange", method.destination), ("read", "exchange", method.source)]
    return []


def _to_declare_queue(method: commands.Queue.Declare) -> list[Need]:
    name = method.queue or GENERATED
    found: list[Need] = [("configure", "queue", name)]
    return found + _beside(method.arguments, "x-dead-letter-exchange", ("read", "queue", name))


def _to_declare_exchange(method: commands.Exchange.Declare) -> list[Need]:
    name = method.exchange
    found: list[Need] = [("configure", "exchange", name)]
    return found + _beside(method.arguments, "alternate-exchange", ("read", "exchange", name))


def _beside(arguments: Mapping[str, object] | None, key: str, need: Need) -> list[Need]:
    """For what lets messages go on elsewhere."""
    other = (arguments or {}).get(key)
    return [need, ("write", "exchange", other)] if isinstance(other, str) else []


def check_topic(
    context: Context, exchange: ExchangeRow | None, right: Literal["write", "read"], key: str
) -> None:
    """Raises AmqpError(403) if it is a topic exchange whose keys the user has only some of."""
    if exchange is None or exchange.type != "topic":
        return
    session, metadata = context.session, context.services.metadata
    if not may_topic(metadata, session.vhost, session.user, exchange.name, right, key):
        where = f"topic '{key}' in exchange '{exchange.name}' in vhost '{session.vhost}'"
        text = f"access to {where} refused for user '{session.user}'"
        raise AmqpError(ACCESS_REFUSED, text)


def check(
    permissions: Permissions, session: Session, method: Method, queue: Callable[[str], str]
) -> None:
    """Raises AmqpError(403) for the first that is lacking."""
    for right, kind, name in needs(method, queue):
        if not permissions.allow(right, name):
            where = f"{kind} '{name}' in vhost '{session.vhost}'"
            text = f"access to {where} refused for user '{session.user}'"
            raise AmqpError(ACCESS_REFUSED, text)
