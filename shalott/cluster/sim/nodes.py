"""What the parts of the simulated world share.

Everything that is done to the cluster is told to the trace, so that it is part of a run's digest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shalott.cluster.nodes import (
    NodeExit,
)
from shalott.cluster.parts import StatelessPart
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.machine import Machine
from shalott.cluster.sim.network.network import SimNetwork


@dataclass(slots=True)
class Simulation:
    """What the parts share. ``on_exit``: told of ends that the harness did not ask for."""

    loop: SimLoop
    network: SimNetwork
    machines: dict[str, Machine]
    wall_ns: Callable[[], int]
    on_exit: Callable[[NodeExit], None]

    def tell(self, what: str) -> None:
        """Note in the trace what is done to the cluster."""
        self.loop.trace.event(self.loop.now_ns, what)

    def tell_of(self, node: str, what: str) -> None:
        """The same of one node; what happens there later may come of it."""
        self.tell(f"{what} {node}")
        self.happened(node, what)

    def happened(self, node: str, kind: str) -> None:
        """Something of a kind, which may cause others."""
        if self.network.order is not None:
            self.network.order.happened(node, kind)


class SimPart(StatelessPart):
    """A part that acts on the machines; nothing of it outlives the loop."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
