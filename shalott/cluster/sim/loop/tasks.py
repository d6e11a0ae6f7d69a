"""Tasks and futures whose place in a set does not depend on where they lie in memory.

asyncio itself keeps tasks in sets: ``TaskGroup`` aborts its children in the order of one, ``wait``
returns two. The order of a set is the order of hashes, and the hash of an object is its address. A
hash that is the number of creation makes the order the same in every run.

``gather`` is asyncio.gather as CPython 3.11 has it, on every version of Python. Since 3.12 gather
counts children that are done already at once, where 3.11 lets each tell it in a callback of its
own. So a program that awaits it goes on a turn of the loop earlier, and may write, or call its
disk, before another program that is ready at the same instant. One plan would then be two runs.
While a simulation runs, ``asyncio.gather`` is this function (``pinned``). The original:
Lib/asyncio/tasks.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class SimTask(asyncio.Task[T]):
    """``number``: see SimFuture. The loop gives it one at once."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[T]):
    """``number`` counts the loop's tasks and those of its futures that were asked for a hash: few
    are, and to number each would double what a future costs.
    """

    number = 0

    def __hash__(self) -> int:
        if not self.number:
            self.number = self.get_loop().next_number()  # type: ignore[attr-defined]
        return self.number


class _Gathering(asyncio.Future[list[object]]):
    """Cancelling it cancels the children; it ends when these have."""

    def __init__(
        self,
        children: list[asyncio.Future[object]],
        loop: asyncio.AbstractEventLoop,
        return_exceptions: bool,
    ) -> None:
        super().__init__(loop=loop)
        self._children = children
        self._return_exceptions = return_exceptions
        self._cancel_requested = False
        distinct = dict.fromkeys(children)
        self._left = len(distinct)
        for child in distinct:
            child.add_done_callback(self._child_done)

    def cancel(self, msg: object | None = None) -> bool:
        if self.done():
            return False
        cancelled = [child.cancel(msg=msg) for child in self._children]
        self._cancel_requested = self._cancel_requested or any(cancelled)
        return any(cancelled)

    def _child_done(self, child: asyncio.Future[object]) -> None:
        self._left -= 1
        if self.done():
            if not child.cancelled():
                child.exception()  # retrieved, or the loop would complain that it was not
            return
        if not self._return_exceptions:
            error = _error_of(child)
            if error is not None:
                self.set_exception(error)
                return
        if self._left:
            return
        if self._cancel_requested:
            self.set_exception(asyncio.CancelledError())
            return
        errors = [_error_of(one) for one in self._children]
        self.set_result(
            [
                one.result() if error is None else error
                for one, error in zip(self._children, errors, strict=True)
            ]
        )


def _error_of(child: asyncio.Future[object]) -> BaseException | None:
    if child.cancelled():
        return asyncio.CancelledError(getattr(child, "_cancel_message", None) or "")
    return child.exception()


def gather(*awaitables: Awaitable[Any], return_exceptions: bool = False) -> asyncio.Future[Any]:
    """See asyncio.gather."""
    loop = asyncio.get_running_loop()
    if not awaitables:
        nothing: asyncio.Future[list[object]] = loop.create_future()
        nothing.set_result([])
        return nothing
    children: dict[Awaitable[object], asyncio.Future[object]] = {}
    for each in awaitables:
        if each not in children:
            child = children[each] = asyncio.ensure_future(each)
            if child is not each:  # no other code can see to it
                child._log_destroy_pending = False  # type: ignore[attr-defined]
    return _Gathering([children[each] for each in awaitables], loop, return_exceptions)


def _forget(task: object) -> None:
    """No program of a simulation asks ``asyncio.all_tasks``, and to keep a weak set of them took
    a third of what a task costs."""


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """While it lasts, ``asyncio.gather`` is ``gather``, and asyncio keeps no set of all tasks."""
    before = asyncio.gather
    asyncio.gather = gather  # type: ignore[assignment]
    named = [vars(asyncio.tasks).get(name) for name in ("_all_tasks", "_scheduled_tasks")]
    sets = [one for one in named if one is not None]
    for one in sets:
        one.add = _forget
    try:
        yield
    finally:
        asyncio.gather = before
        for one in sets:
            del one.add
