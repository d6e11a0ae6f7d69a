"""A workload: what the clients do in one run, as values that the flow uses without knowing more.

``setup`` is done once, when the queues are there and before the load: one after the other, by a
client of the first node. It stands in no history: a run whose setup fails has not booted. What may
be asked twice (``setup_repeats``) is asked again while messages get lost and leaders change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shalott.core.client import Client, MakeClient
from shalott.core.generator.base import Generator
from shalott.core.op import Invocation


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
