"""JavaInstance: one client of the library in the run's JVM, used as a C++ client's process is.

It has a tap of its own (cpp/tap.py), so what it says to brokers is known to be its own, and it dies
without a word: its connections are cut before its object is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from shalott.clients.cpp.tap import RemotingTap
from shalott.clients.java.machine import JavaMachine
from shalott.core.client import ClientRows
from shalott.core.errors import Unreachable

LEAVE_TIMEOUT_S = 10.0
EVENTS = ("delivered", "sent", "polled")


class JavaInstance:
    """``on_said`` gets what it says, in order; ``on_end``, why it ended if nobody asked for it."""

    def __init__(
        self,
        machine: JavaMachine,
        what: str,
        tap: RemotingTap,
        on_said: Callable[[Mapping[str, Any]], None],
        on_end: Callable[[str], None],
        rows: ClientRows | None = None,
    ) -> None:
        self.name = machine.new_name(what)
        self._machine = machine
        self._tap = tap
        self._on_said = on_said
        self._on_end = on_end
        self._rows = rows
        self._answer: asyncio.Future[Mapping[str, Any]] | None = None  # to produce, join, leave
        self._is_held = False

    async def start(self) -> None:
        """Until there is a JVM. Raises Unreachable: nothing was asked of anybody."""
        self._is_held = True
        await self._machine.acquire(self.name, self._said, self._ended, self._rows)

    async def ask(self, do: str, what: Mapping[str, object], timeout_s: float) -> None:
        """Do what has one answer. Raises Unreachable if it failed or the JVM is gone."""
        self._answer = asyncio.get_running_loop().create_future()
        self.tell(do, what)
        try:
            async with asyncio.timeout(timeout_s):
                said = await self._answer
        except TimeoutError as error:
            sentence = f"the Java client did not {do} in {timeout_s:g} s"
            raise Unreachable(sentence) from error
        if "error" in said:
            raise Unreachable(f"the Java client: {said['error']}")

    def tell(self, do: str, what: Mapping[str, object]) -> None:
        """Do what has none, or answers with what is said later. Raises Unreachable."""
        self._machine.tell(self.name, do, what)

    async def leave(self) -> None:
        """Shut the library's object down, which says goodbye to brokers."""
        with contextlib.suppress(Unreachable):
            await self.ask("leave", {}, LEAVE_TIMEOUT_S)
        await self.kill()

    async def kill(self) -> None:
        """End it without a word. Does nothing the second time."""
        if not self._is_held:
            return
        self._is_held = False
        try:
            await self._tap.close()
        finally:
            with contextlib.suppress(Unreachable):
                self.tell("drop", {})
            await self._machine.release(self.name)

    def _said(self, said: Mapping[str, Any]) -> None:
        if said["said"] in EVENTS:
            self._on_said(said)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(said)

    def _ended(self, words: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result({"said": "failed", "error": words})
        self._on_end(words)
