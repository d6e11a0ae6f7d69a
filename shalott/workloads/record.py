"""WorkloadRecord: all that the harness knows of a workload; Workload: what it is in one run.

A workload is what the clients of a run do, and what judges it. A plug-in offers its record at the
entry-point group ``shalott.workloads``, or in a module given to ``--load``. It is what a map of
client, generator and checker is in Jepsen (jepsen.tests.*), but as functions of the plan, so that a
stored run can be judged again.

A run builds one Workload from its plan: values that the flow uses without knowing more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from shalott.checkers.checker import Checker
from shalott.core.client import Client, MakeClient
from shalott.core.doors import Door, door_of_records
from shalott.core.generator import Generator
from shalott.core.op import Invocation
from shalott.core.parameters import NoParameters
from shalott.core.plan import Plan
from shalott.core.rng import Draw

Values = Mapping[str, Any]  # of parameters, by field


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRecord:
    """One workload.

    ``needs``: the protocols that its clients speak, by name; it fits every system that speaks them
    all, or else all of ``or_needs``, if it has clients for these too. ``parameters``: a struct
    whose fields are flags of the command line and values of the plan (core/parameters.py).
    ``checkers``: what judges it besides the checkers that every run has. ``complete``: given the
    struct's values and how many nodes serve clients, the values that a plan stores. ``check``:
    raises UsageError for a plan that it can't have. ``draw``: values for a search's run; what it
    leaves out has its default. ``search``: fields of a swarm by name (harness/scenarios/swarm.py)
    that searches with this workload have on every system. ``describe``: a few words for the report.
    ``reads``: the fs of operations that change nothing, so that a client may call one that timed
    out fail. ``own``: those that clients do by themselves, not the system. ``fails_over``: the
    protocols that do not give what it asks for, so a search of all workloads leaves it out.

    For shrinking: ``lower`` names whole numbers that may be made smaller, down to 1; ``calm`` has
    the values that a parameter may be put to because there it does least.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    build: Callable[[Plan], Workload]
    checkers: Callable[[Plan], Sequence[Checker]]
    parameters: type[msgspec.Struct] = NoParameters
    complete: Callable[[Values, int], Values] = lambda values, serving: values
    check: Callable[[Plan], None] = lambda plan: None
    draw: Callable[[Draw], Values] = lambda draw: {}
    search: Values = field(default_factory=dict)
    describe: Callable[[Plan], str] = lambda plan: ""
    reads: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    calm: Values = field(default_factory=dict)
    or_needs: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    fails_over: tuple[str, ...] = ()

    def fits(self, speaks: Collection[str]) -> bool:
        """Whether a system that speaks these protocols understands one kind of its clients."""
        ways = (self.needs, self.or_needs) if self.or_needs else (self.needs,)
        return any(set(way) <= set(speaks) for way in ways)


WORKLOADS: Door[WorkloadRecord] = door_of_records("workload", "shalott.workloads", WorkloadRecord)


class MakeClientOfPorts(Protocol):
    """The same, of a node that is asked at several ports: (host, port) by the port's name."""

    def __call__(self, ports: Mapping[str, tuple[str, int]]) -> Client: ...


def of_the_node_itself(node: str, port: str) -> str:
    """Where most clients find every port that they need."""
    return node


@dataclass(frozen=True, slots=True)
class SeveralPorts:
    """Clients that need more than one port of their node: a broker's and a name server's, say.

    ``at``: which node has the port (its name) that a client of a node uses; by default that node.
    """

    names: tuple[str, ...]
    make_client: MakeClientOfPorts
    at: Callable[[str, str], str] = of_the_node_itself


def make_of_one_port(host: str, port: int) -> Client:
    """In place of what a workload with several ports does not have."""
    raise AssertionError("these clients need several ports of their node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``final_generator`` runs after the heal. ``port`` names the node's port for clients, unless
    these need ``several``. Clients are bound to ``nodes`` in turn: to those of the plan, if empty.
    ``final_at``: the final generator where only these nodes are left, if it asks each node.

    ``writes_until_drained``: the system itself writes until the final generator is done (retries,
    delayed messages), so its replicas are compared then, and not before.

    ``queues`` are those that are watched: a cluster has settled when they have, and faults of a
    master are faults of one of theirs. The system declares them before the setup, unless the setup
    does (``declares_queues``).
    """

    name: str
    queues: tuple[str, ...]
    generator: Generator
    final_generator: Generator
    port: str = ""
    make_client: MakeClient = make_of_one_port
    several: SeveralPorts | None = None
    setup: tuple[Invocation, ...] = ()
    setup_repeats: bool = False
    nodes: tuple[str, ...] = ()
    final_at: Callable[[Sequence[str]], Generator] | None = None
    declares_queues: bool = False
    writes_until_drained: bool = False

    @property
    def client_ports(self) -> tuple[str, ...]:
        """The names of the ports that clients use, of any node."""
        return (self.port,) if self.several is None else self.several.names

    @property
    def drains(self) -> bool:
        """Whether the final generator takes what is left, at each node."""
        return self.final_at is not None

    def final_without(self, left_out: Sequence[str], nodes: Sequence[str]) -> Generator:
        """The final generator of a run that some of the clients' nodes have left for good."""
        if self.final_at is None or not left_out:
            return self.final_generator
        return self.final_at([node for node in nodes if node not in left_out])
