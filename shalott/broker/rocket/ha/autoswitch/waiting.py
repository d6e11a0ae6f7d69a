"""Waiting for what must not be cut short: a truncation, a file that is being replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``. Whoever cancels this waits until ``work`` is done."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved: it is the canceller's business no more
        raise


def is_cancelled() -> bool:
    """Whether the task that asks was told to end. It may not have heard: what it waits for takes
    the cancellation first, and may end with an error of its own instead (a TaskGroup does, if one
    of its tasks failed)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
