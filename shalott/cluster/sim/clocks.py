"""The clocks of simulated machines."""

from __future__ import annotations

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.sim.loop.loop import stood_still
from shalott.cluster.sim.machine import Machine
from shalott.cluster.sim.nodes import SimPart


class SimClocks(SimPart):
    """See ``Clocks`` and ``SuspendsNodes``."""

    capabilities = WORLDS["sim"]["clocks"]
    error_ms = 0.0

    async def set(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        self._sim.tell(f"set clock of {node} {offset_ms=} {drift_ppm=}")
        set_clock(self._sim.machines[node], offset_ms, drift_ppm)

    async def suspend(self, node: str) -> None:
        self._sim.tell_of(node, "suspend")
        machine = self._sim.machines[node]
        machine.suspended = (machine.process, self._sim.loop.now_ns)

    async def go_on(self, node: str) -> float:
        self._sim.tell_of(node, "go on")
        machine, loop = self._sim.machines[node], self._sim.loop
        process, since_ns = machine.suspended
        machine.suspended = (None, 0)
        if process is None or process is not machine.process or process.state != "paused":
            return 0.0
        machine.drifts, process.clock = True, machine.clock
        machine.clock.skip(loop.now_ns - since_ns)
        stood_still(loop, process, since_ns)
        return (loop.now_ns - since_ns) / 1e6

    async def offset_ms(self, node: str) -> float:
        return (self._sim.machines[node].clock.wall_ns() - self._sim.wall_ns()) / 1e6


def set_clock(machine: Machine, offset_ms: float, drift_ppm: float) -> None:
    """A clock that once drifted stays the process's own."""
    machine.clock.set(offset_ms, drift_ppm)
    machine.drifts = machine.drifts or drift_ppm != 0
    if machine.drifts and machine.process is not None:
        machine.process.clock = machine.clock
