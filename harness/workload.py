"""A workload: what the clients do in one run, as values that the flow uses without knowing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from harness.client import Client
from harness.generator.base import Generator


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
