"""Machine: one simulated host of a node: its disk and clock, which outlive its programs, and the
program that runs on it now.

What the program prints and the events that it emits are kept by the machine, outside of the disk:
the harness observes through them, and no fault stops that.

What nodes print are the broker's log records, sorted by the process that made them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shalott.broker.base.events import Event
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.fences import lowered
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.loop.processes import SimProcess

EXIT_KILLED = 128 + 9  # as shells and container engines tell it
OUTPUT_LINES = 20_000  # kept of one node's log

_encode = msgspec.json.Encoder().encode

# One life of what runs on a machine: (machine, its process, "please stop") -> exit code.
Program = Callable[["Machine", SimProcess, asyncio.Event], Coroutine[object, object, int]]


class SimEventLog:
    """Implements broker.base.events.EventLog for one life of a node.

    ``wall_ns`` is the true time, however skewed the node's clock is: the checkers put events of
    several nodes beside each other. A dead process says nothing, even when its frozen coroutines
    are closed at the end.
    """

    def __init__(self, machine: Machine, incarnation: int, process: SimProcess | None) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._process = process

    def emit(
        self,
        group: str,
        kind: str,
        *,
        role: str = "",
        epoch: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> None:
        machine = self._machine
        if not machine.loop.is_running():
            return  # the simulation is being dismantled: what its coroutines do then never was
        event = Event(
            at_ns=machine.clock.monotonic_ns(),
            wall_ns=machine.wall_ns(),
            node=machine.name,
            incarnation=self._incarnation,
            group=group,
            kind=kind,
            role=role,
            epoch=epoch,
            detail={} if detail is None else detail,
        )
        machine.events.append(event)
        loop = machine.loop
        loop.trace.event(loop.now_ns, f"event of {machine.name}", _encode(event))
        for tell in tuple(machine.event_watchers):
            tell(event)


def unwatched(node: str, life: int, what: str, /, *details: object) -> None:
    """``Machine.witness`` of a machine that no oracle watches."""


@dataclass
class Machine:
    """``wall_ns`` is the true wall clock. ``on_exit`` is told when the program ended by itself.

    ``node`` is what the program puts there while it runs, for looks that only a simulation
    allows. ``witness`` is told (its name, the life, what, details) by the program (oracles/).
    """

    name: str
    loop: SimLoop
    disk: SimDisk
    clock: NodeClock
    wall_ns: Callable[[], int]
    on_exit: Callable[[Machine], None]
    program: Program | None = None
    process: SimProcess | None = None
    node: object | None = None
    exit_code: int | None = None
    drifts: bool = False
    disk_faults: DiskFaults = field(default_factory=DiskFaults)
    events: list[Event] = field(default_factory=list)
    event_watchers: list[Callable[[Event], None]] = field(default_factory=list)
    witness: Callable[..., None] = unwatched
    output: deque[str] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES))
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stop_asked: asyncio.Event = field(default_factory=asyncio.Event)
    suspended: tuple[SimProcess | None, int] = (None, 0)  # whose time stands still, since when
    _lives: int = 0
    _holds: int = 0

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.state != "dead"

    def start(self) -> None:
        """A new life of the program, as a process of its own."""
        assert not self.is_alive
        assert self.program is not None
        self._lives += 1
        process = SimProcess(
            self.name,
            self._lives,
            clock=self.clock if self.drifts else None,
            on_exception=self._unhandled,
        )
        self.process, self.exit_code, self._holds = process, None, 0
        self.ended, self.stop_asked = asyncio.Event(), asyncio.Event()
        self.loop.add_process(process)
        self.loop.trace.event(self.loop.now_ns, f"{process!r} starts")
        life = self._live(self.program, process, self.stop_asked)
        self.loop.create_task(life, name="node", context=process.context)

    async def _live(self, program: Program, process: SimProcess, stop: asyncio.Event) -> None:
        """The program to its own end. Its kernel goes on and resets what the peers have open."""
        self.end(await program(self, process, stop))
        self.on_exit(self)

    def end(self, exit_code: int) -> None:
        """Nothing of the program runs from now on."""
        assert self.process is not None
        self.process.freeze()
        self.loop.trace.event(self.loop.now_ns, f"{self.process!r} ends with {exit_code}")
        self.node = None
        self.exit_code = exit_code
        self.ended.set()

    def hold(self) -> None:
        """What runs now runs on to where it waits, and nothing after that until ``let_go``."""
        process = self.process
        if process is not None and process.state in ("running", "held"):
            process.state = "held"
            self._holds += 1

    def let_go(self) -> None:
        """As often as it was held. It may have been paused or have died meanwhile."""
        self._holds = max(0, self._holds - 1)
        if self.process is not None and self.process.state == "held" and not self._holds:
            self.loop.resume(self.process)

    def _unhandled(self, context: dict[str, object]) -> None:
        """An exception that no task of the node retrieved: on a real node a line in its log."""
        error = context.get("exception")
        sentence = f"{context.get('message', 'unhandled')}: {error!r}"
        self.output.append(sentence)
        detail = {"process": "asyncio", "reason": sentence}
        incarnation = 0 if self.process is None else self.process.incarnation
        SimEventLog(self, incarnation, self.process).emit("", "crashed", detail=detail)


LOGGER = "shalott.broker"


class _MachineOutput(logging.Handler):
    def __init__(self, loop: SimLoop, machines: Mapping[str, Machine]) -> None:
        super().__init__()
        self._loop = loop
        self._machines = machines

    def emit(self, record: logging.LogRecord) -> None:
        process = self._loop.process
        machine = None if process is None else self._machines.get(process.name)
        if machine is None:
            return
        at_s = (self._loop.now_ns - START_NS) / 1e9
        with lowered(self._loop):  # formatting a traceback reads source files
            text = self.format(record)
        machine.output.append(
            f"{at_s:12.6f} {process}  {record.levelname[0]} {record.name}: {text}"
        )


@contextlib.contextmanager
def captured_output(
    loop: SimLoop, machines: Mapping[str, Machine], *, level: int = logging.INFO
) -> Iterator[None]:
    """While it lasts the broker's log goes to the machines' ``output`` and nowhere else.

    A ``level`` above CRITICAL keeps nothing, and costs nearly nothing.
    """
    logger = logging.getLogger(LOGGER)
    handler = _MachineOutput(loop, machines)
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
