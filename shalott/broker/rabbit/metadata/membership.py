"""Which of the configured nodes belong to the cluster, whether they run or not.

RabbitMQ keeps that in Mnesia's schema: ``rabbitmqctl forget_cluster_node`` takes a node out of it,
and a reset node that joins is put in again (rabbit/rabbit_mnesia.erl). Here every configured node
belongs to it, until the table ``forgotten`` has a row of it. A node that was forgotten and starts
nevertheless is refused by the others, and ends: its own disk says that it belongs to a cluster that
knows nothing of it.

Raft's electorate (raft_server.py) stays the configured nodes: a forgotten one is a voter that is
down. It may come back with an empty disk, for when it is let in again it has been forgotten by an
entry that a majority holds without it. So whatever it had acknowledged or voted for before is held
by a majority that does not need it.
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import ForgottenRow
from shalott.broker.rabbit.metadata.tables import Tables

FORGOTTEN = "forgotten"
INCONSISTENT = "inconsistent_cluster"  # the kind of the refusal


def belonging(configured: Sequence[str], tables: Tables) -> tuple[str, ...]:
    """Those of the configured nodes that were not forgotten, in their order."""
    return tuple(node for node in configured if tables.read(FORGOTTEN, node) is None)


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
