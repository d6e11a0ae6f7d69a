"""SimProcess: one life of one program on a simulated host.

Every callback of the loop belongs to a process, found in the context that asyncio hands on from
task to task, so no code has to say so. What a process's callbacks do when it is paused (they wait)
or dead (they never run) is the loop's business; how a life begins and ends is the backend's.

A killed process is frozen, never cancelled: its tasks are kept until the simulation is over, so no
``finally`` of a dead node ever runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from shalott.cluster.sim.loop.trace import describe_callback

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.clock import NodeClock

PROCESS: ContextVar[SimProcess | None] = ContextVar("process", default=None)

# "held": it stands still in the middle of what it does, until a fault is made (Machine.hold)
State = Literal["running", "paused", "held", "dead"]
PRUNE_MIN = 256


class _Timers(Protocol):
    """What a handle needs of its loop."""

    _timers_cancelled: int


class SimHandle(msgspec.Struct, eq=False):
    """A callback that is ready or set for a time. ``seq`` counts the loop's callbacks.

    It looks like asyncio's TimerHandle. A struct, because one is made for every callback: a
    constructor in Python would cost as much as the rest of the loop.
    """

    when_ns: int
    seq: int
    process: SimProcess | None
    _callback: Callable[..., object]
    _args: tuple[object, ...]
    _context: Context
    _loop: _Timers
    _cancelled: bool = False
    is_timer: bool = False  # that a program has set, by its clock

    def __repr__(self) -> str:
        what = "cancelled" if self._cancelled else describe_callback(self._callback)
        return f"<SimHandle {self.seq} of {self.process}: {what}>"

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            self._loop._timers_cancelled += 1

    def when(self) -> float:
        """As the loop of its process shows it."""
        clock = None if self.process is None else self.process.clock
        return (self.when_ns if clock is None else clock.local_ns(self.when_ns)) / 1e9


class SimProcess:
    """One life. ``name`` is its host's; ``fenced`` processes may not touch the real world."""

    __slots__ = (
        "_prune_at",
        "clock",
        "context",
        "fenced",
        "incarnation",
        "name",
        "on_exception",
        "parked",
        "state",
        "tasks",
    )

    def __init__(
        self,
        name: str,
        incarnation: int = 1,
        *,
        fenced: bool = True,
        clock: NodeClock | None = None,
        on_exception: Callable[[dict[str, object]], None] | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.fenced = fenced
        self.clock = clock  # what its timers run by; None: the simulation's own time
        self.on_exception = on_exception  # told of what no task of the process retrieved
        self.state: State = "running"
        self.parked: list[SimHandle] = []
        self.tasks: list[asyncio.Task[object]] = []  # in order of creation; some may be done
        self._prune_at = PRUNE_MIN
        self.context = Context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"{self.name}#{self.incarnation}"

    def keep(self, task: asyncio.Task[object]) -> None:
        """Hold on to an unfinished task. Done ones are let go when the list has doubled."""
        self.tasks.append(task)
        if len(self.tasks) >= self._prune_at:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._prune_at = max(PRUNE_MIN, 2 * len(self.tasks))

    def freeze(self) -> None:
        """kill -9: nothing of it runs again."""
        self.state = "dead"
        self.parked.clear()
