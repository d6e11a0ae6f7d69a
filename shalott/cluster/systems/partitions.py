"""Which side an operator keeps after a partition: the most nodes that have no quarrel among
themselves.

Partitions need not be clean: behind a bridge a node may agree with both sides while these
disagree with each other. What must be restarted is then every node outside the largest set
without a reported partition inside it (the smallest vertex cover of the quarrels). Clusters have
a handful of nodes, so all sets are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations


def nodes_to_restart(
    nodes: Sequence[str], partitions: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """The nodes to restart. ``partitions[a]``: those from which ``a`` says that it is partitioned.

    Of two sets of one size the one with the earlier names is kept.
    """
    quarrels = [(a, b) for a, others in partitions.items() for b in others if a != b]
    ordered = sorted(nodes)
    for size in range(len(ordered), 0, -1):
        for kept in combinations(ordered, size):
            if not any(a in kept and b in kept for a, b in quarrels):
                return tuple(node for node in ordered if node not in kept)
    raise AssertionError("one node has no quarrel with itself")


def is_known(
    nodes: Sequence[str],
    running: Mapping[str, Sequence[str]],
    partitions: Mapping[str, Sequence[str]],
) -> bool:
    """Whether every node has made up its mind about every other: it runs with it, or is parted
    from it."""
    return all(
        other in running.get(node, ()) or other in partitions.get(node, ())
        for node in nodes
        for other in nodes
        if other != node
    )
