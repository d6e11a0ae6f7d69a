"""The clocks of simulated machines."""

from __future__ import annotations

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.sim.machine import Machine
from shalott.cluster.sim.nodes import SimPart


class SimClocks(SimPart):
    """See ``Clocks``."""

    capabilities = WORLDS["sim"]["clocks"]
    error_ms = 0.0

    async def set(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        self._sim.tell(f"set clock of {node} {offset_ms=} {drift_ppm=}")
        set_clock(self._sim.machines[node], offset_ms, drift_ppm)

    async def offset_ms(self, node: str) -> float:
        return (self._sim.machines[node].clock.wall_ns() - self._sim.wall_ns()) / 1e6


def set_clock(machine: Machine, offset_ms: float, drift_ppm: float) -> None:
    """A clock that once drifted stays the process's own."""
    machine.clock.set(offset_ms, drift_ppm)
    machine.drifts = machine.drifts or drift_ppm != 0
    if machine.drifts and machine.process is not None:
        machine.process.clock = machine.clock
