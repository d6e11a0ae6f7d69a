"""What simulated nodes print: the broker's log records, sorted by the process that made them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

from shalott.cluster.sim.loop.fences import lowered
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.machine import Machine

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
