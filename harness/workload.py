"""A workload: what the clients do in one run, as values that the flow uses without knowing more.

``setup`` is done once, when the queues are there and before the load: one after the other, by a
client of the first node. It stands in no history: a run whose setup fails has not booted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from harness.client import Client
from harness.generator.base import Generator
from harness.op import Invocation


class MakeClient(Protocol):
    """A client of the node that listens there; not open yet."""

    def __call__(self, host: str, port: int) -> Client: ...


@dataclass(frozen=True, slots=True)
class Workload:
    """``final_generator`` runs after the heal; ``port`` names the node's port for clients."""

    name: str
    queues: tuple[str, ...]
    port: str
    make_client: MakeClient
    generator: Generator
    final_generator: Generator
    setup: tuple[Invocation, ...] = ()
