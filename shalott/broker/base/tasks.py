"""Tasks: what one owner runs beside itself. (asyncio alone may drop a task without a reference.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


class Tasks:
    """In the order in which they began; a task that is done leaves.

    ``failed`` is called with the name and the error of a task that ended by an exception. Without
    it asyncio logs the error. ``name``: of tasks without a name of their own.
    """

    def __init__(
        self, failed: Callable[[str, BaseException], None] | None = None, *, name: str | None = None
    ) -> None:
        self._failed = failed
        self._name = name
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(
        self, work: Coroutine[object, object, None], name: str | None = None
    ) -> asyncio.Task[None]:
        # A connection may be found to have ended after the loop did: then nothing is started.
        task = asyncio.get_running_loop().create_task(work, name=name or self._name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def end(self) -> None:
        """Cancel them and wait for their ends. The calling task goes on, if it is one of them."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def wait(self) -> None:
        """For those that run now."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if self._failed is not None and not task.cancelled():
            error = task.exception()
            if error is not None:
                self._failed(task.get_name(), error)
