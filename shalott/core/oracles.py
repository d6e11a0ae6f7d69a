"""Oracles: what must hold inside a simulated cluster at every instant.

The simulation sees what no client and no log line shows: every disk as a power loss would leave it,
and each node at the moment when it promises something. It asks there and then
(cluster/sim/oracles), and writes what it found among the events of the node that was asked: an
event ``asked`` for each oracle and node, with the count so far, and an event ``violated`` for each
promise that did not hold. A checker for each reads them (checkers/runs/oracles.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ASKED, VIOLATED = "asked", "violated"  # kinds of events


@dataclass(frozen=True, slots=True)
class Oracle:
    """``name``: its checker's. ``kind``: of its anomalies."""

    name: str
    kind: str
    summary: str
    promise: str
    source: str


DISK_COPIES: Final = Oracle(
    "disk-copies",
    "too-few-disks",
    "whether a power loss at the instant of an acknowledgement would have left enough copies",
    "What a client hears acknowledged is on as many disks as the profile promises.",
    "the simulated disks; LogPromises of the system's record; docs/protocols.md 2.9, I1",
)
SYNC_FIRST: Final = Oracle(
    "sync-first",
    "acked-before-sync",
    "whether a node has on its disk what it says that it has",
    "Where the profile syncs, no node acknowledges, confirms or votes before its own sync.",
    "the simulated disks; Ongaro & Ousterhout 2014, figure 2; RabbitMQ, Publisher Confirms",
)
VOTES_KEPT: Final = Oracle(
    "votes-kept",
    "vote-taken-back",
    "whether a member of a Raft group takes back a term or a vote, also over a restart",
    "A member votes once in a term, and never returns to a term below one that it told.",
    "Ongaro & Ousterhout 2014, section 5.2; KB-DL-21",
)
EQUAL_LOGS: Final = Oracle(
    "equal-logs",
    "replicas-differ",
    "whether replicas have the same bytes and entries wherever these count",
    "Up to what is confirmed or committed all replicas are equal, at all times.",
    "Ongaro & Ousterhout 2014, State Machine Safety; docs/protocols.md 2.5",
)
CONFIRMED_BY_ALL: Final = Oracle(
    "confirmed-by-all",
    "confirmed-beyond-member",
    "whether a confirm offset runs ahead of a member of the SyncStateSet",
    "No confirm offset lies beyond the log of any member of the SyncStateSet.",
    "docs/protocols.md 2.8; KB-RKT-12, KB-RKT-13",
)
CONFIRMED_ONLY: Final = Oracle(
    "dispatched-confirmed",
    "dispatched-unconfirmed",
    "whether consumers are let see what is not confirmed yet",
    "Nothing reaches a consume queue that a failover may take back.",
    "docs/protocols.md 2.8, 5.6; KB-RKT-16",
)
EPOCHS_AGREE: Final = Oracle(
    "epochs-agree",
    "epoch-went-back",
    "whether epochs grow, and mean the same, in controllers' tables, brokers and epoch files",
    "Epochs never go back, and one epoch has one master, one set and one start everywhere.",
    "docs/protocols.md 2.3, 2.9 (I4), 3.2",
)
SYNCHRONISED_ONLY: Final = Oracle(
    "synchronised-only",
    "unsynchronised-counted",
    "whether a mirror without its master's messages confirms, or is promoted against its policy",
    "No mirror that is not synchronised counts for a confirm, or is promoted under when-synced.",
    "RabbitMQ's manual, Classic Queue Mirroring; OUR-01",
)

ORACLES: Final = (
    DISK_COPIES,
    SYNC_FIRST,
    VOTES_KEPT,
    EQUAL_LOGS,
    CONFIRMED_BY_ALL,
    CONFIRMED_ONLY,
    EPOCHS_AGREE,
    SYNCHRONISED_ONLY,
)
