"""What a channel keeps of its consumers, deliveries and questions; and what of it goes into frames
and rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from shalott.core.subscription import Subscription, Verdict

CORRUPTED = "corrupted"


class ChannelEnded(Exception):
    """The channel ended before it answered. ``refused``: by the method that was sent last."""

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


@dataclass(slots=True, eq=False)
class Consumer:
    """One consumer as its client sees it. ``active_ns``: when consume-ok came."""

    name: str
    queue: str
    wanted: Subscription
    extra: dict[str, Any]
    row: int
    active_ns: int | None = None
    leaving_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A delivery of which nothing was said yet. ``kept``: nothing will be."""

    queue: str
    value: int | None
    kept: bool


@dataclass(slots=True, eq=False)
class Question:
    """Passive declares that were sent together; the rows that their answers prove."""

    rows: list[int]
    missing: int  # answers
    ready: int = 0  # messages, by the last answer
    answered: asyncio.Future[None] | None = None


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who waits for an answer of that kind. ``index``: of the method that was sent."""

    kind: type[Frame]
    index: int
    future: asyncio.Future[None]
    tag: str | None = None


def settlement_of(tag: int, verdict: Verdict) -> Frame:
    if verdict.said == "ack":
        return commands.Basic.Ack(delivery_tag=tag, multiple=verdict.multiple)
    if verdict.said == "nack":
        return commands.Basic.Nack(
            delivery_tag=tag, multiple=verdict.multiple, requeue=verdict.requeue
        )
    return commands.Basic.Reject(delivery_tag=tag, requeue=verdict.requeue)


def told_in(properties: commands.Basic.Properties) -> dict[str, Any]:
    """What a row says of a message besides its body: its deaths and its priority."""
    told: dict[str, Any] = {}
    deaths = (properties.headers or {}).get("x-death")
    if isinstance(deaths, list):
        told["deaths"] = [
            {name: death.get(name) for name in ("queue", "reason", "count")}
            for death in deaths
            if isinstance(death, dict)
        ]
    if properties.priority is not None:
        told["priority"] = properties.priority
    return told
