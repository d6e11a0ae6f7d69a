"""Alarms: which nodes of the cluster are short of something, as this one knows it.

After rabbit_alarm: an alarm of one node stops the publishers of all, for what is published here may
be kept there. Every node tells the others of its own alarms (management/agent.py), and forgets
those of a node that it has lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from pamqp import commands

from shalott.broker.rabbit.amqp.wire import Method
from shalott.broker.rabbit.processes.messages import Message

Resource = Literal["memory", "disk"]


class AlarmChanged(Message):
    """node -> every other one: an alarm of its own was set, or is over."""

    node: str
    resource: Resource
    is_on: bool


class Alarms:
    """Of all nodes."""

    def __init__(self) -> None:
        self._alarms: dict[tuple[str, Resource], None] = {}
        self._over = asyncio.Event()
        self._over.set()

    @property
    def in_effect(self) -> bool:
        return bool(self._alarms)

    @property
    def reason(self) -> str:
        """What clients are told."""
        resources = sorted({resource: None for _, resource in self._alarms}, reverse=True)
        return f"low on {' & '.join(resources)}"

    def of(self, node: str) -> list[Resource]:
        return [resource for owner, resource in self._alarms if owner == node]

    def note(self, node: str, resource: Resource, *, is_on: bool) -> None:
        if is_on:
            self._alarms[node, resource] = None
        else:
            self._alarms.pop((node, resource), None)
        self._tell()

    def forget(self, node: str) -> None:
        """It is gone, and with it what it was short of."""
        for resource in self.of(node):
            del self._alarms[node, resource]
        self._tell()

    def _tell(self) -> None:
        if self._alarms:
            self._over.clear()
        else:
            self._over.set()

    async def over(self) -> None:
        """Until none is in effect."""
        await self._over.wait()


MESSAGES: tuple[type[Message], ...] = (AlarmChanged,)


# -- throttle --------------------------------------------------------------------------------------

# Throttle: stops a connection that publishes while an alarm is in effect.
#
# After rabbit_reader. While there is an alarm a connection is *blocking*; the first content that it
# sends makes it *blocked*: a client that knows connection.blocked is told, and nothing more is read
# from it, acknowledgements neither, until no alarm is left. What the node sends it goes on. Clients
# that only consume never notice.


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
        """The connection ends: no task is to wait any more."""
        if self._waiting is not None:
            self._waiting.cancel()
