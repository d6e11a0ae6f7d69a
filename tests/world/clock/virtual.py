"""Runs a test in virtual time, with a network that has one machine: timers cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from shalott.broker.base.env import Env, seeded_rng
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork
from tests.world.disk.memory_disk import MemoryDisk

T = TypeVar("T")
HOST = "127.0.0.1"


def run(test: Coroutine[Any, Any, T]) -> T:
    """What ``asyncio.run`` would do."""
    loop = SimLoop()
    loop.network = SimNetwork(loop, 1, NetworkKnobs(jitter_us=50))
    loop.network.add_host("machine")
    return loop.run(test, SimProcess("machine"))


class Clock:
    def monotonic_ns(self) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        return loop.now_ns

    def wall_ns(self) -> int:
        return self.monotonic_ns()


class Said:
    """An event log for services that write hardly any."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, object]]] = []

    def emit(self, group: str, kind: str, **more: object) -> None:
        self.events.append((group, kind, more))


def env(*bugs: str, node: str = "n1") -> Env:
    return Env(node, 1, Clock(), seeded_rng(1, 1), MemoryDisk(), Said(), bugs=bugs)
