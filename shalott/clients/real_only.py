"""Clients that are somebody else's library run on real clusters only."""

from __future__ import annotations

from shalott.core.errors import UsageError

OWN = "own"  # the client that is no library


def refuse_in_simulation(name: str, backend: str) -> None:
    """Raises UsageError: libraries have clocks, sockets and threads of their own."""
    if name != OWN and backend == "sim":
        raise UsageError(
            f"--client {name} runs on real clusters only: a simulated network has no place for a"
            " library with sockets of its own"
        )
