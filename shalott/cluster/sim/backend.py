"""SimCluster: every node in this process, on one deterministic event loop.

It implements the same protocol as the backends with containers and processes, and must be used from
within the simulation's loop: the whole run, harness and clients included, lives there. Machines
(machine.py) are the nodes' hosts; links are the simulated network's (network.py). The harness is a
host of its own that no fault reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from shalott.broker.base.events import Event
from shalott.cluster.base import (
    CommandResult,
    DiskFaults,
    Endpoint,
    LinkShape,
    NodeExit,
    NodeSpec,
    NodeStatus,
    System,
    Topology,
    ignore_exit,
)
from shalott.cluster.capabilities import MOST
from shalott.cluster.links import Link
from shalott.cluster.refusals import refusal
from shalott.cluster.rot import FaultAtlas
from shalott.cluster.sim.buggify import ACTIVATION, Buggify
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.machine import EXIT_KILLED, Machine, Program
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork
from shalott.cluster.told import CLIENTS
from shalott.core.errors import HarnessError
from shalott.core.plan import SimPlan

HARNESS = "harness"  # its host
WALL_ORIGIN_NS = 1_700_000_000_000_000_000  # what the true wall clock shows at START_NS
MakeProgram = Callable[[NodeSpec, int, Buggify], Program]


class SimCluster:
    """See ``cluster.base.Cluster``. One simulation's; not booted yet."""

    backend = "sim"

    def __init__(
        self,
        nodes: Sequence[str],
        loop: SimLoop,
        knobs: SimPlan,
        make_program: MakeProgram,
    ) -> None:
        self.nodes = tuple(nodes)
        self._knobs = knobs
        self._make_program = make_program
        self.capabilities = MOST["sim"]
        self.loop = loop
        self.network = SimNetwork(loop, knobs.seed, _network_knobs(knobs))
        loop.network = self.network
        for host in (HARNESS, *self.nodes):
            self.network.add_host(host)
        self._ports: Mapping[str, int] = {}
        self.on_exit: Callable[[NodeExit], None] = ignore_exit
        self._atlas = FaultAtlas()
        self.machines = {node: self._machine(node) for node in self.nodes}
        self.buggify = {node: self._buggify(node) for node in self.nodes}

    def _machine(self, node: str) -> Machine:
        knobs = self._knobs
        clocks = {clock.node: clock for clock in knobs.clocks}
        clock = NodeClock(lambda: self.loop.now_ns, wall_origin_ns=WALL_ORIGIN_NS - START_NS)
        machine = Machine(
            name=node,
            loop=self.loop,
            disk=SimDisk(
                self.loop, knobs.seed, node, _disk_knobs(knobs), self._atlas, self.loop.trace
            ),
            clock=clock,
            wall_ns=self.wall_ns,
            on_exit=self._exited,
        )
        if node in clocks:
            self._set_clock(machine, clocks[node].offset_ms, clocks[node].drift_ppm)
        return machine

    def _buggify(self, node: str) -> Buggify:
        knobs = self._knobs
        return Buggify(
            knobs.seed,
            node,
            disabled=knobs.buggify_off,
            enabled=knobs.buggify_on,
            activation=ACTIVATION if knobs.buggify else 0.0,
        )

    def wall_ns(self) -> int:
        """The true time."""
        return WALL_ORIGIN_NS + self.loop.now_ns - START_NS

    def _tell(self, what: str) -> None:
        """Note in the trace what is done to the cluster."""
        self.loop.trace.event(self.loop.now_ns, what)

    # -- life --------------------------------------------------------------------------------------

    async def boot(self, system: System) -> None:
        self._ports = system.ports
        for spec in system.node_specs(self._topology()):
            program = self._make_program(spec, self._knobs.seed, self.buggify[spec.name])
            self.machines[spec.name].program = program
        for node in self.nodes:
            await self.start(node)

    def _topology(self) -> Topology:
        def endpoints(node: str) -> dict[str, Endpoint]:
            return {port: self.endpoint(node, port) for port in self._ports}

        listen = {node: endpoints(node) for node in self.nodes}
        dial = {
            source: {node: listen[node] for node in self.nodes if node != source}
            for source in self.nodes
        }
        return Topology(
            listen=listen,
            dial=dial,
            data_dir=dict.fromkeys(self.nodes, "data"),
            config_dir=dict.fromkeys(self.nodes, "config"),
        )

    async def teardown(self) -> None:
        """Nothing outlives the loop."""
        await self.heal()
        for machine in self.machines.values():
            if machine.is_alive:
                await self.kill(machine.name)

    async def start(self, node: str) -> None:
        machine = self.machines[node]
        if machine.is_alive:
            return
        if machine.program is None:
            raise HarnessError(f"{node} is not booted")
        self._tell(f"power on {node}")
        self.network.host_up(node)
        machine.start()

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        machine = self.machines[node]
        if not machine.is_alive:
            return
        self._tell(f"stop {node}")
        machine.stop_asked.set()
        await self.resume(node)  # a stopped process can't act on its SIGTERM
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await machine.ended.wait()
        except TimeoutError:
            await self.kill(node)

    async def kill(self, node: str) -> None:
        machine = self.machines[node]
        process = machine.process
        if process is None or process.state == "dead":
            return
        self._tell(f"kill {node}")
        machine.end(EXIT_KILLED)
        machine.disk.kill()
        self.network.process_died(process, reset=True)

    async def power_off(self, node: str) -> None:
        machine = self.machines[node]
        process = machine.process
        alive = machine.is_alive
        self._tell(f"power off {node}")
        if alive:
            machine.end(EXIT_KILLED)
        machine.disk.power_loss()
        self.network.host_down(node)
        if process is not None and alive:
            self.network.process_died(process, reset=False)

    def _exited(self, machine: Machine) -> None:
        """A program that ended by itself: its kernel closes what it had open."""
        assert machine.process is not None
        machine.disk.kill()
        self.network.process_died(machine.process, reset=True)
        if not machine.stop_asked.is_set():
            self.on_exit(NodeExit(node=machine.name, exit_code=machine.exit_code))

    async def pause(self, node: str) -> None:
        machine = self.machines[node]
        if machine.process is not None and machine.process.state == "running":
            machine.process.state = "paused"
            self._tell(f"pause {node}")

    async def resume(self, node: str) -> None:
        machine = self.machines[node]
        if machine.process is not None:
            self._tell(f"resume {node}")
            self.loop.resume(machine.process)

    async def wipe(self, node: str) -> None:
        if self.machines[node].is_alive:
            raise HarnessError(f"{node} runs: its data can't be wiped")
        self._tell(f"wipe {node}")
        self.machines[node].disk.wipe()

    async def status(self, node: str) -> NodeStatus:
        machine = self.machines[node]
        if machine.process is None:
            return NodeStatus(state="absent")
        if machine.process.state == "dead":
            return NodeStatus(state="exited", exit_code=machine.exit_code)
        return NodeStatus(state="paused" if machine.process.state == "paused" else "running", pid=1)

    # -- links -------------------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link]) -> None:
        self._tell(f"cut {' '.join(map('->'.join, links))}")
        self.network.cut(links)

    async def mend(self, links: Sequence[Link]) -> None:
        self._tell(f"mend {' '.join(map('->'.join, links))}")
        self.network.mend(links)

    async def shape(
        self,
        source: str,
        destination: str,
        *,
        delay_ms: float = 0,
        rate_bytes_s: int = 0,
        loss: float = 0,
    ) -> None:
        self._tell(f"shape {source}->{destination} {delay_ms=} {rate_bytes_s=} {loss=}")
        self.network.shape(
            source, destination, delay_ms=delay_ms, rate_bytes_s=rate_bytes_s, loss=loss
        )

    async def shape_packets(self, source: str, destination: str, shape: LinkShape) -> None:
        """See ``ShapesPackets``. Raises MissingCapability for what happens to single packets."""
        if shape.duplicate or shape.reorder or shape.corrupt:
            raise refusal(self.backend, "packets")
        self._tell(f"shape {source}->{destination} {shape}")
        self.network.reshape(source, destination, shape)

    async def link_shape(self, source: str, destination: str) -> LinkShape:
        return self.network.shape_of(source, destination)

    def separate_clients(self, ports: Sequence[int]) -> None:
        """What the harness connects to at these ports of nodes, it connects to from a host of its
        own, so that clients can be cut off. Before boot: plans without such faults keep one host,
        and the same run as ever."""
        self.network.add_host(CLIENTS)
        self.network.dial_from |= {(HARNESS, port): CLIENTS for port in ports}

    async def set_client_cuts(self, links: Sequence[Link], ports: Sequence[str]) -> None:
        """See ``CutsClients``."""
        if not self.network.dial_from:
            raise HarnessError("the simulation was not told that clients will be cut off")
        self._tell(f"cut clients {' '.join(map('->'.join, links))}")
        before = await self.client_cuts()
        self.network.mend([link for link in before if link not in links])
        self.network.cut([link for link in links if link not in before])

    async def client_cuts(self) -> Sequence[Link]:
        ways = [link for node in self.nodes for link in ((CLIENTS, node), (node, CLIENTS))]
        return sorted(link for link in ways if self.network.is_cut(*link))

    async def heal(self) -> None:
        self._tell("heal")
        self.network.heal()
        for machine in self.machines.values():
            if machine.process is not None:
                self.loop.resume(machine.process)

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        both = self.machines[source].is_alive and self.machines[destination].is_alive
        return both and self.network.reachable(source, destination)

    # -- clocks and disks --------------------------------------------------------------------------

    async def set_clock(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        self._tell(f"set clock of {node} {offset_ms=} {drift_ppm=}")
        self._set_clock(self.machines[node], offset_ms, drift_ppm)

    def _set_clock(self, machine: Machine, offset_ms: float, drift_ppm: float) -> None:
        machine.clock.set(offset_ms, drift_ppm)
        machine.drifts = machine.drifts or drift_ppm != 0
        if machine.drifts and machine.process is not None:
            machine.process.clock = machine.clock

    async def clock_offset_ms(self, node: str) -> float:
        return (self.machines[node].clock.wall_ns() - self.wall_ns()) / 1e6

    async def set_disk(self, node: str, faults: DiskFaults | None) -> None:
        self._tell(f"set disk of {node} to {faults}")
        self.machines[node].disk.set_faults(faults)
        self.machines[node].disk_faults = faults or DiskFaults()

    async def disk_faults(self, node: str) -> DiskFaults:
        return self.machines[node].disk_faults

    # -- what triggers wait for --------------------------------------------------------------------

    def watch_events(self, tell: Callable[[str, Mapping[str, Any]], None]) -> Callable[[], None]:
        """See ``TellsEventsAtOnce``."""
        own: dict[str, Callable[[Event], None]] = {}
        for node, machine in self.machines.items():
            own[node] = partial(_tell_event, tell, node)
            machine.event_watchers.append(own[node])

        def stop() -> None:
            for node, watcher in own.items():
                self.machines[node].event_watchers.remove(watcher)

        return stop

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        """See ``CountsSyncs``."""
        disk, made = self.machines[node].disk, asyncio.Event()
        last = disk.syncs + count

        def look() -> None:
            if disk.syncs >= last:
                made.set()

        disk.sync_watchers.append(look)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await made.wait()
        except TimeoutError:
            return False
        finally:
            disk.sync_watchers.remove(look)
        return True

    # -- reading -----------------------------------------------------------------------------------

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(node, self._ports[port])

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        raise HarnessError("a simulated node has no shell")

    async def output(self, node: str, lines: int = 20) -> str:
        return "\n".join(list(self.machines[node].output)[-lines:])

    async def collect(self, into: Path) -> None:
        encode = msgspec.json.encode
        for node, machine in self.machines.items():
            (into / node).mkdir(parents=True, exist_ok=True)
            (into / node / "output.log").write_text("".join(f"{x}\n" for x in machine.output))
            lines = b"".join(encode(event) + b"\n" for event in machine.events)
            (into / node / "events.jsonl").write_bytes(lines)

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "sim: every node in one process, on one deterministic event loop",
            "links": "a simulated network; a live connection never loses a byte",
            "probe": "the state of the simulated link",
            "pause": "callbacks and timers of the node wait",
            "kill": "the node is frozen; its page cache survives, its peers get resets",
        }


def _tell_event(tell: Callable[[str, Mapping[str, Any]], None], node: str, event: Event) -> None:
    tell(node, msgspec.structs.asdict(event))


def _network_knobs(knobs: SimPlan) -> NetworkKnobs:
    plan = knobs.network
    return NetworkKnobs(
        latency_us=plan.latency_us,
        jitter_us=plan.jitter_us,
        spread_us=plan.link_spread_us,
        loss=plan.loss,
    )


def _disk_knobs(knobs: SimPlan) -> DiskKnobs:
    plan = knobs.disk
    return DiskKnobs(call_us=plan.call_us, sync_us=plan.sync_us, power_loss=plan.power_loss)
