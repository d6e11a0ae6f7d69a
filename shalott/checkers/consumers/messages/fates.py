"""What became of every message that its publisher was told is safe: exactly one of these.

    consumed             delivered, and its acknowledgement had certainly arrived
    drained              still there when the run was over: basic.get took it
    dead-lettered        found among the dead letters, with the queue in its x-death
    consumed-unsure      delivered, and acknowledged without an answer, or no_ack
    rejected             a consumer refused it
    expired              its time to live had passed while it could be in the queue
    dropped              so many others came that the queue's length may have pushed it out
    deleted              its queue was deleted, or had no consumer for as long as it may have none
    sent-untold          it may have been sent to a no_ack consumer whose channel ended meanwhile
    dead-letter-unsafe   rejection, expiry or length should have made it a dead letter, and
                         something happened near it: those are published without confirms
    dead-letter-missing  the same, and nothing happened
    doubtful             none of these, and its queue was not emptied
    lost                 none of these

The first that holds counts. A policy takes a message only if the plan names it and it was due.

Sources. RabbitMQ's guides Time-To-Live and Expiration; Queue Length Limit; Dead Letter Exchanges,
whose section Safety says that "dead-lettered messages are re-published without publisher confirms
turned on internally", so that they may be lost if a node fails meanwhile. AMQP 0-9-1, queue.delete.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.consumers.messages.policies import Removals, removals
from shalott.checkers.consumers.messages.undrained import undrained_queues
from shalott.checkers.consumers.rows.rows import OK
from shalott.checkers.consumers.rows.settling import ACK, AUTO
from shalott.checkers.history.columns import Bools, Codes, Ints

FATES = (
    "consumed",
    "drained",
    "dead-lettered",
    "consumed-unsure",
    "rejected",
    "expired",
    "dropped",
    "deleted",
    "sent-untold",
    "dead-letter-unsafe",
    "dead-letter-missing",
    "doubtful",
    "lost",
)
(
    CONSUMED, DRAINED, DEAD_LETTERED, UNSURE, REJECTED, EXPIRED, DROPPED, DELETED,
    UNTOLD, UNSAFE, MISSING, DOUBTFUL, LOST,
) = range(13)  # fmt: skip
NOT_ACKNOWLEDGED = -1


@dataclass(frozen=True, slots=True)
class Fates:
    """A row a message. ``fate``: position in FATES, NOT_ACKNOWLEDGED of those that were not."""

    fate: Codes
    came_out: Bools  # anywhere, in any life
    dead_letters: Ints  # how often it ended among the dead letters
    undrained: dict[str, str]  # queues that may still hold something, and why
    removals: Removals


def message_fates(case: Case) -> Fates:
    """Every message's; those that nobody acknowledged have none."""
    seen = _Seen(case)
    undrained = undrained_queues(case)
    open_queues = np.array([name in undrained for name in case.rows.queues], dtype=np.bool_)
    published = case.rows.published
    acknowledged = published.ack == OK
    fate = np.full(len(published.index), LOST, dtype=np.int32)
    missing = acknowledged & ~seen.came_to_an_end
    gone = removals(case, np.flatnonzero(missing), open_queues)
    fate[open_queues[published.queue]] = DOUBTFUL
    for code, mask in (
        (MISSING, gone.missing),
        (UNSAFE, gone.unsafe),
        (DOUBTFUL, gone.doubtful),
        (UNTOLD, gone.untold),
        (DELETED, gone.deleted),
        (DROPPED, gone.dropped),
        (EXPIRED, gone.expired),
        (REJECTED, gone.rejected),
        (UNSURE, seen.unsure),
        (DEAD_LETTERED, seen.dead),
        (DRAINED, seen.drained),
        (CONSUMED, seen.consumed),
        (NOT_ACKNOWLEDGED, ~acknowledged),
    ):
        fate[mask] = code
    return Fates(fate, seen.came_out, seen.dead_letters, undrained, gone)


class _Seen:
    """What deliveries say of each message."""

    def __init__(self, case: Case) -> None:
        deliveries, settled = case.rows.deliveries, case.rows.deliveries.settled
        size = len(case.rows.published.index)
        known = deliveries.message >= 0
        alive = known & (deliveries.life == 0)
        acked = alive & (settled.kind == ACK)

        def of(mask: Bools) -> Bools:
            found = np.zeros(size, dtype=np.bool_)
            found[deliveries.message[mask]] = True
            return found

        self.consumed = of(acked & settled.ok)
        automatic = alive & (settled.kind == AUTO) & ~deliveries.taken
        self.unsure = of((acked & ~settled.ok) | automatic)
        self.drained = of(alive & deliveries.taken)
        self.dead = of(known & (deliveries.life > 0))
        self.came_out = of(known)
        self.came_to_an_end = self.consumed | self.unsure | self.drained | self.dead
        ended = known & (deliveries.life > 0)
        ended &= deliveries.taken | ((settled.kind == ACK) & settled.ok)
        self.dead_letters = np.bincount(deliveries.message[ended], minlength=size)
