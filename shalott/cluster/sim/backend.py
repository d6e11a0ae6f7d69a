"""SimCluster: every node in this process, on one deterministic event loop.

It must be used from within the simulation's loop: the whole run, harness and clients included,
lives there. Machines (machine.py) are the nodes' hosts; links are the simulated network's
(network/). The harness is a host of its own that no fault reaches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from shalott.broker.base.events import Event
from shalott.cluster.cluster import Cluster, Parts, Software
from shalott.cluster.corruption import FaultAtlas
from shalott.cluster.nodes import CLIENTS, Endpoint, NodeSpec, Topology
from shalott.cluster.sim.buggify import ACTIVATION, Buggify
from shalott.cluster.sim.clocks import SimClocks, set_clock
from shalott.cluster.sim.disk.disk import DiskKnobs, SimDisk
from shalott.cluster.sim.disks import SimDisks
from shalott.cluster.sim.files import SimFiles
from shalott.cluster.sim.links import SimLinks
from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.machine import Machine, Program
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork
from shalott.cluster.sim.nodes import Simulation
from shalott.cluster.sim.oracles.oracles import Oracles
from shalott.cluster.sim.oracles.watch import NOTHING, Promised
from shalott.cluster.sim.processes import SimProcesses
from shalott.core.plan import SimPlan

HARNESS = "harness"  # its host
WALL_ORIGIN_NS = 1_700_000_000_000_000_000  # what the true wall clock shows at START_NS
MakeProgram = Callable[[NodeSpec, int, Buggify], Program]


class SimCluster(Cluster):
    """One simulation's; not booted yet."""

    def __init__(
        self,
        nodes: Sequence[str],
        loop: SimLoop,
        knobs: SimPlan,
        make_program: MakeProgram,
        promised: Promised = NOTHING,
    ) -> None:
        self.loop = loop
        self.network = SimNetwork(loop, knobs.seed, _network_knobs(knobs))
        loop.network = self.network
        for host in (HARNESS, *nodes):
            self.network.add_host(host)
        self.machines: dict[str, Machine] = {}
        sim = Simulation(
            loop,
            self.network,
            self.machines,
            wall_ns=self.wall_ns,
            on_exit=lambda ended: self.on_exit(ended),
        )
        processes, links = SimProcesses(sim), SimLinks(sim)
        self.buggify = {node: _buggify(knobs, node) for node in nodes}
        hosts = SimHosts(sim, processes, links, self._make_programs(knobs, make_program))
        super().__init__(
            "sim",
            nodes,
            hosts,
            Parts(
                links=links,
                processes=processes,
                clocks=SimClocks(sim),
                disks=SimDisks(sim),
                files=SimFiles(sim),
            ),
        )
        atlas = FaultAtlas()
        for node in self.nodes:
            self.machines[node] = self._machine(node, knobs, atlas, processes.exited)
        self.oracles = Oracles(loop, self.machines, promised)
        for machine in self.machines.values():
            machine.witness = self._heard
            machine.event_watchers.append(self._happened)

    def _machine(
        self, node: str, knobs: SimPlan, atlas: FaultAtlas, on_exit: Callable[[Machine], None]
    ) -> Machine:
        loop = self.loop
        machine = Machine(
            name=node,
            loop=loop,
            disk=SimDisk(loop, knobs.seed, node, _disk_knobs(knobs), atlas, loop.trace),
            clock=NodeClock(loop, wall_origin_ns=WALL_ORIGIN_NS - START_NS),
            wall_ns=self.wall_ns,
            on_exit=on_exit,
        )
        clocks = {clock.node: clock for clock in knobs.clocks}
        if node in clocks:
            set_clock(machine, clocks[node].offset_ms, clocks[node].drift_ppm)
        return machine

    def _heard(self, node: str, life: int, what: str, /, *details: object) -> None:
        """What brokers tell of themselves, while the simulation runs."""
        if self.loop.is_running():  # what coroutines do while all is dismantled never was
            if (order := self.network.order) is not None:
                order.happened(node, what)
            self.oracles.heard(node, life, what, *details)

    def _happened(self, event: Event) -> None:
        if (order := self.network.order) is not None:
            order.happened(event.node, f"{event.kind} {event.role}".rstrip())

    def _make_programs(
        self, knobs: SimPlan, make_program: MakeProgram
    ) -> Callable[[NodeSpec], Program]:
        return lambda spec: make_program(spec, knobs.seed, self.buggify[spec.name])

    def wall_ns(self) -> int:
        """The true time."""
        return WALL_ORIGIN_NS + self.loop.now_ns - START_NS

    def separate_clients(self, ports: Sequence[int]) -> None:
        """What the harness connects to at these ports of nodes, it connects to from a host of its
        own, so that clients can be cut off. Before boot: plans without such faults keep one host,
        and the same run as ever."""
        self.network.add_host(CLIENTS)
        self.network.dial_from |= {(HARNESS, port): CLIENTS for port in ports}

    async def each(self, step: Callable[[str], Awaitable[None]]) -> None:
        """Take a step with every node in turn, without tasks."""
        for node in self.nodes:
            await step(node)


class SimHosts:
    """The simulated machines, which are there from the beginning. See ``Hosts``."""

    def __init__(
        self,
        sim: Simulation,
        processes: SimProcesses,
        links: SimLinks,
        make_program: Callable[[NodeSpec], Program],
    ) -> None:
        self._sim = sim
        self._processes = processes
        self._links = links
        self._make_program = make_program
        self._ports: Mapping[str, int] = {}

    async def open(self, software: Software) -> Topology:
        self._ports = software.ports
        nodes = self._sim.machines
        listen = {node: {port: self.endpoint(node, port) for port in self._ports} for node in nodes}
        return Topology(
            listen=listen,
            dial={a: {b: listen[b] for b in nodes if b != a} for a in nodes},
            data_dir=dict.fromkeys(nodes, "data"),
            config_dir=dict.fromkeys(nodes, "config"),
        )

    async def prepare(self, software: Software, specs: Sequence[NodeSpec]) -> None:
        for spec in specs:
            self._sim.machines[spec.name].program = self._make_program(spec)

    async def ready(self) -> None:
        """All is there from the beginning."""

    async def remove(self) -> None:
        """Faults and processes end; the rest does not outlive the loop."""
        await self._links.heal()
        await self._processes.heal()
        for machine in self._sim.machines.values():
            if machine.is_alive:
                await self._processes.kill(machine.name)

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(node, self._ports[port])

    def describe(self) -> Mapping[str, str]:
        return {
            "backend": "sim: every node in one process, on one deterministic event loop",
            "links": "a simulated network; a live connection never loses a byte",
            "probe": "the state of the simulated link",
            "pause": "callbacks and timers of the node wait",
            "kill": "the node is frozen; its page cache survives, its peers get resets",
        }


def _buggify(knobs: SimPlan, node: str) -> Buggify:
    return Buggify(
        knobs.seed,
        node,
        disabled=knobs.buggify_off,
        enabled=knobs.buggify_on,
        activation=ACTIVATION if knobs.buggify else 0.0,
    )


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
