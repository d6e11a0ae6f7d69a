"""Dead letters whose x-death says what can't have been.

Source: RabbitMQ, Dead Letter Exchanges: messages are dead-lettered if they are rejected without
requeue, expire, or are dropped because a queue is too long; and to the exchange of their queue.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.consumers.messages.policies import come_behind
from shalott.checkers.consumers.rows.rows import NONE, Death
from shalott.checkers.consumers.rows.settling import REJECT
from shalott.checkers.history.columns import Bools, Ints


def undue_letters(case: Case) -> Ints:
    """Deliveries of such letters, as positions."""
    deliveries, lives = case.rows.deliveries, case.rows.lives
    undue = np.zeros(len(deliveries.index), dtype=np.bool_)
    for code in range(1, len(lives)):
        own = np.flatnonzero((deliveries.life == code) & (deliveries.message >= 0))
        for number, death in enumerate(lives[code]):
            undue[own] |= ~_was_due(case, death, own, latest=number == 0)
    return np.flatnonzero(undue)


def _was_due(case: Case, death: Death, own: Ints, *, latest: bool) -> Bools:
    """Whether each of the deliveries may be of a message that died like this."""
    yes = np.ones(len(own), dtype=np.bool_)
    if death.queue not in case.rows.queues:
        return yes
    code = case.rows.queues.index(death.queue)
    rules = case.queue_rules(code)
    if not any(each.name == death.queue for each in case.rules.queues):
        return yes
    deliveries, published = case.rows.deliveries, case.rows.published
    if latest and rules.dead_letters in case.rows.queues:
        target = case.rows.queues.index(rules.dead_letters)
        yes &= deliveries.queue[own] == target
    message = deliveries.message[own]
    if death.reason == "expired":
        yes &= (published.ttl_ms[message] != NONE) | (rules.ttl_ms > 0)
    elif death.reason == "maxlen":
        yes &= rules.max_length > 0
        pushed = any(each.dead_letters == rules.name for each in case.rules.queues)
        if latest and not pushed:  # dead letters push as well, unseen
            came_ns = deliveries.at_ns[own]
            behind = come_behind(case, code, message, came_ns)
            yes &= (behind >= rules.max_length) | (published.queue[message] != code)
    elif death.reason == "rejected":
        refused = (deliveries.settled.kind == REJECT) & (deliveries.queue == code)
        refused &= deliveries.message >= 0
        known = np.zeros(len(published.index), dtype=np.bool_)
        known[deliveries.message[refused]] = True
        yes &= known[message]
    return yes
