"""Deliveries of one copy of a message, one after the other.

A copy is a message in one queue in one life: what was dead-lettered is another copy. A delivery and
the one before it are what rules about redelivery speak of. Two dead letters of one message look
alike, and there may be two of them if the queue where it died had another master meanwhile: then it
may have died twice. Such pairs are none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.consumers.case.masters import SLACK_NS
from shalott.checkers.consumers.rows.rows import OK, Deliveries
from shalott.checkers.history.columns import NEVER, Bools, Ints


@dataclass(frozen=True, slots=True)
class Pairs:
    """Deliveries that were not the first of their copy, each with the one before it, in order."""

    before: Ints  # positions in the deliveries
    again: Ints

    def __len__(self) -> int:
        return len(self.again)


def read_pairs(case: Case) -> Pairs:
    deliveries = case.rows.deliveries
    known = np.flatnonzero(deliveries.message >= 0)
    known = _not_alone(deliveries, known, len(case.rows.published.index))
    order = known[
        np.lexsort(
            (known, deliveries.life[known], deliveries.queue[known], deliveries.message[known])
        )
    ]
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in (deliveries.message, deliveries.queue, deliveries.life):
        same &= column[order[1:]] == column[order[:-1]]
    pairs = Pairs(order[:-1][same], order[1:][same])
    one = _is_one_copy(case, pairs)
    return Pairs(pairs.before[one], pairs.again[one])


def _is_one_copy(case: Case, pairs: Pairs) -> Bools:
    """Whether one master ruled every queue where it died, from the publish to the delivery."""
    deliveries, published, ruled = case.rows.deliveries, case.rows.published, case.calm.ruled
    found = np.ones(len(pairs), dtype=np.bool_)
    life = deliveries.life[pairs.again]
    for code in np.unique(life[life > 0]):
        own = np.flatnonzero(life == code)
        again = pairs.again[own]
        begun_ns = published.invoke_ns[deliveries.message[again]]
        for name in dict.fromkeys(death.queue for death in case.rows.lives[code]):
            place = case.rows.queues.index(name) if name in case.rows.queues else -1
            places = np.full(len(own), place)
            since = ruled.at(places, begun_ns)
            found[own] &= (since >= 0) & (since == ruled.at(places, deliveries.at_ns[again]))
    return found


def _not_alone(deliveries: Deliveries, known: Ints, messages: int) -> Ints:
    """Those of messages that came more than once: mostly few are worth sorting."""
    often = np.bincount(deliveries.message[known], minlength=messages) > 1
    return known[often[deliveries.message[known]]]


def was_mirrored(case: Case, message: Ints, given: Ints) -> Bools:
    """Whether who made each delivery is an heir, and had its message as a mirror: what is confirmed
    is with every mirror. Of dead letters that is not known: nobody sees their confirms.
    """
    deliveries, published = case.rows.deliveries, case.rows.published
    confirmed_ns = np.where(published.ack[message] == OK, published.complete_ns[message], NEVER)
    heir = case.calm.heirs.at(deliveries.queue[given], deliveries.at_ns[given])
    promoted_ns = np.append(case.calm.promoted_ns, -1)[heir]
    return np.asarray((confirmed_ns < promoted_ns - SLACK_NS) & (deliveries.life[given] == 0))
