"""Process: an actor. One mailbox, one message at a time, in order of arrival.

The vocabulary is Erlang's because the brokers that we model are written in it: processes send
messages that may be lost with the link, monitor each other, and die alone. A handler may await;
while it does, its mailbox waits too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from shalott.broker.rabbit.processes.messages import Failed, Message, Pid
from shalott.broker.rabbit.processes.runtime import Caller, Envelope, ExitProcess, Runtime
from shalott.broker.rabbit.processes.turns import Turn

PRUNE_MIN = 16  # timers of a process, over or not, before the list is gone through


class Process:
    """Subclass, override ``handle`` (and ``handle_call``, ``started``, ``stopping``), and
    ``Runtime.spawn`` it.
    """

    pid: Pid
    runtime: Runtime

    def __init__(self) -> None:
        self._mailbox: deque[Message | Envelope] = deque()
        self._waiter: asyncio.Future[None] | None = None  # while the mailbox is empty
        self._timers: list[asyncio.TimerHandle] = []
        self._prune_at = PRUNE_MIN

    # -- to override -------------------------------------------------------------------------------

    async def started(self) -> None:
        """First thing in the process's own task, before any message."""

    async def handle(self, message: Message) -> None:
        """One message that wants no answer."""

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        """One call. Return the answer, or None and ``caller.reply`` later."""
        return Failed("unsupported", type(request).__name__)

    # Called each time the mailbox has run empty, before waiting, if a subclass has it.
    idle: Callable[[], Awaitable[None]] | None = None

    async def stopping(self, reason: str) -> None:
        """Last thing on an orderly exit or a crash. Not called when killed."""

    def describe(self) -> str:
        """What a crash of it is reported as."""
        return type(self).__name__

    # -- for use inside ----------------------------------------------------------------------------

    def exit(self, reason: str = "normal") -> None:
        """End this process now (call from inside a handler)."""
        raise ExitProcess(reason)

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle:
        """Put ``message`` into the own mailbox in ``delay_ms``. Cancel it with ``.cancel()``."""
        loop = asyncio.get_running_loop()
        if len(self._timers) >= self._prune_at:
            now = loop.time()
            self._timers = [t for t in self._timers if not t.cancelled() and t.when() > now]
            self._prune_at = max(PRUNE_MIN, 2 * len(self._timers))
        timer = loop.call_later(delay_ms / 1000, self.deliver, message)
        self._timers.append(timer)
        return timer

    # -- for the runtime ---------------------------------------------------------------------------

    def deliver(self, item: Message | Envelope) -> None:
        self._mailbox.append(item)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
            self.runtime.turns.woken += 1

    async def run(self) -> None:
        """Handle messages until ExitProcess, an exception, or cancellation (a kill)."""
        await self.started()
        turn, idle = Turn(self.runtime.turns), self.idle
        while True:
            while self._mailbox:
                if turn.is_over():
                    await turn.end()
                item = self._mailbox.popleft()
                if isinstance(item, Envelope):
                    answer = await self.handle_call(item.request, item.caller)
                    if answer is not None:
                        item.caller.reply(answer)
                else:
                    await self.handle(item)
            if idle is not None:
                await idle()
            if not self._mailbox:
                waiter = self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await waiter
                finally:
                    if not waiter.cancelled():
                        self.runtime.turns.woken -= 1
                turn.begin()

    def drop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
