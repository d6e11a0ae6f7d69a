"""The parts of the simulated world: each acts on simulated machines and on their network.

Everything that is done to the cluster is told to the trace, so that it is part of a run's digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from shalott.broker.base.events import Event
from shalott.cluster.capabilities import WORLDS, refusal
from shalott.cluster.nodes import (
    CLIENTS,
    CommandResult,
    DiskFaults,
    Link,
    LinkShape,
    NodeExit,
    NodeStatus,
)
from shalott.cluster.parts import StatelessPart, TellEvent
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.machine import EXIT_KILLED, Machine
from shalott.cluster.sim.network.network import SimNetwork
from shalott.core.errors import HarnessError

_CAN = WORLDS["sim"]


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


class _SimPart(StatelessPart):
    """A part that acts on the machines; nothing of it outlives the loop."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim


class SimProcesses(_SimPart):
    """See ``Processes``."""

    capabilities = _CAN["processes"]

    async def start(self, node: str) -> None:
        machine = self._sim.machines[node]
        if machine.is_alive:
            return
        if machine.program is None:
            raise HarnessError(f"{node} is not booted")
        self._sim.tell(f"power on {node}")
        self._sim.network.host_up(node)
        machine.start()

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        machine = self._sim.machines[node]
        if not machine.is_alive:
            return
        self._sim.tell(f"stop {node}")
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
        self._sim.tell(f"kill {node}")
        machine.end(EXIT_KILLED)
        machine.disk.kill()
        self._sim.network.process_died(process, reset=True)

    async def power_off(self, node: str) -> None:
        machine = self._sim.machines[node]
        process = machine.process
        alive = machine.is_alive
        self._sim.tell(f"power off {node}")
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
        if machine.process is not None and machine.process.state == "running":
            machine.process.state = "paused"
            self._sim.tell(f"pause {node}")

    async def resume(self, node: str) -> None:
        machine = self._sim.machines[node]
        if machine.process is not None:
            self._sim.tell(f"resume {node}")
            self._sim.loop.resume(machine.process)

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


class SimLinks(_SimPart):
    """See ``Links`` and ``CutsClients``."""

    capabilities = _CAN["links"]

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self._uneven: dict[Link, None] = {}  # links that had more than delay, rate and loss

    async def cut(self, links: Sequence[Link]) -> None:
        self._sim.tell(f"cut {' '.join(map('->'.join, links))}")
        self._sim.network.cut(links)

    async def mend(self, links: Sequence[Link]) -> None:
        self._sim.tell(f"mend {' '.join(map('->'.join, links))}")
        self._sim.network.mend(links)

    async def shape(self, source: str, destination: str, shape: LinkShape) -> None:
        """Raises MissingCapability for what happens to single packets."""
        if shape.duplicate or shape.reorder or shape.corrupt:
            raise refusal("sim", "packets")
        delay_ms, rate_bytes_s, loss = shape.delay_ms, shape.rate_bytes_s, shape.loss
        words = f"{delay_ms=} {rate_bytes_s=} {loss=}"
        plain = LinkShape(delay_ms=delay_ms, rate_bytes_s=rate_bytes_s, loss=loss)
        if shape != plain or (source, destination) in self._uneven:
            self._uneven[source, destination] = None
            words = str(shape)
        self._sim.tell(f"shape {source}->{destination} {words}")
        self._sim.network.shape(source, destination, shape)

    async def shape_of(self, source: str, destination: str) -> LinkShape:
        return self._sim.network.shape_of(source, destination)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        machines = self._sim.machines
        both = machines[source].is_alive and machines[destination].is_alive
        return both and self._sim.network.reachable(source, destination)

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        network = self._sim.network
        if not network.dial_from:
            raise HarnessError("the simulation was not told that clients will be cut off")
        self._sim.tell(f"cut clients {' '.join(map('->'.join, links))}")
        before = await self.client_cuts()
        network.mend([link for link in before if link not in links])
        network.cut([link for link in links if link not in before])

    async def client_cuts(self) -> Sequence[Link]:
        nodes = self._sim.machines
        ways = [link for node in nodes for link in ((CLIENTS, node), (node, CLIENTS))]
        return sorted(link for link in ways if self._sim.network.is_cut(*link))

    async def heal(self) -> None:
        self._sim.tell("heal")
        self._sim.network.heal()


class SimClocks(_SimPart):
    """See ``Clocks``."""

    capabilities = _CAN["clocks"]
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


class SimDisks(_SimPart):
    """See ``Disks``."""

    capabilities = _CAN["disks"]

    async def set(self, node: str, faults: DiskFaults | None) -> None:
        self._sim.tell(f"set disk of {node} to {faults}")
        self._sim.machines[node].disk.set_faults(faults)
        self._sim.machines[node].disk_faults = faults or DiskFaults()

    async def faults(self, node: str) -> DiskFaults:
        return self._sim.machines[node].disk_faults

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        disk, made = self._sim.machines[node].disk, asyncio.Event()
        last = disk.syncs + count

        def look() -> None:
            if disk.syncs >= last:
                made.set()

        disk.transfers.sync_watchers.append(look)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await made.wait()
        except TimeoutError:
            return False
        finally:
            disk.transfers.sync_watchers.remove(look)
        return True


class SimFiles(_SimPart):
    """See ``Files`` and ``TellsEventsAtOnce``."""

    capabilities = _CAN["files"]

    async def wipe(self, node: str) -> None:
        if self._sim.machines[node].is_alive:
            raise HarnessError(f"{node} runs: its data can't be wiped")
        self._sim.tell(f"wipe {node}")
        self._sim.machines[node].disk.wipe()

    def watch_events(self, tell: TellEvent) -> Callable[[], None]:
        own: dict[str, Callable[[Event], None]] = {}
        for node, machine in self._sim.machines.items():
            own[node] = partial(_tell_event, tell, node)
            machine.event_watchers.append(own[node])

        def stop() -> None:
            for node, watcher in own.items():
                self._sim.machines[node].event_watchers.remove(watcher)

        return stop

    async def output(self, node: str, lines: int = 20) -> str:
        return "\n".join(list(self._sim.machines[node].output)[-lines:])

    async def collect(self, into: Path) -> None:
        encode = msgspec.json.encode
        for node, machine in self._sim.machines.items():
            (into / node).mkdir(parents=True, exist_ok=True)
            (into / node / "output.log").write_text("".join(f"{x}\n" for x in machine.output))
            lines = b"".join(encode(event) + b"\n" for event in machine.events)
            (into / node / "events.jsonl").write_bytes(lines)


def _tell_event(tell: TellEvent, node: str, event: Event) -> None:
    tell(node, msgspec.structs.asdict(event))
