"""Which of the configured nodes belong to the cluster, whether they run or not.

RabbitMQ keeps that in Mnesia's schema: ``rabbitmqctl forget_cluster_node`` takes a node out of it,
and a reset node that joins is put in again (rabbit/rabbit_mnesia.erl). Here every configured node
belongs to it, until the table ``forgotten`` has a row of it. A node that was forgotten and starts
nevertheless is refused by the others, and ends: its own disk says that it belongs to a cluster that
knows nothing of it.

Raft's electorate (raft_server.py) stays the configured nodes: a forgotten one is a voter that is
down. It may come back with an empty disk, for when it is let in again it has been forgotten by an
entry that a majority holds without it. So all that it had acknowledged or voted for before is held
by a majority that does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import ForgottenRow
from shalott.broker.rabbit.metadata.tables import Tables

FORGOTTEN = "forgotten"
INCONSISTENT = "inconsistent_cluster"  # the kind of the refusal


def belonging(configured: Sequence[str], tables: Tables) -> tuple[str, ...]:
    """Those of the configured nodes that were not forgotten, in their order."""
    return tuple([node for node in configured if tables.read(FORGOTTEN, node) is None])


def refusal(node: str, by: str) -> str:
    """What RabbitMQ says to a node that starts although it was forgotten."""
    return f"Node {node} thinks it's clustered with node {by}, but {by} disagrees"


def forget(tx: Transaction, node: str) -> None:
    tx.write(FORGOTTEN, node, ForgottenRow(node=node))


def admit(tx: Transaction, node: str) -> bool:
    """Let a node that was forgotten join; False if it was not."""
    if tx.read(FORGOTTEN, node) is None:
        return False
    tx.delete(FORGOTTEN, node)
    return True


# -- sides of a partition --------------------------------------------------------------------------

# Autoheal's decision: which side of a partition wins. Pure.
#
# After rabbit/rabbit_autoheal.erl: the side with the most client connections wins, then the one
# with the most nodes, then an arbitrary one (here: the one with the first name). Every node of
# every other side restarts and copies the winner's tables.


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
