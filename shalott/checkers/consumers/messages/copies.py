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
from shalott.checkers.consumers.case.intervals import MS, S
from shalott.checkers.consumers.case.masters import SLACK_NS
from shalott.checkers.consumers.rows.rows import OK, Death, Deliveries
from shalott.checkers.consumers.rows.settling import REJECT
from shalott.checkers.history.columns import NEVER, Bools, Ints

PROPAGATED_NS = 2 * S  # by then the mirrors of a quiet queue have been told


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
    """Whether it can have died only once in every queue where it did: one master ruled from the
    publish to the delivery, or all was quiet until its only death was known to the mirrors.
    """
    deliveries, published = case.rows.deliveries, case.rows.published
    ruled, quiet = case.calm.ruled, case.calm.quiet
    found = np.ones(len(pairs), dtype=np.bool_)
    life = deliveries.life[pairs.again]
    for code in np.unique(life[life > 0]).tolist():
        own = np.flatnonzero(life == code)
        again = pairs.again[own]
        message, given_ns = deliveries.message[again], deliveries.at_ns[again]
        begun_ns, deaths = published.invoke_ns[message], case.rows.lives[code]
        for name in dict.fromkeys(death.queue for death in deaths):
            place = case.rows.queues.index(name) if name in case.rows.queues else -1
            places = np.full(len(own), place)
            since = ruled.at(places, begun_ns)
            one = (since >= 0) & (since == ruled.at(places, given_ns))
            if len(deaths) == 1 and place >= 0:
                died_ns = _died_by(case, deaths[0], place)[message]
                calm = quiet.at(places, begun_ns)
                one |= (calm >= 0) & (calm == quiet.at(places, np.minimum(died_ns, given_ns)))
            found[own] &= one
    return found


def _died_by(case: Case, death: Death, place: int) -> Ints:
    """By message: when its death in that queue was known to all mirrors; NEVER: nobody knows."""
    deliveries, published = case.rows.deliveries, case.rows.published
    died_ns, settled = np.full(len(published.index), -1, dtype=np.int64), deliveries.settled
    given = (deliveries.queue == place) & (deliveries.message >= 0)
    ttl_ms = case.queue_rules(place).ttl_ms
    if death.reason == "rejected":
        refused = given & (settled.kind == REJECT) & settled.ok
        np.maximum.at(died_ns, deliveries.message[refused], settled.done_ns[refused])
    elif death.reason == "expired" and ttl_ms:
        # All that is before it in the queue lives no longer, and no consumer held it.
        own = (published.queue == place) & (published.ack == OK)
        own[deliveries.message[given]] = False
        died_ns[own] = published.complete_ns[own] + ttl_ms * MS + S
    return np.where(died_ns < 0, NEVER, died_ns + PROPAGATED_NS)


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
