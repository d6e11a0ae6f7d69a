"""Queues and exchanges as a client declares them: with arguments, and bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pamqp import commands
from pamqp.base import Frame

EXCHANGE_PREFIX = "exchange/"  # of a key that is no queue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclaration:
    """A durable queue. ``bindings``: (exchange, routing key)."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    bindings: tuple[tuple[str, str], ...] = ()

    def methods(self) -> tuple[Frame, ...]:
        """In this order; the last answer says that all is done."""
        declare = commands.Queue.Declare(
            queue=self.name, durable=True, arguments=dict(self.arguments)
        )
        bind = (
            commands.Queue.Bind(queue=self.name, exchange=exchange, routing_key=routing_key)
            for exchange, routing_key in self.bindings
        )
        return (declare, *bind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDeclaration:
    """A durable exchange. ``alternate``: the exchange that gets what has no route here."""

    name: str
    kind: Literal["direct", "fanout"]
    alternate: str = ""

    def methods(self) -> tuple[Frame, ...]:
        arguments = {"alternate-exchange": self.alternate} if self.alternate else {}
        return (
            commands.Exchange.Declare(
                exchange=self.name,
                exchange_type=self.kind,
                durable=True,
                arguments=dict(arguments),
            ),
        )


Declaration = QueueDeclaration | ExchangeDeclaration
Declarations = Mapping[str, Declaration]  # by key: a queue, or exchange/NAME
