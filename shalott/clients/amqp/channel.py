"""One AMQP channel on a connection of its own, and what an operation on it that ends badly means.

A channel that the server closed is opened again by the next operation that asks for it (``ready``);
a connection that was lost is the worker's to replace (``Unreachable``). ``deadline`` bounds one
operation and turns what ends it into Unreachable (nothing was written) or Indefinite; ``answer``
does the same for a channel that closes: Definite if the method that was sent is named as the cause,
Indefinite if not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pamqp import commands
from pamqp.base import Frame

from shalott.clients.amqp.connection import Connection, ConnectionLost, Event, connect
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who connects, and to which virtual host."""

    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"


GUEST = Credentials()


def guest_of(plan: Plan) -> Credentials:
    """The plan's clients: in the virtual host that it names, if its system has some."""
    return Credentials(vhost=str(plan.system.parameters.get("vhost", GUEST.vhost)))


class Progress:
    """Whether an operation may have reached the server."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written = False


class AmqpChannel:
    """``lives`` counts the channels that were opened: a holder of a delivery compares."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        op_timeout_ms: int,
        confirms: bool,
        transactions: bool = False,
        credentials: Credentials = GUEST,
    ) -> None:
        self._host = host
        self._port = port
        self.timeout_s = op_timeout_ms / 1000
        self._mode: tuple[Frame, type[Frame]] | None = None  # how it is asked for, and granted
        if transactions:
            self._mode = (commands.Tx.Select(), commands.Tx.SelectOk)
        elif confirms:
            self._mode = (commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._credentials = credentials
        self._connection: Connection | None = None
        self._unsettled = False  # an operation is under way, or ended without an answer
        self.is_open = False
        self.why_lost = "not connected"  # the last channel
        self.lives = 0
        self.published = 0  # the sequence number of the last publish on this channel

    async def open(self) -> None:
        """Raises Unreachable."""
        who = self._credentials
        self._connection = await connect(
            self._host, self._port, user=who.user, password=who.password, vhost=who.vhost
        )
        try:
            await self._open(self._connection)
        except ConnectionLost as error:
            raise Unreachable(str(error)) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self.is_open = False
        if connection is None:
            return
        if self._unsettled:
            connection.abort("closed")  # it did not answer; it would not answer a goodbye
        else:
            await connection.close()

    @property
    def owes_an_answer(self) -> bool:
        """Whether an operation is under way, or ended without an answer."""
        return self._unsettled

    def hang_up(self) -> None:
        """Drop the connection without a word. It may be opened again."""
        connection, self._connection = self._connection, None
        self.is_open, self.why_lost = False, "hung up"
        if connection is not None:
            connection.abort("hung up")

    async def ready(self) -> Connection:
        """A connection with an open channel on which nothing was asked yet."""
        connection = self._connection
        if connection is None or connection.lost is not None:
            raise Unreachable("not connected" if connection is None else str(connection.lost))
        while (event := connection.poll_event()) is not None:
            if isinstance(event, commands.Channel.Close):
                self._accept_close(connection, event)
        if not self.is_open:
            try:
                await self._open(connection)
            except ConnectionLost as error:
                raise Unreachable(str(error)) from error
        return connection

    def still(self, life: int) -> Connection | None:
        """The connection, if the channel of that number is open as far as this side knows."""
        connection = self._connection
        if connection is None or not self.is_open or life != self.lives:
            return None
        while (event := connection.poll_event()) is not None:
            if isinstance(event, commands.Channel.Close):
                self._accept_close(connection, event)
        if connection.lost is not None:
            self.is_open, self.why_lost = False, connection.lost
        return connection if self.is_open else None

    async def until_lost(self) -> None:
        """Wait, while nothing is asked, until the channel or its connection ends (``why_lost``)."""
        connection = self._connection
        if connection is None:
            return
        try:
            while self.is_open:
                event = await connection.next_event()
                if isinstance(event, commands.Channel.Close):
                    self._accept_close(connection, event)
        except ConnectionLost as error:
            self.is_open, self.why_lost = False, str(error)

    async def answer(
        self, connection: Connection, wanted: tuple[type[Event], ...], method_index: int
    ) -> Event:
        """The first event of a wanted kind. ``method_index`` is the method that was sent."""
        while True:
            event = await connection.next_event()
            if isinstance(event, commands.Channel.Close):
                text = self._accept_close(connection, event)
                caused_by = (int(event.class_id or 0) << 16) | int(event.method_id or 0)
                if caused_by == method_index:
                    raise Definite(text)
                raise Indefinite(text)
            if isinstance(event, wanted):
                return event

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[Progress]:
        """Bound one operation, and turn what ends it into Unreachable or Indefinite."""
        progress = Progress()
        self._unsettled = True
        try:
            async with asyncio.timeout(self.timeout_s):
                yield progress
        except TimeoutError as error:
            text = f"timeout: no answer in {self.timeout_s:g} s"
            if progress.written:
                raise Indefinite(text) from error
            raise Unreachable(text) from error
        except ConnectionLost as error:
            if progress.written:
                raise Indefinite(str(error)) from error
            raise Unreachable(str(error)) from error
        except Definite:
            self._unsettled = False
            raise
        self._unsettled = False

    async def _open(self, connection: Connection) -> None:
        opening: list[Frame] = [commands.Channel.Open()]
        opened: type[Frame] = commands.Channel.OpenOk
        if self._mode is not None:
            asked, opened = self._mode
            opening.append(asked)
        connection.send(*opening)
        self.published = 0
        while True:
            event = await connection.next_event()
            if isinstance(event, commands.Channel.Close):
                self._accept_close(connection, event)
                raise Definite(f"no channel: {event.reply_code} {event.reply_text}")
            if isinstance(event, opened):
                self.is_open = True
                self.lives += 1
                return

    def _accept_close(self, connection: Connection, event: commands.Channel.Close) -> str:
        connection.send(commands.Channel.CloseOk())
        self.is_open = False
        self.why_lost = f"channel closed: {event.reply_code} {event.reply_text}"
        return self.why_lost
