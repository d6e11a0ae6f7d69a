"""Which node loads its tables from its own disk when a cluster starts. Pure.

Mnesia's rule: a node may load its own copy only if no other node can have a fresher one. A node
knows that another went down before it (it *saw* it down, and wrote that to disk) and need not wait
for that one; every other node may have gone on after it, and must be there before anybody loads.
Among the nodes that are there, one that another saw down while it did not see that other down is
*superseded*. The first of the rest, by name, loads; all the others copy from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class BootState(msgspec.Struct, frozen=True, array_like=True):
    """What a booting node tells the others: which nodes it saw go down before itself."""

    saw_down: tuple[str, ...]


def must_wait_for(node: str, listed: Sequence[str], states: Mapping[str, BootState]) -> list[str]:
    """The nodes that may have fresher tables than ``node`` and aren't booting beside it."""
    saw_down = states[node].saw_down
    return [name for name in listed if name != node and name not in saw_down and name not in states]


def choose_loader(listed: Sequence[str], states: Mapping[str, BootState]) -> str | None:
    """The node that loads from its own disk, or None if everybody must still wait.

    ``states`` are the booting nodes that see each other; none of the cluster is running.
    """
    candidates = [
        name
        for name in sorted(states)
        if not must_wait_for(name, listed, states) and not _superseded(name, states)
    ]
    return candidates[0] if candidates else None


def _superseded(node: str, states: Mapping[str, BootState]) -> bool:
    return any(
        node in other.saw_down and name not in states[node].saw_down
        for name, other in states.items()
        if name != node
    )
