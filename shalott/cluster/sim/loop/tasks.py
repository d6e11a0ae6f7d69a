"""Tasks and futures whose place in a set does not depend on where they lie in memory.

asyncio itself keeps tasks in sets: ``TaskGroup`` aborts its children in the order of one, ``wait``
returns two. The order of a set is the order of hashes, and the hash of an object is its address. A
hash that is the number of creation makes the order the same in every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import TypeVar

T = TypeVar("T")


class SimTask(asyncio.Task[T]):
    """``number`` counts the loop's tasks and futures."""

    def __init__(
        self,
        coro: Coroutine[object, object, T],
        number: int,
        *,
        loop: asyncio.AbstractEventLoop,
        name: str | None,
        context: Context | None,
    ) -> None:
        self.number = number  # first: registering the task hashes it
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[T]):
    """``number`` counts the loop's tasks and futures. The loop sets it: a constructor of our own
    would double what a future costs.
    """

    number: int

    def __hash__(self) -> int:
        return self.number
