"""Refusals: the one sentence for each kind of fault that a world can't make.

A plan that asks for one is refused before boot, by its capabilities. These are for callers that
don't ask first: a backend says what it lacks and never pretends.
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.harness.core.errors import MissingCapability

REASONS: Mapping[str, str] = {
    "power": "cut a node's power: only the simulation can lose unsynced writes",
    "clock": "set a node's clock apart from the host's: only the simulation can",
    "loss": "lose packets",
    "disk": "make a node's disk fail: only the simulation can",
}


def refusal(backend: str, what: str) -> MissingCapability:
    """The error to raise. ``what`` is a key of REASONS."""
    return MissingCapability(f"the {backend} cluster can't {REASONS[what]}")
