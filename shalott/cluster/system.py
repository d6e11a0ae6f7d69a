"""System: what runs on the nodes of a cluster, and what only some systems can be asked.

What only some can is a small protocol of its own, as in jepsen.db: a ``System`` object has its
methods or lacks them, and a plan whose faults ask for what is lacking is refused before boot
(nemesis/requirements.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from shalott.cluster.cluster import Cluster, Software

if TYPE_CHECKING:
    from shalott.core.history import History, Recorder


Observation = Mapping[str, Any]  # what a node believes, as ``System.observe`` returns it
Claim = Mapping[str, Any]  # of one group, within an observation
EventRow = Mapping[str, Any]  # a row of EVENT_SCHEMA


class System(Software, Protocol):
    """What runs on the nodes, and how to administer it over its management API.

    What only some systems can be asked is a protocol of its own, as in jepsen.db: DeclaresQueues,
    FailsOver, TakesReports. A system that can be asked has the methods, and one that can't lacks
    them: a plan whose faults ask for them is refused before boot (nemesis/requirements.py).
    """

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        """Return when the nodes serve clients as one cluster.

        Raises BootFailed with the nodes' state.
        """
        ...

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None:
        """Put the plan's policy in place and declare the queues, spread over the nodes.

        In a cluster of others, whose ``prefix`` is not "", nothing else may be made or changed.
        """
        ...

    async def observe(self, cluster: Cluster, node: str) -> Observation:
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

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
        """Node events (EVENT_SCHEMA rows) out of the files that ``Cluster.collect`` brought.

        ``run_start_wall_ns`` is a number, and more (RunStart in core/timeline.py): a wall time less
        it is a time of the run, also where clocks were stepped; ``place`` takes a node's monotonic
        time as well, ``place_log`` the lines of a log in their order.
        """
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
class MovesMirrors(Protocol):
    """A System whose queues are mirrored where a policy says, and synchronised by hand if it says
    so."""

    async def narrow_mirrors(self, cluster: Cluster, by: str, holders: Sequence[str]) -> None:
        """Ask ``by`` for a policy that wants queues on ``holders``. Raises ClientError."""
        ...

    async def widen_mirrors(self, cluster: Cluster, by: str) -> None:
        """Ask ``by`` for all mirrors, begin and stop their synchronisation, and have the plan's
        policy again. It may be repeated. Raises ClientError."""
        ...


@runtime_checkable
class FailsOver(Protocol):
    """A System whose masters are replaced by an operator. (Jepsen: jepsen.db/Primary.)"""

    async def fail_over(self, cluster: Cluster, old: str, restarted: list[str]) -> None:
        """What an operator does whose master is down: another node takes its place.

        A node that he restarts for it is put into ``restarted`` before he does: that it ended is
        his doing, also if it fails. Raises ClientError.
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
        """The names of the ports that a service listens on at a node."""
        ...


def ports_of(system: System, node: str) -> Sequence[str]:
    """The names of a node's ports."""
    return system.hosted_ports(node) if isinstance(system, NodesDiffer) else tuple(system.ports)


@runtime_checkable
class MendsPartitions(Protocol):
    """Of systems whose partitions an operator may have to end by hand."""

    @property
    def wants_mending(self) -> bool:
        """Whether the plan says that one does."""
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

    def why_unsettled(self, seen: Mapping[str, Observation | None], queues: Sequence[str]) -> str:
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

    async def inspect(self, machines: Mapping[str, object]) -> None:
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
class WritesEvents(Protocol):
    """Of systems whose nodes write their events, a JSON object a line, while they run."""

    events_file: str  # relative to the data directory


@runtime_checkable
class NamesMessages(Protocol):
    """Of systems of which is known what their nodes say to each other, and which files they write,
    where that can be seen.

    ``message_names``: those worth waiting for. ``data_files``: patterns, of kinds of files below
    the data directory that are written for reasons of their own. Of both those come first that a
    cluster at rest writes and sends all the time.
    """

    @property
    def message_names(self) -> Sequence[str]: ...

    @property
    def data_files(self) -> Sequence[str]: ...

    def message_reader(
        self, port: int, from_dialler: bool
    ) -> Callable[[bytes], Sequence[str]] | None:
        """Names the messages that one end of one connection to this port says, as the bytes come.
        It may begin in the midst of them: what is no message is passed over."""
        ...


@runtime_checkable
class AcknowledgesUnlogged(Protocol):
    """Of systems whose nodes log no acknowledgements: what clients saw of them stands for that."""

    def acknowledged_events(self, history: History, rows: Sequence[EventRow]) -> Sequence[EventRow]:
        """Rows ``acked`` of EVENT_SCHEMA, by a run's operations and what its nodes told."""
        ...


@runtime_checkable
class TellsSynchronisations(Protocol):
    """Of systems whose queues say in their state when they are ``syncing``."""

    tells_synchronisations: bool


@runtime_checkable
class ChangesMembers(Protocol):
    """A System whose nodes leave its cluster and join it, as an operator has it.

    The nodes of a plan stay what they are. One that left is a machine that is there and does not
    belong to the cluster; it joins again under its name, with an empty disk. No step waits for a
    node that is ``left_out``: neither ``await_settled`` nor who heals a run.
    """

    @property
    def left_out(self) -> Sequence[str]:
        """The nodes that were forgotten and have not been let in again."""
        ...

    def why_not_leave(self, node: str) -> str:
        """Why the node can't leave the cluster, or come back empty; "" if it can."""
        ...

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        """The nodes that belong to the cluster, running or not, as ``node`` says. Raises
        ClientError."""
        ...

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        """Those of them that run, as ``node`` says. Raises ClientError."""
        ...

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        """Have ``by`` take ``node``, which is down, out of the cluster, if it is in it. Raises
        ClientError."""
        ...

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        """Have ``by`` let ``node`` in, whose disk is empty and which is started next, if it is
        not in. Raises ClientError."""
        ...


def members_of(cluster: Cluster, system: System) -> tuple[str, ...]:
    """The nodes of the plan without those that are left out of the system's cluster, or left down
    because they can't start from their files."""
    out = [*cluster.left_down, *(system.left_out if isinstance(system, ChangesMembers) else ())]
    return tuple(node for node in cluster.nodes if node not in out)
