"""Replica: what one node holds of one thing that is replicated, at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replica:
    """``queue`` is the group that is replicated; ``depth`` counts ``unit``s."""

    node: str
    queue: str
    role: str
    epoch: int
    depth: int
    digest: str
    synchronised: bool
    unit: str
