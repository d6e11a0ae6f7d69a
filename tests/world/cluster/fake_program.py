"""The fake node as a program of a simulated machine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from shalott.cluster.nodes import NodeSpec
from shalott.cluster.sim.buggify import Buggify
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.machine import Machine, Program, SimEventLog
from tests.world.cluster.fake_node import FakeNode, Life

EXIT_TERMINATED = 128 + 15


class SimLife(Life):
    """What an operating system does for the fake node, done by a simulated machine."""

    def __init__(self, config: dict[str, Any], machine: Machine, process: SimProcess) -> None:
        super().__init__(config)
        self.is_deaf = False
        self._machine = machine
        self._process = process

    async def note_start(self) -> int:
        file = await self._machine.disk.open("starts", create=True)
        starts = 1 + int(await file.pread(16, 0) or b"0")
        await file.pwrite(str(starts).encode(), 0)
        await file.close()
        SimEventLog(self._machine, starts, self._process).emit("", "role", role="running")
        self._machine.output.append(f"{self._machine.name} starts for the {starts}. time")
        return starts

    def go_deaf(self) -> None:
        self.is_deaf = True


def fake_program(spec: NodeSpec, seed: int, buggify: Buggify) -> Program:
    config = json.loads(spec.files["node.json"])

    async def program(machine: Machine, process: SimProcess, stop_asked: asyncio.Event) -> int:
        life = SimLife(config, machine, process)
        serving = asyncio.create_task(FakeNode(config, life).run())
        await stop_asked.wait()
        if life.is_deaf:
            await serving
        return EXIT_TERMINATED

    return program
