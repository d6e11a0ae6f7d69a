"""Autoheal's decision: which side of a partition wins. Pure.

After rabbit/rabbit_autoheal.erl: the side with the most client connections wins, then the one with
the most nodes, then an arbitrary one (here: the one with the first name). Every node of every other
side restarts and copies the winner's tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Side(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that share tables, and how many clients they have together."""

    nodes: tuple[str, ...]
    connections: int


def sides_of(members: Mapping[str, tuple[str, ...]], connections: Mapping[str, int]) -> list[Side]:
    """Group running nodes by what they believe: ``members[node]`` are the nodes that ``node``
    shares tables with.

    A node belongs to the side of the first node, by name, that counts it as a member and that it
    counts too.
    """
    placed: dict[str, list[str]] = {}
    for node in sorted(members):
        for first in placed:
            if node in members[first] and first in members[node]:
                placed[first].append(node)
                break
        else:
            placed[node] = [node]
    return [
        Side(tuple(nodes), sum(connections[node] for node in nodes)) for nodes in placed.values()
    ]


def choose_winner(sides: list[Side]) -> Side:
    """The side that stays as it is."""
    return min(sides, key=lambda side: (-side.connections, -len(side.nodes), side.nodes))


def is_majority(count: int, listed: int) -> bool:
    """A strict majority of the listed nodes: half is not enough, so two of two pause."""
    return count * 2 > listed
