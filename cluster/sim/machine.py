"""Machine: one simulated host of a node: its disk and clock, which outlive its programs, and the
program that runs on it now.

The program does what ``python -m broker`` does on an operating system: open the node on what the
disk holds, run it until it is asked to stop or gives itself up. What it prints and the events that
it emits are kept by the machine, outside of the disk: they are the harness's eyes, and no fault
blinds them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.config import NodeConfig
from broker.errors import BrokerError
from broker.events import Event
from broker.node import Node
from cluster.base import DiskFaults
from cluster.sim.buggify import Buggify
from cluster.sim.clock import NodeClock
from cluster.sim.disk import SimDisk
from cluster.sim.loop import SimLoop
from cluster.sim.processes import SimProcess
from harness.rng import Stream

EXIT_ORDERLY = 0
EXIT_GAVE_UP = 70  # as broker.__main__ has them
EXIT_CONFIG = 78
EXIT_KILLED = -9
OUTPUT_LINES = 20_000  # kept of one node's log

log = logging.getLogger("cluster.sim")


class SimEventLog:
    """Implements broker.events.EventLog for one life of a node.

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


@dataclass
class Machine:
    """``wall_ns`` is the true wall clock. ``crashes`` are exceptions that nobody handled."""

    name: str
    loop: SimLoop
    disk: SimDisk
    clock: NodeClock
    buggify: Buggify
    seed: int
    wall_ns: Callable[[], int]
    config: NodeConfig | None = None
    process: SimProcess | None = None
    node: Node | None = None
    exit_code: int | None = None
    drifts: bool = False
    disk_faults: DiskFaults = field(default_factory=DiskFaults)
    events: list[Event] = field(default_factory=list)
    output: deque[str] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES))
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stop_asked: asyncio.Event = field(default_factory=asyncio.Event)
    _lives: int = 0

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.state != "dead"

    def start(self) -> None:
        """A new life of the program, as a process of its own."""
        assert not self.is_alive
        assert self.config is not None
        self._lives += 1
        process = SimProcess(
            self.name,
            self._lives,
            clock=self.clock if self.drifts else None,
            on_exception=self._unhandled,
        )
        self.process, self.exit_code = process, None
        self.ended, self.stop_asked = asyncio.Event(), asyncio.Event()
        self.loop.add_process(process)
        self.loop.create_task(
            self._serve(self.config, self.stop_asked), name="node", context=process.context
        )

    def end(self, exit_code: int) -> None:
        """Nothing of the program runs from now on."""
        assert self.process is not None
        self.process.freeze()
        self.node = None
        self.exit_code = exit_code
        self.ended.set()

    on_exit: Callable[[Machine], None] = field(default=lambda machine: None)

    async def _serve(self, config: NodeConfig, stop_asked: asyncio.Event) -> None:
        """What broker.__main__.serve does."""
        try:
            node = await Node.open(
                config,
                clock=self.clock,
                make_rng=self._make_rng,
                disk=self.disk,
                open_events=self._open_events,
                buggify=self.buggify,
            )
            self.node = node
            await node.start()
        except (BrokerError, OSError) as error:
            self.output.append(f"broker: {config.name} can't start: {error}")
            self._exit(EXIT_CONFIG)
            return
        asked = asyncio.ensure_future(stop_asked.wait())
        await asyncio.wait((asked, node.fatal), return_when=asyncio.FIRST_COMPLETED)
        if node.fatal.done():
            self.output.append(f"giving up: {node.fatal.result()}")
            self._exit(EXIT_GAVE_UP)
            return
        await node.stop()
        self._exit(EXIT_ORDERLY)

    def _exit(self, code: int) -> None:
        """The program's own end. Its kernel goes on: peers get what is left and then a reset."""
        self.end(code)
        self.on_exit(self)

    def _make_rng(self, incarnation: int) -> Stream:
        return Stream(self.seed, "node", self.name, incarnation)

    async def _open_events(self, incarnation: int) -> SimEventLog:
        return SimEventLog(self, incarnation, self.process)

    def _unhandled(self, context: dict[str, Any]) -> None:
        """An exception that no task of the node retrieved: on a real node a line in its log."""
        error = context.get("exception")
        sentence = f"{context.get('message', 'unhandled')}: {error!r}"
        self.output.append(sentence)
        detail = {"process": "asyncio", "reason": sentence}
        incarnation = 0 if self.process is None else self.process.incarnation
        SimEventLog(self, incarnation, self.process).emit("", "crashed", detail=detail)
