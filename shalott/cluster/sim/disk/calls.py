"""CallLine: the calls of a simulated disk, one after another, each when its latency is over.

One timer of the loop a call, in the process of the caller: a paused program's calls wait for it, a
dead one's never end. What a call does, it does when its timer fires, also when its caller was
cancelled meanwhile: as with an operating system's disk behind one thread.

A watch sees each call twice, before it is done and after, and may have its caller stand still
there: then it is under way, and a kill decides what becomes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec

from shalott.broker.base.errors import StorageError
from shalott.cluster.sim.loop.trace import Trace
from shalott.core.rng import Stream

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class TimerLoop(Protocol):
    """What a disk needs of cluster.sim.loop.loop.SimLoop."""

    now_ns: int

    @property
    def process(self) -> object: ...

    def call_at_ns(
        self, when_ns: int, callback: Callable[..., object], *args: object, process: Any = None
    ) -> Timer: ...


class Call(msgspec.Struct, eq=False):
    """A call under way. ``cut_off`` is what a kill may leave half done of it; ``what`` and
    ``content`` tell the trace what is called and what it writes."""

    effect: Callable[[], object]
    cut_off: Callable[[Stream], None] | None
    future: asyncio.Future[Any]
    what: str
    content: bytes
    timer: Timer | None = None
    was_stopped: bool = False


# (what is called, whether it is done): whether its caller stands still from now on
Watch = Callable[[str, bool], bool]


class CallLine:
    """The calls under way, in the order in which they were made. ``name`` is the disk's; its
    ``trace``, if it has one, is told of every call that takes effect."""

    def __init__(self, loop: TimerLoop, name: str, trace: Trace | None) -> None:
        self._loop = loop
        self._prefix = f"disk {name} "
        self._trace = trace
        self._line: list[Call] = []
        self._busy_until_ns = 0
        self.watches: list[Watch] = []

    def run(
        self,
        effect: Callable[[], T],
        latency_ns: int,
        cut_off: Callable[[Stream], None] | None = None,
        *,
        what: str = "call",
        content: bytes = b"",
    ) -> asyncio.Future[T]:
        """Call ``effect`` when all calls before it and ``latency_ns`` are over. Await it."""
        loop = self._loop
        self._busy_until_ns = finish_ns = max(loop.now_ns, self._busy_until_ns) + latency_ns
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        call = Call(effect, cut_off, future, what, content)
        self._line.append(call)
        call.timer = loop.call_at_ns(finish_ns, self._finish, call, process=loop.process)
        return future

    def _finish(self, call: Call) -> None:
        if self.watches and not call.was_stopped and self._stops(call, is_done=False):
            loop, call.was_stopped = self._loop, True
            call.timer = loop.call_at_ns(loop.now_ns, self._finish, call, process=loop.process)
            return
        # Not always the first in the line: a paused program's calls wait there for it.
        self._line.remove(call)
        call.timer = None  # its arguments hold the call: a cycle less for the collector
        future = call.future
        try:
            result = call.effect()
        except (OSError, StorageError) as error:
            self._tell(call, error)
            if not future.done():
                future.set_exception(error)
        else:
            self._tell(call, result)
            if not future.done():
                future.set_result(result)
        if self.watches:
            self._stops(call, is_done=True)

    def _stops(self, call: Call, *, is_done: bool) -> bool:
        """Every watch is asked, also behind one that says so."""
        return sum(watch(call.what, is_done) for watch in tuple(self.watches)) > 0

    def _tell(self, call: Call, outcome: object) -> None:
        if self._trace is not None:
            content = call.content
            if outcome is None:
                words = "done"
            elif type(outcome) is int:
                words = str(outcome)
            else:
                words = _words_of(outcome)
                content = outcome if type(outcome) is bytes else content
            self._trace.event(self._loop.now_ns, f"{self._prefix}{call.what}: {words}", content)

    def kill(self, fate: Stream) -> None:
        """The callers died: the first few calls happen, the next may be cut off, the rest never
        began. No caller is told."""
        line, self._line = self._line, []
        self._busy_until_ns = 0
        reached = True
        for call in line:
            assert call.timer is not None
            call.timer.cancel()
            if not reached:
                continue
            reached = fate.random() < 0.5
            with suppress(OSError, StorageError):
                if reached:
                    call.effect()
                elif call.cut_off is not None:
                    call.cut_off(fate)
            self._tell(call, "done, killed" if reached else "cut off, killed")


def _words_of(outcome: object) -> str:
    """What a call returned or raised, without addresses and without the text of the errors of
    Python's own."""
    if isinstance(outcome, int):
        return str(outcome)
    if isinstance(outcome, OSError):
        return f"error {outcome.errno}"
    if isinstance(outcome, BaseException):
        return type(outcome).__name__
    if isinstance(outcome, bytes):
        return f"{len(outcome)} B"
    return str(outcome) if isinstance(outcome, str | list) else "done"
