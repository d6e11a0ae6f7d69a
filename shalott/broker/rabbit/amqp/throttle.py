"""Throttle: stops a connection that publishes while an alarm is in effect.

After rabbit_reader. While there is an alarm a connection is *blocking*; the first content that it
sends makes it *blocked*: a client that knows connection.blocked is told, and nothing more is read
from it, acknowledgements neither, until no alarm is left. What the node sends it goes on. Clients
that only consume never notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from pamqp import commands

from shalott.broker.rabbit.amqp.alarms import Alarms
from shalott.broker.rabbit.amqp.wire import Method


class Throttle:
    """Of one connection. ``send``: to its client, if that understands these."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._waiting: asyncio.Task[None] | None = None

    @property
    def state(self) -> Literal["running", "blocking", "blocked"]:
        """As it is shown."""
        if self._waiting is not None:
            return "blocked"
        return "blocking" if self._alarms.in_effect else "running"

    @property
    def stops_content(self) -> bool:
        return self._alarms.in_effect

    async def wait(self, send: Callable[[Method], None]) -> None:
        """The client has sent content: until it may go on, or ``release``."""
        send(commands.Connection.Blocked(self._alarms.reason))
        self._waiting = asyncio.ensure_future(self._alarms.over())
        try:
            await asyncio.wait([self._waiting])
        finally:
            waiting, self._waiting = self._waiting, None
            waiting.cancel()
        if not waiting.cancelled():
            send(commands.Connection.Unblocked())

    def release(self) -> None:
        """The connection ends: nobody is to wait any more."""
        if self._waiting is not None:
            self._waiting.cancel()
