"""Runs a test in virtual time, with a network that has one machine: timers cost nothing."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from shalott.broker.base.env import Env, seeded_rng
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import Events, LoopClock

T = TypeVar("T")
HOST = "127.0.0.1"


def run(test: Coroutine[Any, Any, T]) -> T:
    """What ``asyncio.run`` would do."""
    loop = SimLoop()
    loop.network = SimNetwork(loop, 1, NetworkKnobs(jitter_us=50))
    loop.network.add_host("machine")
    return loop.run(test, SimProcess("machine"))


def env(*bugs: str, node: str = "n1") -> Env:
    return Env(node, 1, LoopClock(), seeded_rng(1, 1), MemoryDisk(), Events(node), bugs=bugs)
