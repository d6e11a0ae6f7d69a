"""Transactions: how a queue process writes the metadata, and how it stops nevertheless.

A transaction is awaited inside a handler, so the mailbox waits with it. A node that is cut off from
the leader can still stop: when the grace is over, a process that waits ends where it stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import MetadataUnavailable
from shalott.broker.rabbit.metadata.api import Metadata, Transaction
from shalott.broker.rabbit.mirrored.messages import StopNow
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.processes.runtime import ExitProcess

log = logging.getLogger("shalott.broker.mirrored")

T = TypeVar("T")
RETRY_MS = 25
# How long a transaction may still take when the node stops.
STOP_GRACE_MS = 1000


class Timers(Protocol):
    """Who sends itself StopNow."""

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle: ...


class Transactions:
    """Of one process."""

    def __init__(self, metadata: Metadata, key: str, timers: Timers) -> None:
        self._metadata = metadata
        self._key = key
        self._timers = timers
        self._must_stop = asyncio.Event()

    async def transact(self, body: Callable[[Transaction], T], *, confirmed: bool = False) -> T:
        """Try until there is a leader to write through. Then the row is as new as what was written.

        Raises ExitProcess when the grace is over.
        """
        return await self._unless_stopped(self._transact(body, confirmed))

    async def transact_once(self, body: Callable[[Transaction], T]) -> T:
        """The same, but never written twice. Raises MetadataUnavailable: it may be done or not."""
        return await self._unless_stopped(self._metadata.transact(body, once=True))

    def start_grace(self) -> None:
        """The node stops: what is under way has this long."""
        self._timers.after(STOP_GRACE_MS, StopNow())

    def renew_grace(self) -> None:
        """The stop began long ago, and a transaction is still to be made."""
        self._must_stop.clear()
        self.start_grace()

    def end_grace(self) -> None:
        self._must_stop.set()

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T:
        attempt = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._must_stop.wait())
        try:
            await asyncio.wait([attempt, stop], return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                return attempt.result()
        finally:
            attempt.cancel()
            stop.cancel()
        raise ExitProcess("shutdown")

    async def _transact(self, body: Callable[[Transaction], T], confirmed: bool) -> T:
        while True:
            try:
                return await self._metadata.transact(body, confirmed=confirmed)
            except MetadataUnavailable as error:
                log.warning("queue '%s': %s", self._key, error)
                await pause_ms(RETRY_MS)
