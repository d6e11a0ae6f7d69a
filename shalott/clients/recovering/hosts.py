"""Hosts: what outlives a client whose process was retired.

A process that does not know what became of an operation is retired with its client
(core/worker.py). An application would not be: its library goes on, and recovers. So a
client that is closed leaves its library's connections here, and the next client of the same thread
takes them over; if none comes soon, they are closed.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

GRACE_S = 3.0


class Host(Protocol):
    async def close(self) -> None: ...


H = TypeVar("H", bound=Host)


class Hosts(Generic[H]):
    """Of one run, by thread."""

    def __init__(self) -> None:
        self._parked: dict[int, tuple[H, asyncio.Event]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def park(self, thread: int, host: H) -> None:
        taken = asyncio.Event()
        self._parked[thread] = (host, taken)
        task = asyncio.create_task(self._keep(thread, host, taken), name="parked client")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def take(self, thread: int) -> H | None:
        host, taken = self._parked.pop(thread, (None, None))
        if taken is not None:
            taken.set()
        return host

    async def _keep(self, thread: int, host: H, taken: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(GRACE_S):
                await taken.wait()
        except TimeoutError:
            pass
        finally:  # the end of the run cancels what waits
            if not taken.is_set():
                self._parked.pop(thread, None)
                await host.close()
