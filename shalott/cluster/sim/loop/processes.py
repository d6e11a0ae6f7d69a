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
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.clock import NodeClock
    from shalott.cluster.sim.loop.loop import SimHandle

PROCESS: ContextVar[SimProcess | None] = ContextVar("process", default=None)

State = Literal["running", "paused", "dead"]
PRUNE_MIN = 256


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
        on_exception: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.fenced = fenced
        self.clock = clock  # what its timers run by; None: the simulation's own time
        self.on_exception = on_exception  # told of what no task of the process retrieved
        self.state: State = "running"
        self.parked: list[SimHandle] = []
        self.tasks: list[asyncio.Task[Any]] = []  # in order of creation; some may be done
        self._prune_at = PRUNE_MIN
        self.context = Context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"{self.name}#{self.incarnation}"

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold on to an unfinished task. Done ones are let go when the list has doubled."""
        self.tasks.append(task)
        if len(self.tasks) >= self._prune_at:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._prune_at = max(PRUNE_MIN, 2 * len(self.tasks))

    def freeze(self) -> None:
        """kill -9: nothing of it runs again."""
        self.state = "dead"
        self.parked.clear()
