"""A worker: one client at a time, one operation at a time, and what becomes of each in the history.

This is the one place where an outcome is decided. A Completion is taken as it is; ``Definite`` is a
fail; everything else (``Indefinite``, a timeout, an unforeseen exception) is an info: it
retires the process, because a client that may still have an operation under way must not start
another (jepsen.generator.interpreter), and the successor gets a new client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.core.client import Client, Holding, Lingering, Recording, Watchful, completion_of
from shalott.core.errors import ClientError, Definite, Indefinite, ShalottError, Unreachable
from shalott.core.history import Recorder
from shalott.core.op import Completion, Invocation
from shalott.core.rng import Stream

log = logging.getLogger("shalott.worker")

FIRST_BACKOFF_S = 0.1
LAST_BACKOFF_S = 1.0
CLOSE_TIMEOUT_S = 1.0
TIMEOUT_GRACE = 0.2  # a client knows better how its operation timed out: it has this much longer

ClientFactory = Callable[[str], Client]  # node -> a client of it, not yet open


class Worker:
    """Serves process ``thread``, then ``thread + stride`` when that is retired, and so on."""

    def __init__(
        self,
        thread: int,
        node: str,
        stride: int,
        make_client: ClientFactory,
        record: Recorder,
        *,
        op_timeout_ms: int,
        seed: int,
    ) -> None:
        self.process = thread
        self.node = node
        self._stride = stride
        self._make_client = make_client
        self._record = record
        self._timeout_s = op_timeout_ms / 1000 * (1 + TIMEOUT_GRACE)
        self._client: Client | None = None
        self._holding: Holding | None = None  # the client, if it says what it holds
        self._lingering: list[Client] = []
        self._failed_opens = 0
        self._rng = Stream(seed, "backoff", thread)

    async def perform(self, invocation: Invocation, due_ns: int | None = None) -> Completion:
        """Do one operation and record it; returns how it ended.

        ``due_ns``: when the schedule wanted it (``Scheduled``).
        """
        index = self._record.invoke(self.process, self.node, invocation, due_ns)
        client, why_not = self._client, None
        if client is None:
            client, why_not = await self._open()
        if client is None:
            completion = Completion(type="fail", error=why_not)
        else:
            completion = await self._invoke(client, invocation)
        self._record.complete(index, completion)
        if completion.type == "info":
            self.process += self._stride
            if isinstance(client, Lingering) and client.lingers:
                self._lingering.append(client)
                self._client = self._holding = None
            await self.close()
        return completion

    async def until_lost(self, timeout_s: float) -> None:
        """Return when the client notices that it has lost what it holds, or after ``timeout_s``."""
        client = self._client
        if not isinstance(client, Watchful):
            await asyncio.sleep(max(0.0, timeout_s))
            return
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await client.until_lost()
        except TimeoutError:
            pass

    @property
    def holds(self) -> tuple[str, ...]:
        """What its client holds, if that is one that says so."""
        return () if self._holding is None else self._holding.holds

    @property
    def backoff_s(self) -> float:
        """How long to wait before the next operation: 0 unless the node could not be reached."""
        if self._failed_opens == 0:
            return 0.0
        longest = min(FIRST_BACKOFF_S * 2.0 ** (self._failed_opens - 1), LAST_BACKOFF_S)
        return longest * self._rng.between(0.5, 1.0)

    async def close(self) -> None:
        """Let go of the client; a client that can't close is not waited for."""
        client, self._client, self._holding = self._client, None, None
        if client is not None:
            await self._part_with(client)

    async def let_go(self) -> None:
        """The same of clients that stayed when they had no answer."""
        lingering, self._lingering = self._lingering, []
        await asyncio.gather(*map(self._part_with, lingering))

    async def _part_with(self, client: Client) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await client.close()
        except Exception as error:  # noqa: BLE001 - what it was to do is done
            _log_unforeseen(error, "closing a client of", self.node)

    async def _open(self) -> tuple[Client | None, str | None]:
        """A client that is open, or why there is none. Nothing was asked of the system yet."""
        client = self._make_client(self.node)
        self._client = client
        self._holding = client if isinstance(client, Holding) else None
        if isinstance(client, Recording):
            client.record_in(self._record, self.process, self.node)
        try:
            async with asyncio.timeout(self._timeout_s):
                await client.open()
        except Exception as error:  # noqa: BLE001 - in any case the operation did not happen
            _log_unforeseen(error, "opening a client of", self.node)
            self._failed_opens += 1
            await self.close()
            return None, f"no connection: {describe(error)}"
        self._failed_opens = 0
        return client, None

    async def _invoke(self, client: Client, invocation: Invocation) -> Completion:
        """What the client answered, or what is known of an operation that it did not answer."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return completion_of(client, await client.invoke(invocation))
        except Unreachable as error:
            self._failed_opens += 1
            await self.close()
            return Completion(type="fail", error=describe(error))
        except Definite as error:
            return Completion(type="fail", error=describe(error))
        except Indefinite as error:
            return Completion(type="info", error=describe(error), extra=error.extra)
        except Exception as error:  # noqa: BLE001 - unclassified: it may have happened
            _log_unforeseen(error, f"{invocation.f} on", self.node)
            return Completion(type="info", error=describe(error))


def describe(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, TimeoutError) and not text:
        return "timeout"
    if isinstance(error, ShalottError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _log_unforeseen(error: Exception, doing: str, node: str) -> None:
    if not isinstance(error, ClientError | OSError | TimeoutError):
        log.error("%s %s failed in a way no client foresaw", doing, node, exc_info=error)
