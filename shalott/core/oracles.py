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


_RAFT: Final = "Ongaro & Ousterhout 2014"

DISK_COPIES: Final = Oracle(
    "disk-copies",
    "too-few-disks",
    "whether enough disks have what is acknowledged",
    "A power loss at the instant of an answer leaves as many copies as the profile promises.",
    "the simulated disks",
)
SYNC_FIRST: Final = Oracle(
    "sync-first",
    "acked-before-sync",
    "whether nodes sync before they speak",
    "No node acknowledges, confirms or votes before its sync.",
    f"{_RAFT}, figure 2",
)
VOTES_KEPT: Final = Oracle(
    "votes-kept",
    "vote-taken-back",
    "whether terms and votes outlast restarts",
    "No term, no vote and no acknowledgement is taken back.",
    f"{_RAFT}, 5.2",
)
EQUAL_LOGS: Final = Oracle(
    "equal-logs",
    "replicas-differ",
    "whether replicas agree at all times",
    "Replicas are equal up to what is confirmed.",
    f"{_RAFT}, State Machine Safety",
)
LEADERS_COMPLETE: Final = Oracle(
    "leaders-complete",
    "leader-lacks-committed",
    "whether leaders have what is committed",
    "A leader has each committed entry, and commits by one of its own term.",
    f"{_RAFT}, 5.4",
)
LEADERS_HEARD: Final = Oracle(
    "leaders-heard",
    "leader-alone",
    "whether leaders that nobody hears give up",
    "A leader that a majority has not answered for twice its patience leads no more.",
    "Ongaro 2014 (thesis), 6.2",
)
READS_LED: Final = Oracle(
    "reads-led",
    "read-without-majority",
    "whether leaders that answer reads still lead",
    "A read shows what was committed when it began, of a leader that a majority followed since.",
    f"{_RAFT}, 8",
)
CONFIRMED_BY_ALL: Final = Oracle(
    "confirmed-by-all",
    "confirmed-beyond-member",
    "whether all members have what is confirmed",
    "No confirm offset is beyond a member of the SyncStateSet.",
    "docs/protocols.md 2.8",
)
CONFIRMED_ONLY: Final = Oracle(
    "dispatched-confirmed",
    "dispatched-unconfirmed",
    "whether consumers see what may be lost",
    "Nothing is dispatched beyond the confirmed end.",
    "docs/protocols.md 2.8, 5.6",
)
DENSE_QUEUES: Final = Oracle(
    "dense-queues",
    "queue-offset-wrong",
    "whether queue offsets are of one message each",
    "No queue offset is given twice, and none is left out.",
    "docs/protocols.md 2.8",
)
EPOCHS_AGREE: Final = Oracle(
    "epochs-agree",
    "epoch-went-back",
    "whether all tables of epochs agree",
    "Epochs never go back, and mean the same everywhere.",
    "docs/protocols.md 2.3, 2.9",
)
WHOLE_MESSAGES: Final = Oracle(
    "whole-messages",
    "message-in-part",
    "whether logs are cut, and gone on with, between messages",
    "A log that was cut, or that a master appends to, ends with a whole message; what was cut "
    "stays away.",
    "docs/protocols.md 6.3",
)
COMMITS_STORED: Final = Oracle(
    "commits-stored",
    "noted-unstored",
    "whether transactions are noted as committed too early",
    "A commit is noted once its message counts.",
    "EndTransactionProcessor.java",
)
SETS_COUNT: Final = Oracle(
    "sets-count",
    "member-not-counted",
    "whether masters wait for all that may be in the SyncStateSet",
    "A master waits for each member that the set has or may get, and is one of the set before.",
    "docs/protocols.md 2.8, 3.3",
)
FLAGS_KEPT: Final = Oracle(
    "flags-kept",
    "flag-forgotten",
    "whether what was delivered is flagged from then on",
    "A message that a client had comes again with the redelivered flag only, whoever serves it.",
    "RabbitMQ's consumer acknowledgements guide, Automatic Requeueing",
)
SYNCHRONISED_ONLY: Final = Oracle(
    "synchronised-only",
    "unsynchronised-counted",
    "whether mirrors count that lack messages",
    "No unsynchronised mirror counts for a confirm, or is promoted under when-synced.",
    "RabbitMQ's manual, Classic Queue Mirroring",
)

MIRRORS_AGREE: Final = Oracle(
    "mirrors-agree",
    "mirror-differs",
    "whether mirrors hold what their master holds",
    "A mirror has its master's newest messages, and confirms none that the ring has not brought.",
    "rabbit_mirror_queue_slave.erl",
)
ANSWERS_DUE: Final = Oracle(
    "answers-due",
    "answered-undecided",
    "whether publishers hear of what is decided only",
    "An acknowledgement, or the answer to a commit, covers what all its queues have decided.",
    "RabbitMQ's guide on publisher confirms, basic.ack",
)
HEIRS_COMPLETE: Final = Oracle(
    "heirs-complete",
    "heritage-lost",
    "whether a dead master's heir sees to all it left",
    "A promoted mirror takes what it was sent, owes what it owed, and flags what it has.",
    "rabbit_mirror_queue_slave.erl, promote_me",
)
JOURNALS_TRUE: Final = Oracle(
    "journals-true",
    "journal-differs",
    "whether a restart would find what queues hold",
    "A journal brings back what its queue holds, no more, and flagged if it was delivered.",
    "rabbit_queue_index.erl",
)
PREFETCH_TRUE: Final = Oracle(
    "prefetch-true",
    "prefetch-miscounted",
    "whether what clients hold is what is counted",
    "A channel counts against its prefetch what its client holds, and nothing of dead queues.",
    "AMQP 0-9-1, basic.qos",
)

ORACLES: Final = (
    DISK_COPIES,
    SYNC_FIRST,
    VOTES_KEPT,
    EQUAL_LOGS,
    LEADERS_COMPLETE,
    LEADERS_HEARD,
    READS_LED,
    CONFIRMED_BY_ALL,
    CONFIRMED_ONLY,
    DENSE_QUEUES,
    EPOCHS_AGREE,
    SETS_COUNT,
    WHOLE_MESSAGES,
    COMMITS_STORED,
    SYNCHRONISED_ONLY,
    MIRRORS_AGREE,
    FLAGS_KEPT,
    ANSWERS_DUE,
    HEIRS_COMPLETE,
    JOURNALS_TRUE,
    PREFETCH_TRUE,
)
