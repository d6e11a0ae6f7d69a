"""The processes of simulated nodes, and their machines' power."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shalott.cluster.capabilities import WORLDS
from shalott.cluster.nodes import (
    CommandResult,
    NodeExit,
    NodeStatus,
)
from shalott.cluster.sim.machine import EXIT_KILLED, Machine
from shalott.cluster.sim.nodes import SimPart
from shalott.core.errors import HarnessError


class SimProcesses(SimPart):
    """See ``Processes``."""

    capabilities = WORLDS["sim"]["processes"]

    async def start(self, node: str) -> None:
        machine = self._sim.machines[node]
        if machine.is_alive:
            return
        if machine.program is None:
            raise HarnessError(f"{node} is not booted")
        self._sim.tell_of(node, "power on")
        self._sim.network.host_up(node)
        machine.start()

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        machine = self._sim.machines[node]
        if not machine.is_alive:
            return
        self._sim.tell_of(node, "stop")
        machine.stop_asked.set()
        await self.resume(node)  # a stopped process can't act on its SIGTERM
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await machine.ended.wait()
        except TimeoutError:
            await self.kill(node)

    async def kill(self, node: str) -> None:
        machine = self._sim.machines[node]
        process = machine.process
        if process is None or process.state == "dead":
            return
        self._sim.tell_of(node, "kill")
        machine.end(EXIT_KILLED)
        machine.disk.kill()
        self._sim.network.process_died(process, reset=True)

    async def power_off(self, node: str) -> None:
        machine = self._sim.machines[node]
        process = machine.process
        alive = machine.is_alive
        self._sim.tell_of(node, "power off")
        if alive:
            machine.end(EXIT_KILLED)
        machine.disk.power_loss()
        self._sim.network.host_down(node)
        if process is not None and alive:
            self._sim.network.process_died(process, reset=False)

    def exited(self, machine: Machine) -> None:
        """A program that ended by itself: its kernel closes what it had open."""
        assert machine.process is not None
        machine.disk.kill()
        self._sim.network.process_died(machine.process, reset=True)
        if not machine.stop_asked.is_set():
            self._sim.on_exit(NodeExit(node=machine.name, exit_code=machine.exit_code))

    async def pause(self, node: str) -> None:
        machine = self._sim.machines[node]
        if machine.process is not None and machine.process.state in ("running", "held"):
            machine.process.state = "paused"
            self._sim.tell_of(node, "pause")

    async def resume(self, node: str) -> None:
        machine = self._sim.machines[node]
        if machine.process is not None:
            self._sim.tell_of(node, "resume")
            self._sim.loop.resume(machine.process)

    def hold(self, node: str) -> None:
        self._sim.machines[node].hold()

    def let_go(self, node: str) -> None:
        self._sim.machines[node].let_go()

    async def status(self, node: str) -> NodeStatus:
        machine = self._sim.machines[node]
        if machine.process is None:
            return NodeStatus(state="absent")
        if machine.process.state == "dead":
            return NodeStatus(state="exited", exit_code=machine.exit_code)
        return NodeStatus(state="paused" if machine.process.state == "paused" else "running", pid=1)

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        raise HarnessError("a simulated node has no shell")

    async def heal(self) -> None:
        for machine in self._sim.machines.values():
            if machine.process is not None:
                self._sim.loop.resume(machine.process)
