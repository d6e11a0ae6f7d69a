"""Cluster: where nodes run, as a small protocol that every backend implements.

A backend knows machines, processes and links, not brokers. What runs on the nodes is a ``System``
(cluster/systems/): its configuration files, command, readiness and administration.

Cuts are directed and counted: ``cut(a, b)`` twice needs ``mend(a, b)`` twice, so overlapping
faults compose. A mend of what is not cut does nothing: it comes late, after a ``heal``. Shapes,
clocks and disks are settings, not counts: the last one stands, and who lays several over each other
adds them up (nemesis/settings.py).
Everything is healed and removed by ``teardown``; what a crashed harness left is removed by the
next ``boot`` and by ``harness.run.select.sweep_all``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from shalott.cluster.endpoint import Endpoint as Endpoint
from shalott.cluster.members import ChangesMembers as ChangesMembers
from shalott.cluster.members import members_of as members_of

if TYPE_CHECKING:
    from shalott.core.history import Recorder

# What a world can do. A plan that asks for what is missing is refused before boot.
Capability = Literal[
    "kill",
    "stop",
    "pause",
    "cut",
    "cut-one-way",
    "delay",
    "throttle",
    "wipe",
    "power",
    "clock",
    "loss",
    "jitter",
    "duplicate",
    "reorder",
    "corrupt",
    "disk-slow",
    "disk-full",
    "disk-error",
    "disk-short",
    "disk-corrupt",
    "cut-clients",
    "trigger-event",
    "trigger-sync",
    "upgrade",
    "limit-cpu",
    "limit-memory",
    "limit-files",
    "limit-processes",
    "fill-tmp",
    "stop-process",
]

NodeState = Literal["running", "paused", "exited", "absent"]


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``exit_code`` is set when the process exited by itself or was killed."""

    state: NodeState
    exit_code: int | None = None
    pid: int | None = None


class NodeExit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a node's process that the harness did not ask for.

    ``exit_code``: 128 and the signal's number for a signal, as shells show it; None: not known.
    ``out_of_memory``: the kernel ended it for want of memory, where the backend can tell.
    """

    node: str
    exit_code: int | None
    out_of_memory: bool = False


class LinkShape(msgspec.Struct, frozen=True, kw_only=True):
    """How one direction of a link is slowed and spoilt. Zero means: as it is.

    What is behind ``loss`` only a ``ShapesPackets`` can make. ``correlation``: the probability that
    a packet meets what the packet before it met, of loss, jitter and the rest (netem has a formula
    of its own).
    """

    delay_ms: float = 0
    rate_bytes_s: int = 0
    loss: float = 0  # probability that a packet is lost; TCP makes a late one of it
    jitter_ms: float = 0  # a packet takes up to so much longer than ``delay_ms``
    duplicate: float = 0  # probability that a packet arrives twice
    reorder: float = 0  # probability that a packet is overtaken by those behind it
    corrupt: float = 0  # probability that a bit of a packet is flipped; TCP drops it
    correlation: float = 0


class PacketsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What became of numbered packets that were sent over one direction of a link, to see.

    ``least_ms`` and ``most_ms``: how long those that arrived took; None if none did.
    ``overtaken``: that arrived behind one that was sent later.
    """

    sent: int
    arrived: int  # each once
    duplicated: int
    overtaken: int
    corrupted: int
    least_ms: float | None = None
    most_ms: float | None = None


class DiskFaults(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one node's disk. The defaults are a sound disk."""

    slow_ms: float = 0  # every call takes that much longer, a sync too
    full: bool = False  # writes that need space fail (ENOSPC)
    fail_sync: bool = False  # syncs fail (EIO), and what they were to save is lost
    short: bool = False  # reads and writes may do less than they were asked to
    corrupt_bytes: int = 0  # so many of the stored bytes rot; rot is never undone by a heal


SOUND_DISK = DiskFaults()


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a system wants on one node. Paths in ``files`` are relative to its configuration
    directory.

    ``command`` and the values of ``environment`` may hold the placeholders ``{config}`` and
    ``{data}``, the directories as the node sees them, and ``{python}``, an interpreter that has
    the broker's libraries. ``ports`` maps a port's name to the number that the node listens on
    inside its own world. ``collect`` names files and directories under the data directory that
    ``Cluster.collect`` brings.
    """

    name: str
    # Name of a recipe under cluster/images, or the absolute path of a directory with a Dockerfile,
    # which may begin with ARG BASE and FROM ${BASE}. The local backend ignores it.
    image: str
    command: tuple[str, ...]
    files: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    ports: Mapping[str, int] = {}
    collect: tuple[str, ...] = ("events.jsonl",)
    restart_if_exits: bool = False  # by itself, that is; a killed or stopped node stays down


class CommandResult(msgspec.Struct, frozen=True):
    """What ``run_command`` met. ``output`` holds both streams."""

    exit_code: int
    output: str


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses settled by the backend before the nodes' files are written.

    ``listen[node][port]``: what a node binds. ``dial[source][destination][port]``: what
    ``source`` dials to reach ``destination`` (a relay in the local backend). ``data_dir[node]``:
    as the node sees it.
    """

    listen: Mapping[str, Mapping[str, Endpoint]]
    dial: Mapping[str, Mapping[str, Mapping[str, Endpoint]]]
    data_dir: Mapping[str, str]
    config_dir: Mapping[str, str]


class System(Protocol):
    """What runs on the nodes, and how to administer it over its management API.

    What only some systems can be asked is a protocol of its own, as in jepsen.db: DeclaresQueues,
    FailsOver, TakesReports. A system that can be asked has the methods, and one that can't lacks
    them: a plan whose faults ask for them is refused before boot (nemesis/requirements.py).
    """

    name: str
    # A port's name to the usual number, at which each node listens where it has an address of its
    # own; on loopback the backend finds free ones.
    ports: Mapping[str, int]
    image: str  # as NodeSpec's

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]: ...

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        """Return when the nodes serve clients as one cluster.

        Raises BootFailed with the nodes' state.
        """
        ...

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """Put the plan's policy in place and declare the queues, spread over the nodes."""
        ...

    async def observe(self, cluster: Cluster, node: str) -> Mapping[str, Any]:
        """What ``node`` believes now. Raises ClientError if it can't be asked.

        {"running": [node, ...], "partitions": [node, ...], "claims": [{"group": queue, "role":
        "master"|"mirror"|"none", "epoch": int, "master": node, "mirrors": [...],
        "synchronised": [...], "state": str}, ...]}. Claims may hold more (messages)
        """
        ...

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        """True when every node runs, no partition is reported, every queue has a live master and
        its mirrors are synchronised or can't be (manual sync)."""
        ...

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[Mapping[str, Any]]:
        """Node events (EVENT_SCHEMA rows) out of the files that ``Cluster.collect`` brought."""
        ...


@runtime_checkable
class DeclaresQueues(Protocol):
    """A System whose queues an operator declares on a node, and deletes."""

    async def declare_queue(self, cluster: Cluster, node: str, queue: str) -> None:
        """Ask ``node`` for a queue whose master is there. Raises ClientError."""
        ...

    async def delete_queue(self, cluster: Cluster, node: str, queue: str, timeout_ms: int) -> None:
        """Ask ``node`` to delete it. Raises ClientError."""
        ...


@runtime_checkable
class FailsOver(Protocol):
    """A System whose masters are replaced by an operator. (Jepsen: jepsen.db/Primary.)"""

    async def fail_over(self, cluster: Cluster, old: str, restarted: list[str]) -> None:
        """What an operator does whose master is down: another node takes its place.

        A node that he restarts for it is put into ``restarted`` before he does: that it ended is
        his doing, whatever becomes of it. Raises ClientError.
        """
        ...

    async def rejoin(self, cluster: Cluster, node: str) -> None:
        """What he does with a former master that is back: it follows the new one.

        Raises ClientError.
        """
        ...


@runtime_checkable
class NodesDiffer(Protocol):
    """Of systems whose nodes do not all host the same."""

    def hosted_ports(self, node: str) -> Sequence[str]:
        """The names of the ports that somebody listens on at a node."""
        ...


def ports_of(system: System, node: str) -> Sequence[str]:
    """The names of a node's ports."""
    return system.hosted_ports(node) if isinstance(system, NodesDiffer) else tuple(system.ports)


@runtime_checkable
class MendsPartitions(Protocol):
    """Of systems whose partitions an operator may have to end by hand."""

    @property
    def wants_mending(self) -> bool:
        """Whether the plan says that somebody does."""
        ...

    async def mend_partition(self, cluster: Cluster) -> Sequence[str]:
        """What an operator does after a partition: restart the smaller side.

        Names the nodes that were restarted.
        """
        ...


@runtime_checkable
class TakesReports(Protocol):
    """A System whose nodes listen for the reports of their slaves."""

    async def report_nonsense(self, cluster: Cluster, node: str) -> Callable[[], None]:
        """Connect to ``node`` as a slave does, and say that one has all there could be. What is
        returned hangs up. Raises ClientError."""
        ...


@runtime_checkable
class ExplainsUnsettled(Protocol):
    """Of systems that can say what they are still waiting for."""

    def why_unsettled(
        self, seen: Mapping[str, Mapping[str, Any] | None], queues: Sequence[str]
    ) -> str:
        """One phrase, of one round of observations by node; "" if nothing is missing."""
        ...


@runtime_checkable
class NamesGroups(Protocol):
    """Of systems whose nodes name a queue otherwise than the history does."""

    def group_of(self, told: str) -> str:
        """The history's name of the group that a node's event calls ``told``."""
        ...


def group_names(system: System) -> Callable[[str], str]:
    """How the history names what events of the system's nodes tell of."""
    return system.group_of if isinstance(system, NamesGroups) else str


@runtime_checkable
class TellsHeld(Protocol):
    """Of systems with queues whose nodes can be asked what clients have of them."""

    async def held(self, cluster: Cluster, node: str) -> int:
        """How many messages were sent to clients, by any node, and are not settled, as far as
        ``node`` knows. Raises ClientError."""
        ...


@runtime_checkable
class RecordsReplicas(Protocol):
    """Of systems whose nodes can be asked what they hold of what is replicated."""

    async def record_replicas(self, cluster: Cluster, record: Recorder) -> None:
        """Write a row ``replica`` for each (docs/architecture.md, the contract of the history)."""
        ...


@runtime_checkable
class InspectsMachines(Protocol):
    """Of systems that can look into their nodes where these run in the simulation."""

    async def inspect(self, machines: Mapping[str, Any]) -> None:
        """Write down what every node holds, as node events (cluster/sim/machine.py)."""
        ...


@runtime_checkable
class HasPackages(Protocol):
    """Of systems that are installed from Debian packages: those whose versions a report tells."""

    packages: Sequence[str]


@runtime_checkable
class HasArtifacts(Protocol):
    """Of systems whose programs are files that were fetched: a report tells which, to the byte."""

    async def artifacts(self, cluster: Cluster) -> Mapping[str, str]:
        """SHA-256 by file name, read on a node. Raises HarnessError."""
        ...


@runtime_checkable
class HasImages(Protocol):
    """Of clusters whose nodes are made from images."""

    async def image_facts(self, image: str) -> Mapping[str, str]:
        """What is known of a recipe's image: ``engine`` (version), ``image``, ``image_id``,
        ``image_digest``, and the same three of its ``base_image``. What there is none of says so.

        Raises HarnessError.
        """
        ...


@runtime_checkable
class ChangesImages(Protocol):
    """Of clusters whose nodes can be made anew from another image."""

    async def image_id(self, image: str) -> str:
        """What identifies that image (a recipe, as NodeSpec's, or one that is there by its name);
        it is built if need be. Raises HarnessError."""
        ...

    async def change_image(self, node: str, image: str) -> None:
        """A stopped node starts from that image from now on, with its data, address and name."""
        ...

    async def made_from(self, node: str) -> str:
        """What identifies the image that the node is made from, read from the node."""
        ...


@runtime_checkable
class ShapesPackets(Protocol):
    """Of clusters whose links can do more than ``Cluster.shape`` says."""

    async def shape_packets(self, source: str, destination: str, shape: LinkShape) -> None:
        """One direction is so from now on, all of it."""
        ...


@runtime_checkable
class MeasuresPackets(Protocol):
    """Of clusters that can send packets over a link to see what it does to them."""

    async def measure_packets(self, source: str, destination: str, count: int) -> PacketsSeen:
        """Send so many, and wait as long as the link's shape may hold them."""
        ...


@runtime_checkable
class ReadsClocksRoughly(Protocol):
    """Of clusters whose nodes' clocks are read from outside, by a running node only."""

    clock_error_ms: float  # by how much ``clock_offset_ms`` may be wrong


def ignore_exit(ended: NodeExit) -> None:
    """Of a cluster whose nodes nobody watches."""


class Cluster(Protocol):
    """Booted nodes. Every method raises HarnessError when the backend itself fails.

    ``on_exit`` is called, in the event loop, for every end of a node's process that is not the work
    of ``kill``, ``stop``, ``power_off`` or ``teardown``: a crash, a signal from outside, the
    kernel's OOM killer, an exit of its own, also if the node is started again at once.
    """

    backend: str
    nodes: tuple[str, ...]
    capabilities: frozenset[str]
    on_exit: Callable[[NodeExit], None]

    async def boot(self, system: System) -> None:
        """Sweep leftovers, prepare the image or directories, write the files, start every node."""
        ...

    async def teardown(self) -> None:
        """Heal, stop and remove everything. Safe to call at any moment, also twice and after a
        failed boot."""
        ...

    async def start(self, node: str) -> None: ...

    async def stop(self, node: str, timeout_ms: int = 20000) -> None:
        """SIGTERM, wait, then SIGKILL."""
        ...

    async def kill(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""
        ...

    async def power_off(self, node: str) -> None:
        """Cut the machine's power, whatever its process does; returns when it is dark.

        ``start`` is power and process. What was not synced may be lost or torn, and its peers hear
        nothing, no reset either.
        """
        ...

    async def pause(self, node: str) -> None: ...

    async def resume(self, node: str) -> None: ...

    async def wipe(self, node: str) -> None:
        """Remove a stopped node's data."""
        ...

    async def status(self, node: str) -> NodeStatus: ...

    async def cut(self, links: Sequence[tuple[str, str]]) -> None:
        """Drop everything from source to destination.

        Established connections are hit too: they hang, they are not reset.
        """
        ...

    async def mend(self, links: Sequence[tuple[str, str]]) -> None: ...

    async def shape(
        self,
        source: str,
        destination: str,
        *,
        delay_ms: float = 0,
        rate_bytes_s: int = 0,
        loss: float = 0,
    ) -> None:
        """Delay, throttle and lose packets of one direction; zeros restore it."""
        ...

    async def link_shape(self, source: str, destination: str) -> LinkShape:
        """What is in force on one direction now: the probe that proves shapes.

        It is read where it works (the kernel's queues, the relay, the simulated link), not from
        what was asked for.
        """
        ...

    async def set_clock(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        """Set a node's clock that far from the true time, running that much faster from now on.

        It outlives restarts. Zeros restore it. Only the wall clock jumps; drift moves the
        monotonic clock and timers too.
        """
        ...

    async def clock_offset_ms(self, node: str) -> float:
        """How far the node's wall clock is ahead of the true time now, measured: the probe that
        proves clock faults."""
        ...

    async def set_disk(self, node: str, faults: DiskFaults | None) -> None:
        """Make a node's disk misbehave; it outlives restarts. None: a sound disk again.

        Raising ``corrupt_bytes`` rots the difference; lowering it undoes nothing.
        """
        ...

    async def disk_faults(self, node: str) -> DiskFaults:
        """What is in force on the node's disk now, read from the disk: the probe that proves disk
        faults."""
        ...

    async def heal(self) -> None:
        """Undo every cut and shape, restore every clock and disk, resume every paused node.

        Does not start stopped nodes.
        """
        ...

    async def reach(self, source: str, destination: str, timeout_ms: int = 1000) -> bool:
        """Whether bytes sent by ``source`` arrive at ``destination`` now: the probe that proves
        cuts.

        Only this direction counts. False too if either node's process is gone; a paused one still
        receives.
        """
        ...

    def endpoint(self, node: str, port: str) -> Endpoint: ...

    async def run_command(
        self, node: str, command: Sequence[str], timeout_ms: int = 30000
    ) -> CommandResult:
        """Run an administration command in the running node's world.

        Exit code 124: it was ended at the timeout.
        """
        ...

    async def output(self, node: str, lines: int = 20) -> str:
        """The last lines that the node's process printed: what a BootFailed quotes."""
        ...

    async def collect(self, into: Path) -> None:
        """Copy every node's output (``output.log``) and collectable files to ``into/<node>/``."""
        ...

    def describe(self) -> Mapping[str, str]:
        """How this backend does what it does (links, probes, ...), one phrase each, for the
        report."""
        ...
