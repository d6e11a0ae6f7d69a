"""Cluster: where nodes run, as a table of parts.

A world (cluster/docker, ssh, local, sim) fills the table in its backend.py; parts.py says what each
part does. A world knows machines, processes and links, not brokers: what runs on the nodes is a
``System`` (system.py).

Everything is healed and removed by ``teardown``; what a crashed harness left is removed by the
next ``boot`` and by ``harness.run.select.sweep_all``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar, runtime_checkable

from shalott.cluster.capabilities import NOTHING, Capability, refusal
from shalott.cluster.nodes import Endpoint, HelperEnd, NodeExit, NodeSpec, NodeUsage, Topology
from shalott.cluster.parts import (
    Clocks,
    Disks,
    Files,
    Images,
    Links,
    Part,
    Processes,
    Resources,
)
from shalott.cluster.services import HasServices, StartsServices

P = TypeVar("P")


class Software(Protocol):
    """What a world must know of the system that runs on its nodes."""

    name: str
    # A port's name to the usual number, at which each node listens where it has an address of its
    # own; on loopback the backend finds free ones.
    ports: Mapping[str, int]
    image: str  # as NodeSpec's

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]: ...


class Hosts(Protocol):
    """The machines that nodes run on, from before their first start to after their last."""

    async def open(self, software: Software) -> Topology:
        """Sweep leftovers, and make machines with their addresses."""
        ...

    async def prepare(self, software: Software, specs: Sequence[NodeSpec]) -> None:
        """Put on the machines what their nodes need: directories, files, disks."""
        ...

    async def ready(self) -> None:
        """Every node was started: open what only then can be opened."""
        ...

    async def remove(self) -> None:
        """Remove everything. Safe at any moment, also twice and after a failed boot."""
        ...

    def endpoint(self, node: str, port: str) -> Endpoint: ...

    def describe(self) -> Mapping[str, str]:
        """How this world does what it does (links, probes, ...), one phrase each."""
        ...


@dataclass(frozen=True, slots=True)
class SeenClocks:
    """A host's clocks at one moment. ``monotonic_ns``: None if it can't be asked for."""

    wall_ns: int
    monotonic_ns: int | None = None


@runtime_checkable
class ReadsClocks(Protocol):
    """Hosts whose clocks are read during a run, to place what their nodes wrote down."""

    async def read_clocks(self, node: str) -> SeenClocks | None:
        """What the clocks of the node's host show now; None: they are the harness's own, of one
        kernel. Raises HarnessError: it can't be told now."""
        ...


@runtime_checkable
class TellsUsage(Protocol):
    """Hosts that can tell what a node takes."""

    def usage(self, node: str) -> NodeUsage | None:
        """None: it does not run, or can't be seen from here."""
        ...


@runtime_checkable
class ReusableHosts(Protocol):
    """Machines that serve one run after another.

    To make machines and to remove them takes seconds that no fault needs. A search runs one plan
    after another, so its machines stay (containers, networks, volumes, addresses, relays) and only
    their past goes.
    """

    async def clear(self) -> None:
        """Every process has ended and every disk is empty: forget the rest of the past. What nodes
        printed until now is no longer told."""
        ...

    async def reopen(self, software: Software) -> Topology:
        """As ``open``, with the same nodes and ports."""
        ...

    async def end(self, node: str) -> None:
        """End the node's process for good, also one that starts again by itself."""
        ...


@runtime_checkable
class ChecksFirst(Protocol):
    """Hosts that can say before a boot that they can't have what a plan needs of them."""

    async def check(self, software: Software) -> None:
        """Nothing is started. Raises UsageError."""
        ...


@runtime_checkable
class StandsAlready(Protocol):
    """Hosts whose nodes others made and started."""

    async def look(self, software: Software) -> Sequence[str]:
        """What a run would touch of each node, a line for each. Nothing is done to them. Raises
        UsageError: a node is not there, or does not run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The table of one world. None: this world has no such part."""

    links: Links
    processes: Processes
    clocks: Clocks | None = None
    resources: Resources | None = None
    disks: Disks | None = None
    files: Files
    images: Images | None = None

    def __iter__(self) -> Iterator[Part]:
        """Those that are there, in the order in which they are healed."""
        for field in fields(self):
            part = getattr(self, field.name)
            if part is not None:
                yield part


class Cluster:
    """Booted nodes. Every method raises HarnessError when the backend itself fails.

    ``on_exit`` is called, in the event loop, for every end of a node's process that is not the work
    of ``kill``, ``stop``, ``power_off`` or ``teardown``: a crash, a signal from outside, the
    kernel's OOM killer, an exit of its own, also if the node is started again at once.
    ``on_helper_end``: for every such end of what the harness runs for its nodes.
    """

    def __init__(self, backend: str, nodes: Sequence[str], hosts: Hosts, parts: Parts) -> None:
        self.backend = backend
        self.nodes = tuple(nodes)
        self.hosts = hosts
        self.parts = parts
        self.on_exit: Callable[[NodeExit], None] = ignore_exit
        self.on_helper_end: Callable[[HelperEnd], None] = ignore_helper_end
        self.notes: list[str] = []  # what its teardown has to say in a run's report
        self.left_down: list[str] = []  # nodes that can't start from their files: no step waits
        self.prefix = ""  # of the names of all that a run makes, where it is not alone

    # -- its parts: those that not every world has refuse what is asked of them

    @property
    def processes(self) -> Processes:
        return self.parts.processes

    @property
    def links(self) -> Links:
        return self.parts.links

    @property
    def files(self) -> Files:
        return self.parts.files

    @property
    def clocks(self) -> Clocks:
        return self._present(self.parts.clocks, "clocks")

    @property
    def resources(self) -> Resources:
        return self._present(self.parts.resources, "resources")

    @property
    def disks(self) -> Disks:
        return self._present(self.parts.disks, "disks")

    @property
    def images(self) -> Images:
        return self._present(self.parts.images, "images")

    def _present(self, part: P | None, name: str) -> P:
        if part is None:
            raise refusal(self.backend, name)
        return part

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What its parts can do here."""
        return NOTHING.union(*(part.capabilities for part in self.parts))

    # -- life

    async def check(self, software: Software) -> None:
        """Whether the software can have here what its nodes are made for; nothing is booted yet.

        Raises UsageError.
        """
        if isinstance(self.hosts, ChecksFirst):
            await self.hosts.check(software)

    async def boot(self, software: Software) -> None:
        """Sweep leftovers, prepare machines and what nodes need, start every node."""
        topology = await self.hosts.open(software)
        await self.hosts.prepare(software, software.node_specs(topology))
        if isinstance(software, HasServices) and isinstance(self.hosts, StartsServices):
            await self.hosts.start_services(software, self.processes.start)
        else:
            await self.each(self.processes.start)
        await self.hosts.ready()

    async def heal(self) -> None:
        """Undo every cut and shape, restore every clock and disk, resume every paused node.

        Does not start stopped nodes.
        """
        for part in self.parts:
            await part.heal()

    async def teardown(self) -> None:
        """Heal, stop and remove everything. Safe to call at any moment, also twice and after a
        failed boot."""
        await self.processes.close()  # first, or nodes would see the rest go
        for part in self.parts:
            if part is not self.processes:
                await part.close()
        await self.hosts.remove()

    @property
    def is_reusable(self) -> bool:
        """Whether its machines can serve one run after another: ``clear`` and ``boot_again``."""
        return isinstance(self.hosts, ReusableHosts)

    async def clear(self) -> None:
        """End every node's process, empty its disk and undo every fault."""
        hosts = self._reusable()
        await self.heal()
        await self.each(hosts.end)
        await self.each(self.files.wipe)
        await hosts.clear()

    async def boot_again(self, software: Software) -> None:
        """As ``boot``, on cleared machines. If it raises, the cluster must be torn down."""
        self.left_down.clear()
        topology = await self._reusable().reopen(software)
        await self.hosts.prepare(software, software.node_specs(topology))
        await self.each(self.processes.start)

    def _reusable(self) -> ReusableHosts:
        assert isinstance(self.hosts, ReusableHosts), "see is_reusable"
        return self.hosts

    async def each(self, step: Callable[[str], Awaitable[None]]) -> None:
        """Take a step with every node, all at once."""
        await together(step(node) for node in self.nodes)

    # -- what is known of it

    def endpoint(self, node: str, port: str) -> Endpoint:
        """Where the harness reaches a node's port."""
        return self.hosts.endpoint(node, port)

    def describe(self) -> Mapping[str, str]:
        """How this world does what it does, for the report."""
        return self.hosts.describe()


def ignore_exit(ended: NodeExit) -> None:
    """The ``on_exit`` of a cluster that no run watches."""


def ignore_helper_end(ended: HelperEnd) -> None:
    """The ``on_helper_end`` of a cluster that no run watches."""


async def together(works: Iterable[Awaitable[None]]) -> None:
    """All of them at once; what the first one raises ends the others before it is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
